"""Turns stage results into folders that plain `DiffusionPipeline.from_pretrained` loads.

Weights are stored in 16 bits. The text encoders' `config.json` says float32, so that a load with
no dtype computes everything in 32 bits, and a load with one in that.

Stable Diffusion 3's pipeline cannot be loaded again without a third text encoder unless each
caller says so. The folders therefore hold a T5 of one layer whose final norm is zero: its output
is exactly the zeros that the pipeline puts where there is no T5.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    DDIMScheduler,
    FlowMatchEulerDiscreteScheduler,
    StableDiffusion3Pipeline,
    StableDiffusionPipeline,
)
from transformers import (
    CLIPTextModel,
    CLIPTokenizer,
    T5Config,
    T5EncoderModel,
    T5TokenizerFast,
)

from shape_models.context import Context, part
from shape_models.networks import (
    TextSize,
    build_dit,
    build_text,
    build_unet,
    build_vae,
    text_config,
)
from shape_models.tokenizer import LENGTH, UNKNOWN
from shape_models.unet_stage import BETA_END, BETA_START

SHARED_BY_DITS = (
    "vae",
    "text_encoder",
    "text_encoder_2",
    "text_encoder_3",
    "tokenizer",
    "tokenizer_2",
    "tokenizer_3",
)
TEXT_ENCODERS = ("text_encoder", "text_encoder_2", "text_encoder_3")


def assemble(context: Context, assets: Path) -> None:
    """Writes all five folders anew under `assets`."""
    shapes, dit, turbo = (assets / n for n in ("shapes", "shapes-dit", "shapes-dit-turbo"))
    loras = assets / "loras"
    for folder in (shapes, dit, turbo, loras):
        shutil.rmtree(folder, ignore_errors=True)
    _unet_pipeline(context).save_pretrained(shapes)
    _dit_pipeline(context).save_pretrained(dit)
    for folder in (shapes, dit):
        _compute_in_32_bits(folder)
    shutil.rmtree(shapes / "vae")
    shutil.copytree(dit / "vae", shapes / "vae")
    _copy_for_turbo(context, dit, turbo)
    StableDiffusionPipeline.save_lora_weights(
        loras / "shapes-outline", unet_lora_layers=context.load("lora-unet")
    )
    StableDiffusion3Pipeline.save_lora_weights(
        loras / "shapes-dit-outline", transformer_lora_layers=context.load("lora-dit")
    )


def _vae(context: Context) -> Any:
    vae = build_vae(context.plan.sizes)
    vae.load_state_dict(part(context.load("vae"), "vae"))
    return vae.half()


def _tokenizer(context: Context) -> CLIPTokenizer:
    vocabulary = context.vocabulary
    return CLIPTokenizer(
        vocab=dict(vocabulary.tokens),
        merges=list(vocabulary.merges),
        unk_token=UNKNOWN,
        model_max_length=LENGTH,
    )


def _text(context: Context, file: str, prefix: str, size: TextSize) -> Any:
    text = build_text(size, context.vocabulary)
    missing = text.load_state_dict(part(context.load(file), prefix), strict=False)
    assert not missing.unexpected_keys, missing
    return text.half()


def _unet_pipeline(context: Context) -> StableDiffusionPipeline:
    sizes = context.plan.sizes
    unet = build_unet(sizes)
    unet.load_state_dict(part(context.load("unet"), "unet"))
    projected = _text(context, "unet", "text", sizes.unet_text)
    text = CLIPTextModel(text_config(sizes.unet_text, context.vocabulary))
    inner: Any = getattr(text, "text_model", text)
    inner.load_state_dict(getattr(projected, "text_model", projected).state_dict(), strict=False)
    scheduler = DDIMScheduler(
        beta_start=BETA_START,
        beta_end=BETA_END,
        beta_schedule="scaled_linear",
        clip_sample=False,
        set_alpha_to_one=False,
        prediction_type="v_prediction",
        rescale_betas_zero_snr=True,
        timestep_spacing="trailing",
        steps_offset=1,
    )
    return StableDiffusionPipeline(
        vae=_vae(context),
        text_encoder=text.half(),
        tokenizer=_tokenizer(context),
        unet=unet.half(),
        scheduler=scheduler,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def _dit_pipeline(context: Context) -> StableDiffusion3Pipeline:
    sizes = context.plan.sizes
    first, second = (
        _text(context, "dit", name, size)
        for name, size in zip(("text1", "text2"), sizes.dit_text, strict=True)
    )
    return StableDiffusion3Pipeline(
        transformer=_transformer(context, "dit"),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=1.0),
        vae=_vae(context),
        text_encoder=first,
        tokenizer=_tokenizer(context),
        text_encoder_2=second,
        tokenizer_2=_tokenizer(context),
        text_encoder_3=_silent_t5(sizes.dit_width),
        tokenizer_3=_t5_tokenizer(),
    )


def _transformer(context: Context, file: str) -> Any:
    dit = build_dit(context.plan.sizes)
    loaded = dit.load_state_dict(part(context.load(file), file), strict=False)
    assert loaded.missing_keys == ["pos_embed.pos_embed"], loaded
    assert not loaded.unexpected_keys, loaded
    return dit.half()


def _silent_t5(width: int) -> T5EncoderModel:
    """A T5 that says nothing: zeros for every token of every prompt."""
    config = T5Config(
        vocab_size=8,
        d_model=width,
        d_kv=8,
        d_ff=8,
        num_layers=1,
        num_heads=1,
        relative_attention_num_buckets=8,
        feed_forward_proj="gated-gelu",
        pad_token_id=0,
        eos_token_id=1,
    )
    model = T5EncoderModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    silent: T5EncoderModel = model.half()
    return silent


def _t5_tokenizer() -> T5TokenizerFast:
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -1.0)]
    return T5TokenizerFast(vocab=vocabulary, extra_ids=0, model_max_length=512)


def _compute_in_32_bits(folder: Path) -> None:
    for name in TEXT_ENCODERS:
        file = folder / name / "config.json"
        if file.exists():
            config = json.loads(file.read_text())
            config["dtype"] = "float32"
            file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _copy_for_turbo(context: Context, dit: Path, turbo: Path) -> None:
    """The same folder with another transformer and scheduler, all else byte for byte."""
    for name in SHARED_BY_DITS:
        shutil.copytree(dit / name, turbo / name)
    shutil.copy(dit / "model_index.json", turbo / "model_index.json")
    _transformer(context, "turbo").save_pretrained(turbo / "transformer")
    # With as many training timesteps as levels, its default schedule is the one it learnt.
    levels = context.plan.turbo_levels
    scheduler = FlowMatchEulerDiscreteScheduler(num_train_timesteps=levels, shift=1.0)
    scheduler.save_pretrained(turbo / "scheduler")
