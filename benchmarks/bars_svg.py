"""Panels of horizontal bars with their figures, as an SVG for the documentation."""

from collections.abc import Sequence
from html import escape

import msgspec

_WIDTH, _LABEL, _FIGURE, _BAR, _HEAD, _GAP = 460, 140, 60, 18, 30, 16


class Panel(msgspec.Struct, frozen=True):
    """Bars under a title; the one that is `marked` is ours. `most` is the full length of a bar (0:
    the largest of these)."""

    title: str
    bars: tuple[tuple[str, float], ...]
    marked: str = ""
    most: float = 0.0

    @property
    def height(self) -> int:
        return _HEAD + _BAR * len(self.bars) + _GAP


def picture(panels: Sequence[Panel], columns: int) -> str:
    """The panels in rows of so many columns; each has a scale that begins at 0."""
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    parts, top = [], 0
    for row in rows:
        for column, panel in enumerate(row):
            parts += _panel(panel, column * _WIDTH, top)
        top += max(panel.height for panel in row)
    size = f'width="{columns * _WIDTH}" height="{top}" viewBox="0 0 {columns * _WIDTH} {top}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    )
    return "\n".join(
        [head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""]
    )


def _panel(panel: Panel, left: int, top: int) -> list[str]:
    most = panel.most or max((value for _, value in panel.bars), default=0.0) or 1.0
    room = _WIDTH - _LABEL - _FIGURE - _GAP
    parts = [_text(left + _GAP, top + 20, panel.title, 'font-weight="bold"')]
    for number, (name, value) in enumerate(panel.bars):
        y, length = top + _HEAD + number * _BAR, room * value / most
        colour = "#0b6e4f" if name == panel.marked else "#9aa5b1"
        parts += [
            _text(left + _GAP, y + 12, name),
            f'<rect x="{left + _LABEL}" y="{y + 2}" width="{length:.1f}" height="{_BAR - 5}" '
            f'fill="{colour}"/>',
            _text(left + _LABEL + round(length) + 6, y + 12, f"{value:.3g}"),
        ]
    return parts


def _text(x: int, y: int, text: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" fill="#1f2933" {more}>{escape(text)}</text>'
