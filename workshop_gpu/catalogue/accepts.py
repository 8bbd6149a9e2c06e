"""What a pipeline makes pictures from, by its folder: text, also a start image, also a mask.

The worker has the last word, since only it knows what the installed library can. What is not known
(a single file, a model that is not downloaded yet) counts as able, and is refused there.
"""

from pathlib import Path

from workshop_gpu.catalogue.pipeline_folder import (
    Incomplete,
    Refused,
    component_config,
    pipeline_class,
)

TEXT, IMAGE, MASK = "text", "image", "mask"
EVERYTHING = (TEXT, IMAGE, MASK)

_BY_CLASS = {
    "StableDiffusionPipeline": EVERYTHING,
    "StableDiffusionXLPipeline": EVERYTHING,
    "StableDiffusion3Pipeline": EVERYTHING,
    "FluxPipeline": EVERYTHING,
    "QwenImagePipeline": EVERYTHING,
    "ZImagePipeline": EVERYTHING,
    "KolorsPipeline": (TEXT, IMAGE),
    "Kandinsky3Pipeline": (TEXT, IMAGE),
    "LatentConsistencyModelPipeline": (TEXT, IMAGE),
}
"""Beside these classes diffusers has one with "Img2Img" (and one with "Inpaint") in its name."""

_INPAINTS = {
    "StableDiffusionPipeline": ("unet", (4, 9)),
    "StableDiffusionXLPipeline": ("unet", (4, 9)),
    "StableDiffusion3Pipeline": ("transformer", (16, 33)),
}
"""The input channels that these pipelines can inpaint with."""


def accepts(path: Path) -> tuple[str, ...]:
    """For a pipeline folder or a single file."""
    if not path.is_dir():
        return EVERYTHING
    try:
        name = pipeline_class(path)
    except (Incomplete, Refused, OSError):
        return (TEXT,)
    known = _BY_CLASS.get(name, (TEXT,))
    if MASK in known and name in _INPAINTS:
        denoiser, channels = _INPAINTS[name]
        if _in_channels(path / denoiser) not in channels:
            return (TEXT, IMAGE)
    return known


def _in_channels(denoiser: Path) -> int:
    try:
        return int(component_config(denoiser)["in_channels"])
    except (ValueError, KeyError, TypeError):
        return 0
