"""Seconds a step against memory on the GPU, as an SVG."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _LEFT, _TOP, _RIGHT, _BOTTOM = 880, 70, 20, 330, 50
_PLOT_HEIGHT = 350
_TICKS = 4
_LINE = 14
"""Between two names, which may not cover each other."""


OURS = "#0b6e4f"


class Point(NamedTuple):
    """One measurement; a dash marks the `limit_s` that holds there (None: not known)."""

    name: str
    size_bytes: int
    step_s: float
    limit_s: float | None = None
    colour: str = OURS


def picture(points: Sequence[Point], told: str = "") -> str:
    """Both axes begin at 0; `told` stands behind what they are. The names stand in a column at the
    right, each with a line to its point: many rungs take about the same."""
    most_bytes = max((point.size_bytes for point in points), default=0) or 1
    unit, unit_bytes = ("GB", 10**9) if most_bytes >= 10**9 else ("MB", 10**6)
    tick_x = _tick(most_bytes / unit_bytes)
    tick_y = _tick(max((point.step_s for point in points), default=0.0) or 1.0)
    wide, high = _WIDTH - _LEFT - _RIGHT, max(_PLOT_HEIGHT, _LINE * len(points))
    height = high + _TOP + _BOTTOM

    def at(step_s: float) -> float:
        return _TOP + high * (1 - step_s / tick_y / _TICKS)

    def place(point: Point) -> tuple[float, float]:
        x = _LEFT + wide * point.size_bytes / unit_bytes / tick_x / _TICKS
        return x, at(point.step_s)

    parts = []
    for tick in range(_TICKS + 1):
        x, y = _LEFT + wide * tick / _TICKS, _TOP + high * (1 - tick / _TICKS)
        parts.append(_text(x, height - 28, f"{tick_x * tick:.4g}", "middle"))
        parts.append(_text(_LEFT - 8, y + 4, f"{tick_y * tick:.4g} s", "end"))
        parts.append(_line(_LEFT, y, _LEFT + wide, y))
    placed = sorted(((point, *place(point)) for point in points), key=lambda each: each[2])
    column = _LEFT + wide + 24
    for (point, x, y), label_y in zip(placed, _apart([y for _, _, y in placed], high), strict=True):
        parts.append(_line(x, y, column - 4, label_y))
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{point.colour}"/>')
        if point.limit_s is not None:
            limit_y = at(point.limit_s)
            parts.append(_line(x - 9, limit_y, x + 9, limit_y, "#1f2933"))
        parts.append(_text(column, label_y + 4, point.name))
    title = f"{unit} on the GPU; seconds a step{told}"
    parts.append(_text(_LEFT + wide / 2, height - 8, title, "middle"))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" role="img" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="11">'
    )
    titled = f"<title>{escape(title)}</title>"
    white = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, titled, white, *parts, "</svg>", ""])


def _tick(most: float) -> float:
    """A round number, so that the axis has room for this much."""
    power = 10.0 ** math.floor(math.log10(most / _TICKS))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power * _TICKS >= most)


def _apart(wanted: list[float], high: float) -> list[float]:
    """Heights near these, from above to below, that are a line apart and within the plot."""
    found: list[float] = []
    for y in wanted:
        found.append(max(y, found[-1] + _LINE) if found else y)
    lowest = _TOP + high
    for i in reversed(range(len(found))):
        found[i] = min(found[i], lowest)
        lowest = found[i] - _LINE
    return found


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = "#d5dae1") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#1f2933">{escape(text)}</text>'
    )
