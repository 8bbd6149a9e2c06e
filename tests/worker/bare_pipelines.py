"""The bare pipelines that the worker's pictures are compared with."""

from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image

from tests.worker.worker_host import ASSETS
from workshop_gpu.worker import protocol


@lru_cache(maxsize=3)
def bare_pipeline(model: str) -> Any:
    """The shipped model by the library's own loader, as a user without us would open it."""
    import diffusers
    import torch

    torch.set_num_threads(1)
    pipeline = diffusers.DiffusionPipeline.from_pretrained(
        str(ASSETS / model), torch_dtype=torch.float32, local_files_only=True
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def bare_picture(pipeline: Any, params: protocol.GenerateParams) -> Image.Image:
    """The picture that the bare pipeline's call gives for these parameters."""
    import torch

    image: Image.Image = pipeline(
        params.prompt,
        num_inference_steps=params.steps,
        guidance_scale=params.guidance,
        width=params.width,
        height=params.height,
        negative_prompt=params.negative_prompt or None,
        generator=torch.Generator().manual_seed(params.seed),
    ).images[0]
    return image


def same_pixels(one: Image.Image, other: Image.Image) -> bool:
    return one.mode == other.mode and np.array_equal(np.asarray(one), np.asarray(other))
