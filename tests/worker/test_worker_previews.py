"""The preview's parts alone: the map from latents to colours, and the noise taken off."""

import io
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.worker.bare_pipelines import bare_pipeline
from tests.worker.worker_host import ASSETS, params

pytestmark = pytest.mark.usefixtures("quiet_libraries")


def shown(jpeg: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(jpeg)) as image:
        return np.asarray(image.convert("RGB"), float)


def likeness(jpeg: bytes, picture: Any) -> float:
    """The correlation of a preview with the picture, from -1 to 1."""
    preview = shown(jpeg)
    image = picture.image.resize(preview.shape[1::-1])
    return float(np.corrcoef(preview.ravel(), np.asarray(image, float).ravel())[0, 1])


def linear_picture(seed: int, rows: int, columns: int, channels: int = 4) -> Any:
    """Latents, and the picture that a linear decoder with patches of 8 makes of them."""
    import torch

    from workshop_gpu.worker.drawing import Picture

    coarse = torch.randn((1, channels, 6, 4), generator=torch.Generator().manual_seed(seed))
    latents = torch.nn.functional.interpolate(coarse, (rows, columns), mode="bicubic")
    mix = torch.linspace(-0.2, 0.3, channels * 3).reshape(3, channels)
    colours = torch.einsum("kc,nchw->hwk", mix, latents) / channels + 0.5
    pixels = colours.clamp(0, 1).repeat_interleave(8, 0).repeat_interleave(8, 1).numpy()
    return Picture(pixels, latents)


def test_nothing_known_shows_nothing() -> None:
    from workshop_gpu.worker.previews import PreviewMap

    assert PreviewMap().jpeg(linear_picture(1, 8, 8).latents, 64, 64) == b""


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (8, 24), (64, 48), (300, 10)])
def test_the_map_is_learned_from_one_finished_picture(rows: int, columns: int) -> None:
    from workshop_gpu.worker.previews import LONGEST_SIDE, PreviewMap

    previews = PreviewMap()
    previews.learn(linear_picture(1, 16, 16))
    unseen = linear_picture(2, rows, columns)
    jpeg = previews.jpeg(unseen.latents, 8 * rows, 8 * columns)
    height, width = shown(jpeg).shape[:2]
    assert max(height, width) == min(LONGEST_SIDE, 8 * max(rows, columns))
    assert likeness(jpeg, unseen) > 0.9


def test_latents_that_are_no_picture_show_nothing() -> None:
    import torch

    from workshop_gpu.worker.previews import PreviewMap

    previews = PreviewMap()
    previews.learn(linear_picture(1, 8, 8))
    for odd in (torch.full((1, 4, 8, 8), float("nan")), torch.zeros(1, 4, 2, 8, 8)):
        assert previews.jpeg(odd, 64, 64) == b""
    assert previews.jpeg(torch.zeros(1, 7, 8, 8), 64, 64) == b"", "other channels are not known"


def test_a_job_without_previews_for_0_4_seconds_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from workshop_gpu.worker import previews

    now = [100.0]
    monkeypatch.setattr(previews, "time", SimpleNamespace(monotonic=lambda: now[0]))
    picture = linear_picture(1, 8, 8)
    known = previews.PreviewMap()
    known.learn(picture)
    sketcher = previews.Sketcher(known, 64, 64)
    shown_at = []
    for index in range(20):
        now[0] += 0.125  # exact in binary
        scheduler = SimpleNamespace()
        step = previews.Step(index, 20, picture.latents, scheduler)
        if sketcher.sketch(step):
            shown_at.append(index)
    assert shown_at == [3, 7, 11, 15, 19]


@pytest.mark.parametrize("model", ["shapes", "shapes-dit"])
def test_a_shipped_models_preview_resembles_its_picture_halfway(model: str) -> None:
    from workshop_gpu.worker.components import OpenModel
    from workshop_gpu.worker.drawing import Step, draw
    from workshop_gpu.worker.noise import predicted_final
    from workshop_gpu.worker.previews import PreviewMap
    from workshop_gpu.worker.protocol import ModelSource

    pipeline = bare_pipeline(model)
    source = ModelSource(model, "diffusers", str(ASSETS / model))
    opened = OpenModel(source, pipeline, (), {})
    previews = PreviewMap()
    previews.guess_from_decoder(pipeline)
    (first,) = draw(opened, [params()], lambda step: None)
    before_any = previews.jpeg(first.latents, 128, 128)
    assert shown(before_any).shape == (128, 128, 3)
    previews.learn(*draw(opened, [params(steps=8, seed=1)], lambda step: None))
    steps: list[Step] = []
    (picture,) = draw(opened, [params(steps=8, seed=2)], steps.append)
    halfway = previews.jpeg(predicted_final(steps[3], steps[4]), 128, 128)
    final = previews.jpeg(predicted_final(steps[6], steps[7]), 128, 128)
    assert likeness(final, picture) > 0.8
    assert likeness(halfway, picture) > 0.6


def sampler_names() -> list[str]:
    return [
        "DDIMScheduler",
        "EulerDiscreteScheduler",
        "FlowMatchEulerDiscreteScheduler",
        "DPMSolverMultistepScheduler",
        "PNDMScheduler",
        "UniPCMultistepScheduler",
        "LCMScheduler",
        "EulerAncestralDiscreteScheduler",
    ]


@pytest.mark.parametrize("name", sampler_names())
def test_the_prediction_ends_at_the_final_latents_for_every_sampler(name: str) -> None:
    """A network that always predicts the same noise: the final latents are known beforehand."""
    import diffusers
    import torch

    from workshop_gpu.worker.drawing import Step
    from workshop_gpu.worker.noise import predicted_final

    scheduler = getattr(diffusers, name)()
    scheduler.set_timesteps(12)
    generator = torch.Generator().manual_seed(0)
    latents = torch.randn((1, 4, 4, 4), generator=generator)
    if hasattr(scheduler, "init_noise_sigma"):
        latents = latents * scheduler.init_noise_sigma
    prediction = torch.randn((1, 4, 4, 4), generator=generator) * 0.5
    steps: list[Step] = []
    for index, timestep in enumerate(scheduler.timesteps):
        if hasattr(scheduler, "scale_model_input"):
            scheduler.scale_model_input(latents, timestep)
        latents = scheduler.step(prediction, timestep, latents, return_dict=False)[0]
        steps.append(Step(index, len(scheduler.timesteps), latents, scheduler))
    last = predicted_final(steps[-2], steps[-1])
    torch.testing.assert_close(last.float(), latents.float(), rtol=0.15, atol=0.15)
    for before, step in pairwise(steps):
        assert predicted_final(before, step).isfinite().all()
    if name in ("DDIMScheduler", "EulerDiscreteScheduler", "FlowMatchEulerDiscreteScheduler"):
        early = predicted_final(steps[2], steps[3])
        torch.testing.assert_close(early.float(), latents.float(), rtol=0.05, atol=0.05)
