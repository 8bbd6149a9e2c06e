"""The shipped models, as a user gets them: plain `from_pretrained`, no network."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import (
    DiffusionPipeline,
    StableDiffusion3Img2ImgPipeline,
    StableDiffusionImg2ImgPipeline,
)
from PIL import Image
from shape_judge.pixels import NAMED, look
from shape_judge.tasks import Task, Wanted
from shape_judge.verdict import judge

ASSETS = Path(__file__).parents[2] / "workshop_gpu" / "catalogue" / "assets"
STEPS = {"shapes": 20, "shapes-dit": 20, "shapes-dit-turbo": 4}
GUIDANCE = {"shapes": 3.0, "shapes-dit": 3.0, "shapes-dit-turbo": 0.0}
LORAS = {"shapes": "shapes-outline", "shapes-dit": "shapes-dit-outline"}
SHARED = ("vae", "text_encoder", "text_encoder_2", "text_encoder_3", "tokenizer", "tokenizer_2")
STAR = "a big red star on a blue background"

every_model = pytest.mark.parametrize("name", list(STEPS))


@cache
def pipeline(name: str) -> Any:
    pipe = DiffusionPipeline.from_pretrained(ASSETS / name)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def call(name: str, prompt: str, seed: int = 1, **extra: Any) -> Any:
    """One image as pixels [128, 128, 3]."""
    settings: dict[str, Any] = {
        "num_inference_steps": STEPS[name],
        "guidance_scale": GUIDANCE[name],
        "generator": torch.Generator().manual_seed(seed),
        **extra,
    }
    return np.asarray(pipeline(name)(prompt, **settings).images[0])


def files() -> list[Path]:
    return [file for file in ASSETS.rglob("*") if file.is_file()]


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_the_folders_hold_at_most_40_mb_and_no_file_more_than_12() -> None:
    sizes_bytes = [file.stat().st_size for file in files()]
    assert sum(sizes_bytes) <= 40_000_000
    assert max(sizes_bytes) <= 12_000_000


def test_weights_are_safetensors_and_nothing_is_a_pickle() -> None:
    assert {file.suffix for file in files()} == {".json", ".safetensors"}


def test_the_two_transformer_models_share_all_but_transformer_and_scheduler() -> None:
    base, turbo = ASSETS / "shapes-dit", ASSETS / "shapes-dit-turbo"
    names = {str(file.relative_to(base)) for file in base.rglob("*") if file.is_file()}
    assert names == {str(file.relative_to(turbo)) for file in turbo.rglob("*") if file.is_file()}
    unlike = {name for name in names if digest(base / name) != digest(turbo / name)}
    assert unlike == {
        "transformer/diffusion_pytorch_model.safetensors",
        "scheduler/scheduler_config.json",
    }


def test_all_three_models_share_one_autoencoder() -> None:
    weights = {digest(ASSETS / n / "vae/diffusion_pytorch_model.safetensors") for n in STEPS}
    assert len(weights) == 1


@every_model
def test_a_plain_load_computes_in_32_bits_and_a_load_with_a_dtype_in_that(name: str) -> None:
    half = DiffusionPipeline.from_pretrained(ASSETS / name, dtype=torch.bfloat16)
    for pipe, dtype in ((pipeline(name), torch.float32), (half, torch.bfloat16)):
        modules = [part for part in pipe.components.values() if isinstance(part, torch.nn.Module)]
        assert {tensor.dtype for module in modules for tensor in module.parameters()} == {dtype}


@every_model
@pytest.mark.parametrize(
    ("task", "seed"),
    [
        (Task(STAR, (Wanted("star", "red", "big"),), "blue", None, None), 1),
        (
            Task(
                "on a yellow background, a green square to the left of a purple circle",
                (Wanted("square", "green", None), Wanted("circle", "purple", None)),
                "yellow",
                None,
                "left",
            ),
            2,
        ),
        (
            Task("a small blue heart", (Wanted("heart", "blue", "small"),), None, "middle", None),
            3,
        ),
    ],
)
def test_it_draws_what_the_prompt_says(name: str, task: Task, seed: int) -> None:
    picture = call(name, task.prompt, seed)
    verdict = judge(picture, task)
    assert verdict.right_in_all, look(picture)
    assert verdict.clean


@every_model
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(name: str) -> None:
    one, again, other = (call(name, STAR, seed) for seed in (5, 5, 6))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


@every_model
@pytest.mark.parametrize(
    "prompt",
    ["", "   ", "quux frobnicate ünïcode", "🙂🚀 draw 🟥", "a red star and " * 60, "\n\t\x00"],
)
def test_any_text_gives_an_image(name: str, prompt: str) -> None:
    picture = call(name, prompt, num_inference_steps=2)
    assert picture.shape == (128, 128, 3)


def test_a_prompt_is_cut_at_the_tokenizer_s_end_and_not_before() -> None:
    tail = " on a blue background" + ", draw" * 40
    assert np.array_equal(
        call("shapes-dit-turbo", "a big red star" + tail),
        call("shapes-dit-turbo", "a big red star" + tail + " green circle"),
    )


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
def test_turbo_takes_any_number_of_steps(steps: int) -> None:
    assert look(call("shapes-dit-turbo", STAR, num_inference_steps=steps)).ground == "blue"


def test_turbo_is_unchanged_by_a_guidance_of_one() -> None:
    assert np.array_equal(
        call("shapes-dit-turbo", STAR), call("shapes-dit-turbo", STAR, guidance_scale=1.0)
    )


@pytest.mark.parametrize("name", ["shapes-dit", "shapes-dit-turbo"])
def test_without_the_silent_t5_the_picture_is_the_same(name: str) -> None:
    bare = DiffusionPipeline.from_pretrained(ASSETS / name, text_encoder_3=None, tokenizer_3=None)
    bare.set_progress_bar_config(disable=True)
    settings = {"num_inference_steps": 4, "guidance_scale": 0.0}
    picture = bare(STAR, generator=torch.Generator().manual_seed(1), **settings).images[0]
    assert np.array_equal(np.asarray(picture), call(name, STAR, **settings))


@every_model
def test_a_start_image_keeps_its_layout(name: str) -> None:
    start = np.full((128, 128, 3), NAMED["yellow"], np.uint8)
    start[20:64, 12:56] = NAMED["red"]
    kind: Any = StableDiffusionImg2ImgPipeline
    if name != "shapes":
        kind = StableDiffusion3Img2ImgPipeline
    pipe = kind.from_pipe(pipeline(name))
    pipe.set_progress_bar_config(disable=True)
    picture = pipe(
        "a red square on a yellow background",
        image=Image.fromarray(start),
        strength=0.5,
        num_inference_steps=STEPS[name],
        guidance_scale=GUIDANCE[name],
        generator=torch.Generator().manual_seed(1),
    ).images[0]
    sight = look(np.asarray(picture))
    assert sight.ground == "yellow"
    assert [(thing.shape, thing.colour) for thing in sight.things] == [("square", "red")]
    assert abs(sight.things[0].x - 34) < 8
    assert abs(sight.things[0].y - 42) < 8


@torch.no_grad()
def stepped(name: str, start: torch.Tensor) -> torch.Tensor:
    """The denoising loop written out, one step at a time, without guidance."""
    pipe = pipeline(name)
    pipe.scheduler.set_timesteps(4)
    latents = start
    if name == "shapes":
        states, _ = pipe.encode_prompt(STAR, "cpu", 1, do_classifier_free_guidance=False)
        latents = latents * pipe.scheduler.init_noise_sigma
    else:
        states, _, pooled, _ = pipe.encode_prompt(
            STAR, None, None, do_classifier_free_guidance=False
        )
    for timestep in pipe.scheduler.timesteps:
        if name == "shapes":
            guess = pipe.unet(latents, timestep, encoder_hidden_states=states).sample
        else:
            guess = pipe.transformer(
                hidden_states=latents,
                timestep=timestep.expand(1),
                encoder_hidden_states=states,
                pooled_projections=pooled,
            ).sample
        latents = pipe.scheduler.step(guess, timestep, latents).prev_sample
    return latents


@every_model
def test_stepping_the_latents_one_by_one_gives_what_the_whole_call_gives(name: str) -> None:
    start = torch.randn(1, 16, 16, 16, generator=torch.Generator().manual_seed(3))
    whole = pipeline(name)(
        STAR, num_inference_steps=4, guidance_scale=0.0, latents=start, output_type="latent"
    ).images
    assert torch.equal(stepped(name, start), whole)


def filled(picture: Any) -> float:
    """Share of the picture that is not ground."""
    away = np.abs(picture.astype(int) - picture[0, 0].astype(int)).sum(-1)
    return float((away > 90).mean())


@pytest.mark.parametrize("name", list(LORAS))
def test_the_adapter_draws_outlines_and_leaves_no_trace_when_unloaded(name: str) -> None:
    folder = ASSETS / "loras" / LORAS[name]
    weights = folder / "pytorch_lora_weights.safetensors"
    assert weights.stat().st_size < 1_000_000
    prompt = "a big red square on a white background"
    pipe = pipeline(name)
    before = call(name, prompt)
    pipe.load_lora_weights(folder)
    try:
        outlined = call(name, prompt)
    finally:
        pipe.unload_lora_weights()
    after = call(name, prompt)
    assert filled(before) > 0.1
    assert 0.005 < filled(outlined) < 0.6 * filled(before)
    assert np.array_equal(before, after)


def test_the_folders_name_only_stock_classes() -> None:
    for name in STEPS:
        index = json.loads((ASSETS / name / "model_index.json").read_text())
        libraries = {entry[0] for entry in index.values() if isinstance(entry, list)}
        assert libraries <= {"diffusers", "transformers", None}
