"""`grid.compare()`: pairs of pictures that lie on each other, under one slider."""

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from io import BytesIO
from typing import Any

import anywidget
import traitlets

from workshop_gpu.client.grid_plan import Axis, Cell, Value, row_label
from workshop_gpu.client.images import GeneratedImage
from workshop_gpu.client.widgets.scripts import script, style

_MOST_PX = 768


class Compare(anywidget.AnyWidget):
    """Left of `position` (a per cent of the width) the one picture shows, right of it the other.

    Where widgets are not shown, the pictures of each pair stand side by side.
    """

    _esm = script("compare.js")
    _css = style("compare.css")

    position = traitlets.Float(50.0, min=0.0, max=100.0).tag(sync=True)
    _names = traitlets.List(trait=traitlets.Unicode()).tag(sync=True)
    _pairs = traitlets.List(trait=traitlets.Dict()).tag(sync=True)

    def __init__(
        self,
        axis: Axis,
        values: tuple[Value, Value],
        varied: Sequence[Axis],
        pairs: Sequence[tuple[Cell, Cell]],
    ) -> None:
        names = [_name(axis.name, value) for value in values]
        super().__init__(
            _names=names,
            _pairs=[
                {
                    "label": row_label(varied, left),
                    "left": _data_url(left.image),
                    "right": _data_url(right.image),
                }
                for left, right in pairs
            ],
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        if data is not None:
            data["text/html"] = self._html()
        return bundle

    def _html(self) -> str:
        rows = []
        for pair in self._pairs:
            images = "".join(
                f'<td><img src="{pair[side]}" alt="{escape(name)}" style="max-width:256px"></td>'
                for side, name in zip(("left", "right"), self._names, strict=True)
            )
            rows.append(f"<tr><th>{escape(pair['label'])}</th>{images}</tr>")
        head = "".join(f"<th>{escape(name)}</th>" for name in self._names)
        return (
            f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        )


def _name(axis: str, value: Value) -> str:
    return str(value) if axis in ("model", "prompt") else f"{axis} {value}"


def _data_url(image: GeneratedImage | None) -> str:
    assert image is not None
    small = image.convert("RGB")
    small.thumbnail((_MOST_PX, _MOST_PX))
    buffer = BytesIO()
    small.save(buffer, "JPEG", quality=92)
    return "data:image/jpeg;base64," + b64encode(buffer.getvalue()).decode("ascii")
