"""Seconds a step against GB on the GPU, as an SVG."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 760, 420, 70, 20, 230, 50
_TICKS = 4


class Point(NamedTuple):
    """One measurement."""

    name: str
    size_bytes: int
    step_s: float


def picture(points: Sequence[Point]) -> str:
    """Both axes begin at 0."""
    most_bytes = max((point.size_bytes for point in points), default=0) or 1
    most_s = max((point.step_s for point in points), default=0.0) or 1.0
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    parts = []
    for tick in range(_TICKS + 1):
        x, y = _LEFT + wide * tick / _TICKS, _TOP + high * (1 - tick / _TICKS)
        parts.append(_text(x - 14, _HEIGHT - 28, f"{most_bytes * tick / _TICKS / 1e9:.3g}"))
        parts.append(_text(8, y + 4, f"{most_s * tick / _TICKS:.3g} s"))
        parts.append(
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + wide}" y2="{y:.1f}" stroke="#dfe3e8"/>'
        )
    for point in points:
        x = _LEFT + wide * point.size_bytes / most_bytes
        y = _TOP + high * (1 - point.step_s / most_s)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#0b6e4f"/>')
        parts.append(_text(x + 8, y + 4, point.name))
    parts.append(_text(_LEFT + wide / 2 - 50, _HEIGHT - 8, "GB on the GPU; seconds a step"))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="11">'
    )
    white = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, white, *parts, "</svg>", ""])


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="#1f2933">{escape(text)}</text>'
