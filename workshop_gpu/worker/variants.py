"""Pipelines that begin with a picture, around the components that a model's own pipeline has.

diffusers has a class for each task, named alike. An object of another class is made around the
very same modules for one call: nothing is loaded, copied or moved. (The library's own `from_pipe`
casts the modules, which must stay bound to the bytes that all placements share.)
"""

import importlib
import inspect
from typing import Any

from workshop_gpu.conductor import errors

diffusers: Any = importlib.import_module("diffusers")

_INPAINTS = {"unet": (4, 9), "transformer": (16, 33)}
"""The input channels that Stable Diffusion's inpainting pipelines know, by their denoiser."""
_CHOOSY = ("StableDiffusionPipeline", "StableDiffusionXLPipeline", "StableDiffusion3Pipeline")


def variant_class(model: str, pipeline: Any, *, masked: bool) -> Any:
    """The class that begins with a picture, or with a masked one. Raises ImagesNotAccepted."""
    base = type(pipeline).__name__
    ending = "InpaintPipeline" if masked else "Img2ImgPipeline"
    found = getattr(diffusers, base.removesuffix("Pipeline") + ending, None)
    wanted = {"image", "strength", *(("mask_image",) if masked else ())}
    if not inspect.isclass(found) or not wanted <= _parameters(found.__call__).keys():
        raise errors.ImagesNotAccepted(model, "masks" if masked else "start images")
    if masked and base in _CHOOSY and not _can_inpaint(pipeline):
        raise errors.ImagesNotAccepted(model, "masks")
    return found


def variant_of(pipeline: Any, cls: Any, scheduler: Any) -> Any:
    """A pipeline of this class around the same components, with this scheduler.

    Its constructor may correct the scheduler's configuration, so that must not be a shared one.
    """
    offered = {**pipeline.config, **pipeline.components, "scheduler": scheduler}
    names = _parameters(cls.__init__).keys() & offered.keys()
    variant = cls(**{name: offered[name] for name in names})
    variant.set_progress_bar_config(disable=True)
    return variant


def _parameters(function: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


def _can_inpaint(pipeline: Any) -> bool:
    for name, channels in _INPAINTS.items():
        denoiser = getattr(pipeline, name, None)
        if denoiser is not None:
            return denoiser.config.in_channels in channels
    return False
