"""What a picture begins with in the studio: a start image, how much of it is drawn anew, a mask."""

import math
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from io import BytesIO
from typing import Any

import traitlets
from PIL import Image

from workshop_gpu.client.errors import BadRequest
from workshop_gpu.client.inputs import upright
from workshop_gpu.client.widgets.options import StudioOptions

_PNG = "data:image/png;base64,"
_JPEG = "data:image/jpeg;base64,"
_SHOWN_PX = 1024
_MOST_CHARACTERS = 12_000_000
"""Of a picture from the browser, which makes larger ones smaller before it sends them."""


class StudioBeginning(StudioOptions):
    """`start_image` takes whatever `wg.generate` takes: a PIL image, a file, its bytes, an array;
    it is a PIL image then. `strength` None takes the default. `mask`, as large as the start image,
    is white where it is drawn anew."""

    start_image = traitlets.Any(None, allow_none=True)
    strength = traitlets.Float(None, allow_none=True).tag(sync=True)
    mask = traitlets.Any(None, allow_none=True)

    _start = traitlets.Dict().tag(sync=True)
    """The start image for the browser: data, width, height; empty where there is none."""
    _cover = traitlets.Dict().tag(sync=True)
    """The mask for the browser: data, and which view drew it ("": none did)."""
    _drawn_in = ""

    def _begin_with(self) -> dict[str, Any]:
        """The arguments of `Client.submit`."""
        if self.start_image is None:
            return {}
        return {
            "start_image": self.start_image,
            "strength": self.strength,
            "mask": self.mask if self.mask is not None and self.mask.getbbox() else None,
        }

    # wishes of the browser

    def _take_start_image(self, data: str) -> None:
        """Raises TraitError for what is no picture."""
        self.start_image = None if not data else _decoded(data)

    def _take_mask(self, data: str, view: str) -> None:
        """What was drawn in this view of the widget."""
        self._drawn_in = view
        try:
            self.mask = None if not data else _decoded(data)
        finally:
            self._drawn_in = ""

    # checks

    @traitlets.validate("start_image")
    def _check_start_image(self, proposal: Any) -> Image.Image | None:
        return _picture(proposal, "start_image", "white")

    @traitlets.validate("mask")
    def _check_mask(self, proposal: Any) -> Image.Image | None:
        mask = _picture(proposal, "mask", "black")
        if mask is None:
            return None
        start: Image.Image | None = self.start_image
        if start is None:
            raise traitlets.TraitError("mask: it goes with a start image; set start_image first.")
        if mask.size != start.size:
            raise traitlets.TraitError(
                f"mask: it has {mask.width} x {mask.height} pixels and the start image "
                f"{start.width} x {start.height}. Make both equally large."
            )
        return mask.convert("L")

    @traitlets.validate("strength")
    def _check_strength(self, proposal: Any) -> float | None:
        strength: float | None = proposal["value"]
        if strength is not None and not (math.isfinite(strength) and 0 < strength <= 1):
            raise traitlets.TraitError(
                f"strength={strength!r}: it must be above 0 and at most 1, or None for the default."
            )
        return strength

    @traitlets.observe("start_image")
    def _show_start_image(self, change: Any) -> None:
        """Another picture needs another mask."""
        self.mask = None
        image: Image.Image | None = change["new"]
        if image is None:
            self._start = {}
        else:
            size = {"width": image.width, "height": image.height}
            small = image.copy()
            small.thumbnail((_SHOWN_PX, _SHOWN_PX))
            self._start = {"data": _encoded(small, "JPEG", _JPEG), **size}

    @traitlets.observe("mask")
    def _show_mask(self, change: Any) -> None:
        mask: Image.Image | None = change["new"]
        data = "" if mask is None else _encoded(mask, "PNG", _PNG)
        self._cover = {"data": data, "view": self._drawn_in}


def _picture(proposal: Any, name: str, ground: str) -> Image.Image | None:
    if proposal["value"] is None:
        return None
    try:
        return upright(proposal["value"], name, ground)
    except BadRequest as problem:
        raise traitlets.TraitError(problem.message) from problem


def _encoded(image: Image.Image, kind: str, head: str) -> str:
    buffer = BytesIO()
    image.save(buffer, kind, quality=92)
    return head + b64encode(buffer.getvalue()).decode("ascii")


def _decoded(data: str) -> bytes:
    """The file in a data: URL. Raises TraitError."""
    head, _, body = data.partition(",")
    if len(data) > _MOST_CHARACTERS or not head.startswith("data:image/"):
        raise traitlets.TraitError("This is not a picture that can be begun with. Take another.")
    try:
        return b64decode(body, validate=True)
    except NotBase64:
        raise traitlets.TraitError("This picture did not arrive whole. Take it again.") from None
