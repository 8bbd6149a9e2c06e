"""Where a picture is transparent, as a mask."""

import io

from workshop_gpu.conductor.errors import InvalidRequest
from workshop_gpu.host.picture_header import FORMATS

_HALF = 128


def transparent_as_white(content: bytes, field: str) -> bytes | None:
    """A PNG mask that is white where the picture is transparent; None where it is nowhere.

    The picture's header has been looked at. Blocking; raises InvalidRequest.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            if "A" not in image.getbands() and "transparency" not in image.info:
                return None
            alpha = image.convert("RGBA").getchannel("A")
    except (OSError, ValueError, SyntaxError) as problem:
        raise InvalidRequest(
            field, f"this picture cannot be read to its end ({problem}); send it again"
        ) from None
    mask = alpha.point(lambda value: 255 if value < _HALF else 0)
    if mask.getbbox() is None:
        return None
    file = io.BytesIO()
    mask.save(file, "PNG")
    return file.getvalue()
