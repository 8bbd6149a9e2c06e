"""What the first bytes of a picture say, without decoding it: its format, its size, its turn.

Pillow is imported with the first picture: the server's start need not wait for it.
"""

import io
import warnings
from typing import TYPE_CHECKING

import msgspec

from workshop_gpu.conductor.errors import InvalidRequest

if TYPE_CHECKING:
    from PIL import Image

MOST_BYTES = 25_000_000
MOST_PIXELS = 40_000_000
LEAST_SIDE = 8
FORMATS = ("PNG", "JPEG", "WEBP")

_MAY_MOVE = ("PNG", "WEBP")
"""A JPEG with several pictures in it is a photo with its thumbnail or its depth."""
_ORIENTATION = 0x0112  # EXIF
_ON_ITS_SIDE = range(5, 9)


class Header(msgspec.Struct, frozen=True):
    """Pixels, of the picture turned upright."""

    width: int
    height: int


def read_header(content: bytes, field: str) -> Header:
    """Refuses what no job can begin with; `field` is what the message calls it. Raises
    InvalidRequest."""
    from PIL import Image, UnidentifiedImageError

    if len(content) > MOST_BYTES:
        raise InvalidRequest(
            field,
            f"{len(content) / 1e6:.0f} MB are too many; send at most {MOST_BYTES // 10**6} MB",
            size_bytes=len(content),
            limit_bytes=MOST_BYTES,
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                return _checked(image, field)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_many_pixels(field) from None
    except UnidentifiedImageError:
        raise InvalidRequest(field, "this is no picture; send a PNG, JPEG or WebP file") from None
    except (OSError, ValueError, SyntaxError) as problem:
        raise InvalidRequest(
            field, f"this picture cannot be read ({problem}); save it anew as PNG"
        ) from None


def _checked(image: "Image.Image", field: str) -> Header:
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise _too_many_pixels(field)
    if min(width, height) < LEAST_SIDE:
        raise InvalidRequest(
            field, f"{width} x {height} pixels are too few; each side must have {LEAST_SIDE}"
        )
    if image.format in _MAY_MOVE and getattr(image, "n_frames", 1) > 1:
        raise InvalidRequest(field, "this picture moves; send one frame of it")
    # Asked for EXIF that is not at its beginning, a PNG would be decoded.
    if "exif" in image.info and image.getexif().get(_ORIENTATION, 1) in _ON_ITS_SIDE:
        width, height = height, width
    return Header(width, height)


def _too_many_pixels(field: str) -> InvalidRequest:
    return InvalidRequest(
        field,
        f"this picture has too many pixels; send one of at most {MOST_PIXELS // 10**6} megapixels",
        max_pixels=MOST_PIXELS,
    )


def media_type(content: bytes) -> str:
    """Of a picture that `read_header` let pass."""
    if content.startswith(b"\x89PNG"):
        return "image/png"
    return "image/webp" if content[8:12] == b"WEBP" else "image/jpeg"
