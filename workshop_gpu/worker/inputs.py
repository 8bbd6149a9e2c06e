"""The pictures that a job begins with: read, turned upright, brought to the job's size.

Only here are they decoded; the server has looked at their headers.
"""

from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageOps

from workshop_gpu.conductor import errors
from workshop_gpu.worker.protocol import GenerateParams, InputFiles

FORMATS = ("PNG", "JPEG", "WEBP")


@dataclass(frozen=True)
class Inputs:
    """A start image (RGB) and, where only a part of it is drawn anew, a mask (L, white: anew)."""

    image: Image.Image
    mask: Image.Image | None = None


def read_inputs(files: InputFiles, params: GenerateParams) -> Inputs | None:
    """What the job begins with, in its width and height; None for one that begins with nothing.

    A picture of another shape is scaled until it covers the job's size, and cut to it evenly on
    both sides. What is transparent is white in a start image and black in a mask. Raises
    InvalidRequest.
    """
    if not files.start_image:
        return None
    size = (params.width, params.height)
    image = _upright(files.start_image, "start_image", "white").convert("RGB")
    mask = None
    if files.mask:
        mask = _upright(files.mask, "mask", "black").convert("L")
        if mask.size != image.size:
            raise errors.InvalidRequest(
                "mask",
                f"it has {mask.width} x {mask.height} pixels and the start image {image.width} x "
                f"{image.height}; make both equally large",
            )
        mask = _fitted(mask, size)
        if mask.getextrema()[1] < 128:  # type: ignore[operator]  # of L it is a pair of numbers
            raise errors.InvalidRequest(
                "mask", "it is black all over, so nothing would change; paint white what should"
            )
    return Inputs(_fitted(image, size), mask)


def _upright(path: str, field: str, ground: str) -> Image.Image:
    """The first picture of a file, turned as its EXIF says, on a ground where it is transparent."""
    try:
        with Image.open(Path(path), formats=FORMATS) as opened:
            opened.load()
            upright = ImageOps.exif_transpose(opened)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as problem:
        raise errors.InvalidRequest(
            field, f"the file cannot be read to its end ({problem}); send it again"
        ) from None
    if upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
        above = upright.convert("RGBA")
        below = Image.new("RGBA", above.size, ground)
        return Image.alpha_composite(below, above).convert("RGB")
    return upright.convert("RGB")


def _fitted(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    if image.size == size:
        return image
    return ImageOps.fit(image, size, Image.Resampling.LANCZOS)
