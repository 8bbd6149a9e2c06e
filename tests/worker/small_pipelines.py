"""Pipelines of other makes, built small with random weights and saved as folders."""

from pathlib import Path
from typing import Any

from tests.worker.worker_host import ASSETS


def _clip(projected: bool, size: int = 32) -> Any:
    import torch
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    torch.manual_seed(size)
    config = CLIPTextConfig(
        vocab_size=tokenizer().vocab_size + 64,
        hidden_size=size,
        intermediate_size=2 * size,
        num_attention_heads=2,
        num_hidden_layers=2,
        max_position_embeddings=77,
        projection_dim=size,
        eos_token_id=tokenizer().eos_token_id,
    )
    return (CLIPTextModelWithProjection if projected else CLIPTextModel)(config).eval()


def tokenizer() -> Any:
    from transformers import CLIPTokenizer

    return CLIPTokenizer.from_pretrained(str(ASSETS / "shapes" / "tokenizer"))


def _vae(channels: int = 4, **config: object) -> Any:
    import torch
    from diffusers import AutoencoderKL

    torch.manual_seed(3)
    return AutoencoderKL(
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=channels,
        norm_num_groups=8,
        sample_size=32,
        **config,
    ).eval()


def save_sdxl(folder: Path) -> Path:
    """Stable Diffusion XL's make: two encoders, and a VAE that must decode in float32."""
    import torch
    from diffusers import (
        EulerDiscreteScheduler,
        StableDiffusionXLPipeline,
        UNet2DConditionModel,
    )

    torch.manual_seed(1)
    unet = UNet2DConditionModel(
        block_out_channels=(16, 32),
        layers_per_block=1,
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=6 * 8 + 32,
        cross_attention_dim=64,
    ).eval()
    pipeline = StableDiffusionXLPipeline(
        vae=_vae(force_upcast=True),
        text_encoder=_clip(projected=False),
        text_encoder_2=_clip(projected=True),
        tokenizer=tokenizer(),
        tokenizer_2=tokenizer(),
        unet=unet,
        scheduler=EulerDiscreteScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear"
        ),
        add_watermarker=False,
    )
    pipeline.save_pretrained(str(folder))
    return folder


def save_flux(folder: Path) -> Path:
    """Flux's make: packed latents, guidance inside the network."""
    import torch
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
    from transformers import T5EncoderModel, T5Tokenizer

    torch.manual_seed(2)
    t5 = T5EncoderModel.from_pretrained(str(ASSETS / "shapes-dit/text_encoder_3"))
    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=t5.config.d_model,
        pooled_projection_dim=32,
        axes_dims_rope=[4, 4, 8],
        guidance_embeds=True,
    ).eval()
    pipeline = FluxPipeline(
        vae=_vae(shift_factor=0.1, scaling_factor=0.5),
        text_encoder=_clip(projected=False),
        text_encoder_2=t5,
        tokenizer=tokenizer(),
        tokenizer_2=T5Tokenizer.from_pretrained(str(ASSETS / "shapes-dit/tokenizer_3")),
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(),
    )
    pipeline.save_pretrained(str(folder), max_shard_size="50KB")
    return folder


def sd1() -> Any:
    """Stable Diffusion 1's make."""
    import torch
    from diffusers import PNDMScheduler, StableDiffusionPipeline, UNet2DConditionModel

    torch.manual_seed(4)
    unet = UNet2DConditionModel(
        sample_size=32,
        block_out_channels=(16, 32),
        layers_per_block=2,
        norm_num_groups=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        attention_head_dim=2,
        cross_attention_dim=32,
    ).eval()
    return StableDiffusionPipeline(
        vae=_vae(),
        text_encoder=_clip(projected=False),
        tokenizer=tokenizer(),
        unet=unet,
        scheduler=PNDMScheduler(skip_prk_steps=True),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def save_sd1(folder: Path) -> Path:
    """Stable Diffusion 1's make, as a folder."""
    sd1().save_pretrained(str(folder))
    return folder


def save_sd3(folder: Path) -> Path:
    """Stable Diffusion 3's make: three encoders, and two kinds of attention in the denoiser."""
    import torch
    from diffusers import (
        FlowMatchEulerDiscreteScheduler,
        SD3Transformer2DModel,
        StableDiffusion3Pipeline,
    )
    from transformers import T5EncoderModel, T5Tokenizer

    torch.manual_seed(5)
    t5 = T5EncoderModel.from_pretrained(str(ASSETS / "shapes-dit/text_encoder_3"))
    transformer = SD3Transformer2DModel(
        sample_size=32,
        patch_size=1,
        in_channels=8,
        out_channels=8,
        num_layers=3,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=t5.config.d_model,
        caption_projection_dim=32,
        pooled_projection_dim=56,
        pos_embed_max_size=64,
        dual_attention_layers=(0,),
        qk_norm="rms_norm",
    ).eval()
    pipeline = StableDiffusion3Pipeline(
        vae=_vae(channels=8, shift_factor=0.1, scaling_factor=0.5),
        text_encoder=_clip(projected=True),
        text_encoder_2=_clip(projected=True, size=24),
        text_encoder_3=t5,
        tokenizer=tokenizer(),
        tokenizer_2=tokenizer(),
        tokenizer_3=T5Tokenizer.from_pretrained(str(ASSETS / "shapes-dit/tokenizer_3")),
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(),
    )
    pipeline.save_pretrained(str(folder), max_shard_size="30KB")
    return folder
