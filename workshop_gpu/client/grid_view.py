"""A grid on the screen while it fills: HTML in a notebook, one line in a terminal."""

from base64 import b64encode
from html import escape
from io import BytesIO
from typing import Any

from tqdm import tqdm

from workshop_gpu.client.grid_plan import Cell, Plan, label, row_label
from workshop_gpu.client.images import GeneratedImage

_THUMBNAIL_PX = 192
_BOX = (
    "display:flex;align-items:center;justify-content:center;box-sizing:border-box;width:128px;"
    "min-height:128px;padding:6px;border-radius:4px;font-size:11px;text-align:center;"
    "overflow-wrap:anywhere;background:var(--jp-layout-color2,rgba(128,128,128,0.15))"
)
_BAD = "color:var(--jp-error-color1,#d32f2f);"
_LABEL = (
    "font-weight:normal;font-size:12px;text-align:left;vertical-align:bottom;max-width:160px;"
    "padding:2px 4px;overflow-wrap:anywhere;color:var(--jp-ui-font-color1,inherit)"
)
_LONGEST_LABEL = 90


class Thumbnails:
    """Small copies of a grid's pictures as data: URLs, made once."""

    def __init__(self) -> None:
        self._made: dict[int, str] = {}

    def of(self, image: GeneratedImage) -> str:
        known = self._made.get(id(image))
        if known is None:
            small = image.convert("RGB")
            small.thumbnail((_THUMBNAIL_PX, _THUMBNAIL_PX))
            buffer = BytesIO()
            small.save(buffer, "JPEG", quality=88)
            known = "data:image/jpeg;base64," + b64encode(buffer.getvalue()).decode("ascii")
            self._made[id(image)] = known
        return known


def html_of(plan: Plan, thumbnails: Thumbnails, line: str) -> str:
    """The contact sheet; `line` says below it how far it is."""
    sheet = _table(plan, thumbnails) if plan.rows else _strip(plan, thumbnails)
    status = f'<div role="status" style="opacity:0.75;font-size:90%">{escape(line)}</div>'
    return f'<div style="overflow-x:auto">{sheet}</div>{status}'


def _strip(plan: Plan, thumbnails: Thumbnails) -> str:
    """Where one thing varies: as many in a line as there is room for, each with its label."""
    columns = plan.columns
    figures = []
    for cell in plan.cells:
        words = label(columns.name, cell.values[columns.name]) if columns else ""
        caption = f'<figcaption style="{_LABEL};max-width:128px">{_short(words)}</figcaption>'
        figure = f"{_box(cell, thumbnails)}{caption if words else ''}"
        figures.append(f'<figure style="margin:0">{figure}</figure>')
    return f'<div style="display:flex;flex-wrap:wrap;gap:6px">{"".join(figures)}</div>'


def _table(plan: Plan, thumbnails: Thumbnails) -> str:
    columns = plan.columns
    assert columns is not None
    head = "".join(
        f'<th scope="col" style="{_LABEL}">{_short(label(columns.name, value))}</th>'
        for value in columns.values
    )
    rows = []
    for line in plan.lines():
        boxes = "".join(f'<td style="padding:3px">{_box(cell, thumbnails)}</td>' for cell in line)
        words = _short(row_label(plan.rows, line[0]))
        side = f'<th scope="row" style="{_LABEL};vertical-align:middle">{words}</th>'
        rows.append(f"<tr>{side}{boxes}</tr>")
    return (
        '<table style="border-collapse:collapse"><thead><tr><td></td>'
        f"{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _box(cell: Cell, thumbnails: Thumbnails) -> str:
    about = escape(", ".join(f"{n} {v}" for n, v in cell.values.items() if v is not None))
    if cell.image is not None:
        return (
            f'<img src="{thumbnails.of(cell.image)}" alt="{about}" title="{about}" '
            'style="display:block;width:128px;border-radius:4px">'
        )
    colour = _BAD if cell.problem is not None else "opacity:0.8;"
    return f'<div style="{_BOX};{colour}" title="{about}">{escape(cell.words[:200])}</div>'


def _short(text: str) -> str:
    shown = text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
    return f'<span title="{escape(text[:1000])}">{escape(shown)}</span>'


class NotebookGrid:
    """One HTML output that is changed in place, and stays."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._last = ""

    def show(self, html: str, text: str) -> None:
        from IPython.display import display  # scripts need no IPython

        if html == self._last:
            return
        self._last = html
        bundle = {"text/html": html, "text/plain": text}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)


class TerminalGrid:
    """tqdm on stderr."""

    def __init__(self, total: int) -> None:
        self._bar = tqdm(total=total, desc="Grid", unit="picture", leave=False, disable=None)

    def show(self, done: int) -> None:
        self._bar.n = done
        self._bar.refresh()

    def close(self) -> None:
        self._bar.close()
