"""Pictures to begin with: whatever people have, as the PNG file that is sent, and sent once."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from os import PathLike
from typing import Any, Protocol

from PIL import Image, ImageOps

from workshop_gpu.client.errors import BadRequest
from workshop_gpu.client.images import opened

MOST_PIXELS = 2048 * 2048
"""A larger picture is made smaller before it is sent: no model draws so large a one."""


class Array(Protocol):
    """What numpy's arrays, and those of its kin, are."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


Picture = Image.Image | bytes | str | PathLike[str] | Array
"""A picture: PIL's, a file's bytes, a file's path, or an array (height x width, x 3 or 4)."""


@dataclass(frozen=True)
class Beginning:
    """PNG files to begin with; None: nothing."""

    start_image: bytes | None = None
    mask: bytes | None = None


def beginning(start_image: Picture | None, mask: Picture | None) -> Beginning:
    """The files for a start image and a mask. Raises BadRequest."""
    if start_image is None:
        if mask is None:
            return Beginning()
        raise _bad("mask", "it goes with a start image; give start_image=… too.")
    image = upright(start_image, "start_image", "white").convert("RGB")
    if mask is None:
        return Beginning(_png(image))
    cover = upright(mask, "mask", "black").convert("L")
    if cover.size != image.size:
        raise _bad(
            "mask",
            f"it has {cover.width} x {cover.height} pixels and the start image "
            f"{image.width} x {image.height}. Make both equally large, such as with "
            "mask.resize(image.size).",
        )
    if cover.point(lambda value: 255 if value >= 128 else 0).getbbox() is None:
        raise _bad(
            "mask", "it is black all over, so nothing would change. Paint white what should."
        )
    return Beginning(_png(image), _png(cover))


def upright(source: Picture, name: str, ground: str) -> Image.Image:
    """The picture, turned as its EXIF says, on a ground of this colour where it is transparent.

    Raises BadRequest for what is no picture, or one that moves.
    """
    image = _opened(source, name)
    try:
        image.load()
        image = ImageOps.exif_transpose(image)
        if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
            above = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", above.size, ground), above)
        return image.convert("RGB")
    except (OSError, ValueError, SyntaxError) as problem:
        raise _bad(
            name, f"the picture cannot be read to its end ({problem}). Save it anew."
        ) from problem


def _opened(source: Any, name: str) -> Image.Image:
    if isinstance(source, Image.Image):
        return source
    if hasattr(source, "__array_interface__"):
        try:
            return Image.fromarray(source)
        except (TypeError, ValueError) as problem:
            raise _bad(
                name, f"this array is no picture ({problem}). Give whole numbers from 0 to 255 "
                "(dtype uint8), height x width x 3."
            ) from problem  # fmt: skip
    image = opened(source, name)
    if image.format in ("PNG", "WEBP", "GIF") and getattr(image, "n_frames", 1) > 1:
        raise _bad(name, "this picture moves. Give one frame of it, such as its first.")
    return image


def _png(image: Image.Image) -> bytes:
    pixels = image.width * image.height
    if pixels > MOST_PIXELS:
        scale = (MOST_PIXELS / pixels) ** 0.5
        size = (max(1, int(image.width * scale)), max(1, int(image.height * scale)))
        image = image.resize(size, Image.Resampling.LANCZOS)
    buffer = BytesIO()
    image.save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()


def _bad(field: str, problem: str) -> BadRequest:
    return BadRequest("invalid_request", f"{field}: {problem}", {"field": field})


class Sent:
    """What the server has from us already: a file is sent once, and goes by its SHA-256."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._ids: set[str] = set()

    def id_of(self, content: bytes | None) -> str:
        """The file's id, once it is on the server; "" for none."""
        if content is None:
            return ""
        input_id = hashlib.sha256(content).hexdigest()
        if input_id not in self._ids:
            self._send(content)
            self._ids.add(input_id)
        return input_id

    def forget(self) -> None:
        """The server does not have them any more."""
        self._ids.clear()
