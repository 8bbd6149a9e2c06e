"""What the components of a model are for, and which weights repeat, from headers."""

import json
from pathlib import Path

import pytest

from workshop_gpu.catalogue.blocks import blocks_of, layers_of
from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.catalogue.pipeline_folder import WHOLE, Component
from workshop_gpu.catalogue.roles import lacks_of, role_of, roles_of
from workshop_gpu.catalogue.single_file import components_of_file
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
        ("transformer_blocks.2.attn.to_q.weight", 12),
        ("transformer_blocks.2.ff.net.0.proj.weight", 20),
        ("down_blocks.0.resnets.0.conv1.weight", 5),
        ("down_blocks.1.resnets.1.conv1.weight", 6),
        ("proj_out.0.weight", 9),
    ]
    assert blocks_of(tensors) == (32, 3, 5, 6)


def test_a_block_of_hardly_more_than_lists_is_as_many_as_are_in_them() -> None:
    """An attention's linear layers are numbered, too, and are no blocks."""
    tensors = [
        ("down_blocks.0.resnets.0.conv1.weight", 50),
        ("down_blocks.0.resnets.1.conv1.weight", 51),
        ("down_blocks.0.attentions.0.transformer_blocks.0.ff.net.0.proj.weight", 60),
        ("down_blocks.0.attentions.0.transformer_blocks.0.norm.weight", 40),
        ("down_blocks.0.attentions.0.proj_in.weight", 5),
        ("down_blocks.1.0.channelwise.0.weight", 90),
        ("down_blocks.1.0.channelwise.2.gamma", 1),
    ]
    assert blocks_of(tensors) == (50, 51, 100, 91)


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
    assert lacks_of([Component(WHOLE, 9)]) == (), "of a single file nothing is known"


def test_the_shipped_models_know_what_they_cannot_do() -> None:
    catalogue = Catalogue()
    catalogue.load()
    lacks = {facts.model: facts.lacks for facts in catalogue.facts()}
    assert (lacks["shapes"], lacks["shapes-dit"]) == ((), ("sliced",))


UNET = {
    "model.diffusion_model.time_embed.0.weight": 3,
    "model.diffusion_model.time_embed.2.weight": 3,
    "model.diffusion_model.input_blocks.0.0.weight": 4,
    "model.diffusion_model.input_blocks.1.0.in_layers.2.weight": 5,
    "model.diffusion_model.input_blocks.1.1.proj_in.weight": 6,
    "model.diffusion_model.middle_block.0.in_layers.0.weight": 7,
    "model.diffusion_model.middle_block.1.norm.weight": 8,
    "model.diffusion_model.output_blocks.0.0.weight": 9,
    "model.diffusion_model.output_blocks.1.0.weight": 10,
}
XL_ENCODERS = {
    "conditioner.embedders.0.transformer.text_model.encoder.layers.0.mlp.fc1.weight": 2,
    "conditioner.embedders.0.transformer.text_model.encoder.layers.1.mlp.fc1.weight": 3,
    "conditioner.embedders.1.model.transformer.resblocks.0.mlp.c_fc.weight": 4,
    "conditioner.embedders.1.model.transformer.resblocks.1.mlp.c_fc.weight": 5,
    "conditioner.embedders.1.model.ln_final.weight": 6,
}
DIT = {
    "model.diffusion_model.joint_blocks.0.x_block.attn.qkv.weight": 7,
    "model.diffusion_model.joint_blocks.1.x_block.attn.qkv.weight": 8,
    "model.diffusion_model.x_embedder.proj.weight": 1,
}
T5_ENCODER = {
    "text_encoders.t5xxl.transformer.encoder.block.0.layer.0.SelfAttention.k.weight": 5,
    "text_encoders.t5xxl.transformer.encoder.block.1.layer.0.SelfAttention.k.weight": 6,
}
DECODER = {"first_stage_model.decoder.up.0.block.0.conv1.weight": 20}


def single_file(folder: Path, sizes: dict[str, int]) -> Path:
    """A .safetensors file of these tensors in half precision; numbers count two bytes each."""
    header, end = {}, 0
    for name, size in sizes.items():
        header[name] = {"dtype": "F16", "shape": [size], "data_offsets": [end, end + 2 * size]}
        end += 2 * size
    text = json.dumps(header).encode()
    file = folder / "one.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))
    return file


@pytest.mark.parametrize(
    ("denoiser", "encoders", "blocks", "read_blocks"),
    [
        (UNET, XL_ENCODERS, (8, 10, 12, 14, 16, 18, 20), (4, 6, 8, 10)),
        (DIT, T5_ENCODER, (14, 16), (10, 12)),
    ],
    ids=["Stable Diffusion XL", "Stable Diffusion 3"],
)
def test_a_single_file_tells_its_parts_and_their_blocks_by_its_names(
    tmp_path: Path,
    denoiser: dict[str, int],
    encoders: dict[str, int],
    blocks: tuple[int, ...],
    read_blocks: tuple[int, ...],
) -> None:
    beside = {"alphas_cumprod": 1}
    file = single_file(tmp_path, denoiser | DECODER | encoders | beside)
    roles = {each.role: each for each in roles_of(components_of_file(file, 2))}
    assert {role: each.size_bytes for role, each in roles.items()} == {
        DENOISER: 2 * sum(denoiser.values()) + 2,
        ENCODERS: 2 * sum(encoders.values()),
        VAE: 40,
    }
    assert roles[DENOISER].blocks_bytes == blocks
    assert roles[ENCODERS].blocks_bytes == read_blocks
    assert roles[DENOISER].layer_bytes == blocks[-1], "the last block is one layer"


@pytest.mark.parametrize(
    "sizes",
    [
        {"double_blocks.0.weight": 3, "double_blocks.1.weight": 3, "double_blocks.2.weight": 3},
        UNET | XL_ENCODERS,
        UNET | DECODER,
    ],
    ids=["other names", "no VAE", "no encoders"],
)
def test_of_a_single_file_with_other_names_no_part_is_known(
    tmp_path: Path, sizes: dict[str, int]
) -> None:
    """The library has them from elsewhere: it would be wrong to say that there are none."""
    (whole,) = components_of_file(single_file(tmp_path, sizes), 2)
    assert whole == Component(WHOLE, 2 * sum(sizes.values()))
    assert roles_of([whole]) == ()
