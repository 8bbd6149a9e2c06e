"""Streaming of what is more than one denoiser: language models, two denoisers, a ControlNet."""

from typing import Any

import pytest

from tests.worker.small_pipelines import sd1
from tests.worker.streamed_nets import nothing_stays_behind, streamed
from tests.worker.test_worker_components import wan_denoiser, wan_vae
from workshop_gpu.catalogue.blocks import blocks_of

pytestmark = pytest.mark.usefixtures("quiet_libraries")

SHARES = (0.25, 0.5, 1.0)
TOKENS = 12
BUFFERS = 2


def llama() -> Any:
    """Tied weights, and angles that the library computes."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        )
    )


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=4, n_head=4)
    )


def gemma() -> Any:
    """Layers of two kinds in turn, whose cache differs."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    return Gemma2ForCausalLM(
        Gemma2Config(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            sliding_window=8,
        )
    )


def written(model: Any) -> tuple[Any, Any]:
    """The tokens that a language model adds to a few, one after the other, and their logits."""
    import torch

    begun = torch.tensor([[5, 9, 2, 33]])
    with torch.inference_mode():
        found = model.generate(
            begun,
            attention_mask=torch.ones_like(begun),
            max_new_tokens=TOKENS,
            min_new_tokens=TOKENS,
            do_sample=False,
            use_cache=True,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
    return found.sequences, torch.stack(found.logits)


@pytest.mark.parametrize("make", [llama, gpt2, gemma])
def test_a_language_model_writes_the_same_however_much_of_it_is_streamed(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    torch.manual_seed(8)
    model = make().eval()
    tokens, logits = written(model)
    assert len(set(tokens[0].tolist())) > 2, "the model says something"
    nothing_stays_behind(monkeypatch)
    for share in SHARES:
        torch.manual_seed(8)
        model = make().eval()
        rotation, lane = streamed(model, share=share, buffers=BUFFERS)
        same_tokens, same_logits = written(model)
        assert torch.equal(same_tokens, tokens), share
        assert torch.equal(same_logits, logits), share
        streamed_blocks = round(4 * share)
        comes_anew = streamed_blocks > BUFFERS
        assert lane.copies >= streamed_blocks * (TOKENS - 1 if comes_anew else 1), share
        rotation.end()


def video_pipeline() -> Any:
    """Wan 2.2's make: one denoiser for the first steps, another one for the rest."""
    import torch
    from diffusers import UniPCMultistepScheduler, WanPipeline

    torch.manual_seed(9)
    return WanPipeline(
        tokenizer=None,
        text_encoder=None,
        vae=wan_vae().eval(),
        transformer=wan_denoiser().eval(),
        transformer_2=wan_denoiser().eval(),
        scheduler=UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
        boundary_ratio=0.7,
    )


def moving_latents(pipeline: Any) -> Any:
    import torch

    generator = torch.Generator().manual_seed(4)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline(
        prompt_embeds=torch.randn((1, 6, 16), generator=generator),
        negative_prompt_embeds=torch.randn((1, 6, 16), generator=generator),
        height=32,
        width=32,
        num_frames=5,
        num_inference_steps=6,
        guidance_scale=4.0,
        generator=generator,
        output_type="latent",
    ).frames


def test_two_denoisers_come_through_the_same_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    expected = moving_latents(video_pipeline())
    nothing_stays_behind(monkeypatch)
    for share in SHARES:
        pipeline = video_pipeline()
        rotation, lane = streamed(pipeline.transformer, pipeline.transformer_2, share=share)
        assert torch.equal(moving_latents(pipeline), expected), share
        assert lane.copies >= 4 * share
        rotation.settle()
        assert torch.equal(moving_latents(pipeline), expected), "a second job"
        rotation.end()


def controlled_pipeline() -> Any:
    """Stable Diffusion 1's make with a ControlNet beside the UNet."""
    import torch
    from diffusers import ControlNetModel, StableDiffusionControlNetPipeline

    plain = sd1()
    torch.manual_seed(10)
    controlnet = ControlNetModel(
        block_out_channels=(16, 32),
        layers_per_block=2,
        norm_num_groups=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        attention_head_dim=2,
        cross_attention_dim=32,
        conditioning_embedding_out_channels=(8, 16),
    ).eval()
    for name, parameter in controlnet.named_parameters():
        if "controlnet_" in name or "conv_out" in name:  # zeros at first, so that it says nothing
            torch.nn.init.normal_(parameter, std=0.1)
    return StableDiffusionControlNetPipeline(
        **plain.components | {"controlnet": controlnet}, requires_safety_checker=False
    )


def controlled_latents(pipeline: Any, scale: float = 1.0) -> Any:
    import torch

    pipeline.set_progress_bar_config(disable=True)
    generator = torch.Generator().manual_seed(4)
    return pipeline(
        "a red circle",
        image=torch.rand((1, 3, 64, 64), generator=generator),
        width=64,
        height=64,
        num_inference_steps=4,
        controlnet_conditioning_scale=scale,
        generator=generator,
        output_type="latent",
    ).images


def test_a_controlnet_is_streamed_beside_the_denoiser(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    expected = controlled_latents(controlled_pipeline())
    assert not torch.equal(expected, controlled_latents(controlled_pipeline(), scale=0.0))
    nothing_stays_behind(monkeypatch)
    for share in SHARES:
        pipeline = controlled_pipeline()
        rotation, lane = streamed(pipeline.unet, pipeline.controlnet, share=share)
        assert torch.equal(controlled_latents(pipeline), expected), share
        assert lane.copies > 4
        rotation.end()


def cascade() -> Any:
    """Stable Cascade's: lists of blocks in lists, through which the network itself runs."""
    import torch
    from diffusers.models import StableCascadeUNet

    torch.manual_seed(11)
    return StableCascadeUNet(
        in_channels=4,
        out_channels=4,
        timestep_ratio_embedding_dim=8,
        conditioning_dim=16,
        block_out_channels=(16, 16),
        num_attention_heads=(2, 2),
        down_num_layers_per_block=(2, 2),
        up_num_layers_per_block=(2, 2),
        down_blocks_repeat_mappers=(1, 1),
        up_blocks_repeat_mappers=(1, 1),
        block_types_per_layer=(("SDCascadeResBlock", "SDCascadeTimestepBlock"),) * 2,
        clip_text_in_channels=16,
        clip_text_pooled_in_channels=16,
        clip_seq=2,
        switch_level=(False,),
    ).eval()


def cascaded(net: Any) -> Any:
    import torch

    generator = torch.Generator().manual_seed(4)
    with torch.inference_mode():
        return net(
            torch.randn((1, 4, 8, 8), generator=generator),
            torch.tensor([0.5]),
            clip_text_pooled=torch.randn((1, 1, 16), generator=generator),
        ).sample


def test_lists_in_lists_are_streamed_by_what_is_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    expected = cascaded(cascade())
    nothing_stays_behind(monkeypatch)
    for share in SHARES:
        net = cascade()
        rotation, lane = streamed(net, share=share)
        assert torch.equal(cascaded(net), expected), share
        assert lane.copies > 1
        rotation.end()


def large(name: str) -> Any:
    """Networks as they are offered, without their numbers."""
    import diffusers
    import torch
    import transformers

    with torch.device("meta"):
        match name:
            case "sdxl":
                return diffusers.UNet2DConditionModel(
                    block_out_channels=(320, 640, 1280),
                    down_block_types=("DownBlock2D", *("CrossAttnDownBlock2D",) * 2),
                    up_block_types=(*("CrossAttnUpBlock2D",) * 2, "UpBlock2D"),
                    transformer_layers_per_block=(1, 2, 10),
                    attention_head_dim=(5, 10, 20),
                    cross_attention_dim=2048,
                    use_linear_projection=True,
                )
            case "t5":
                gated = transformers.T5Config(num_layers=3, feed_forward_proj="gated-gelu")
                return transformers.T5EncoderModel(gated)
            case "cascade":
                return diffusers.models.StableCascadeUNet()
            case _:
                return diffusers.FluxTransformer2DModel(num_layers=3, num_single_layers=4)


@pytest.mark.parametrize("name", ["sdxl", "t5", "cascade", "flux"])
def test_a_networks_names_tell_by_which_blocks_it_is_streamed(name: str) -> None:
    """Else a model would be thought to need much more room than it does, and be refused for it."""
    from workshop_gpu.worker.blocks import repeated_blocks

    net = large(name)

    def size_of(module: Any) -> int:
        return sum(tensor.nbytes for tensor in module.parameters())

    told = blocks_of((each, tensor.nbytes) for each, tensor in net.named_parameters())
    found = [size_of(block) for block in repeated_blocks(net)]
    assert max(told) == max(found)
    assert sum(told) == pytest.approx(sum(found), rel=0.15)
