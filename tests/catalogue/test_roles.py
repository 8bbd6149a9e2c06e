"""What the components of a model are for, and which weights repeat, from headers."""

from workshop_gpu.catalogue.blocks import blocks_of, layers_of
from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.catalogue.pipeline_folder import Component
from workshop_gpu.catalogue.roles import lacks_of, role_of, roles_of
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, VAE, RoleBytes


def test_each_component_has_a_role() -> None:
    roles = {
        name: role_of(name)
        for name in ("text_encoder", "text_encoder_3", "image_encoder", "transformer",
                     "transformer_2", "unet", "controlnet", "vae", "vqvae", "new_thing")
    }  # fmt: skip
    assert {name for name, role in roles.items() if role == ENCODERS} == {
        "text_encoder", "text_encoder_3", "image_encoder"
    }  # fmt: skip
    assert {name for name, role in roles.items() if role == VAE} == {"vae", "vqvae"}


def test_repeated_blocks_are_those_of_the_outermost_list_in_their_order() -> None:
    tensors = [
        ("pos_embed.proj.weight", 7),
        ("transformer_blocks.10.attn.to_q.weight", 3),
        ("transformer_blocks.2.attn.to_q.weight", 2),
        ("transformer_blocks.2.ff.net.0.proj.weight", 20),
        ("down_blocks.0.resnets.0.conv1.weight", 5),
        ("down_blocks.1.resnets.1.conv1.weight", 6),
        ("proj_out.0.weight", 9),
    ]
    assert blocks_of(tensors) == (22, 3, 5, 6)


def test_the_layers_in_blocks_are_known_by_what_they_are_called() -> None:
    tensors = [
        ("proj_out.weight", 100),
        ("blocks.0.attn.to_q.weight", 10),
        ("blocks.0.attn.to_q.bias", 1),
        ("blocks.0.scale_shift_table", 3),
        ("blocks.1.attn.to_q.weight", 9),
        ("blocks.1.scale_shift_table", 4),
        ("convolutions.0.weight", 8),
        ("convolutions.0.bias", 5),
    ]
    assert layers_of(tensors) == (13, 7)


def test_the_roles_of_two_components_are_one() -> None:
    found = roles_of(
        [
            Component("transformer", 50, (20, 20), layer_bytes=7, loose_bytes=1),
            Component("transformer_2", 60, (25, 25), layer_bytes=9, loose_bytes=2),
            Component("vae", 9, (1, 1), layer_bytes=1),
            Component("text_encoder", 5, (2, 2)),
        ]
    )
    assert found == (
        RoleBytes(ENCODERS, 5, (2, 2)),
        RoleBytes(DENOISER, 110, (20, 20, 25, 25), 9, 3),
        RoleBytes(VAE, 9),
    )


def test_the_facts_of_shipped_models_account_for_all_their_bytes() -> None:
    catalogue = Catalogue()
    catalogue.load()
    shipped = {each.model: each for each in catalogue.facts() if each.model.startswith("shapes")}
    assert len(shipped) >= 3
    for facts in shipped.values():
        assert sum(role.size_bytes for role in facts.roles) == facts.file_bytes
        assert {role.role for role in facts.roles} == {ENCODERS, DENOISER, VAE}
        denoiser = next(role for role in facts.roles if role.role == DENOISER)
        assert len(denoiser.blocks_bytes) > 1
        assert sum(denoiser.blocks_bytes) <= denoiser.size_bytes


def test_what_a_model_cannot_do_is_told_by_its_classes() -> None:
    unet = Component("unet", 9, class_name="UNet2DConditionModel")
    transformer = Component("transformer", 9, class_name="SD3Transformer2DModel")
    vae, quantized = (Component("vae", 1, class_name=n) for n in ("AutoencoderKL", "VQModel"))
    assert lacks_of([unet, vae]) == ()
    assert lacks_of([transformer, vae]) == ("sliced",)
    assert lacks_of([unet, quantized]) == ("tiled",)
    assert lacks_of([Component("all", 9)]) == (), "of a single file nothing is known"


def test_the_shipped_models_know_what_they_cannot_do() -> None:
    catalogue = Catalogue()
    catalogue.load()
    lacks = {facts.model: facts.lacks for facts in catalogue.facts()}
    assert (lacks["shapes"], lacks["shapes-dit"]) == ((), ("sliced",))
