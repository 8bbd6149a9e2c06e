"""Seconds a step against memory on the GPU, as an SVG."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _LEFT, _TOP, _RIGHT, _BOTTOM = 1020, 60, 20, 510, 50
_PLOT_HEIGHT = 350
_TICKS = 4
_LINE = 15
"""Between two rows of the list, which may not cover each other."""
_RADIUS = 4
_DASH = 9
"""Half of a limit's width."""
_DIGIT_WIDTH, _NUMBER_HEIGHT = 6.5, 10
_MOST_RINGS = 12
"""So many times further from its point a number may go to find a free place."""


OURS = "#0b6e4f"


class Point(NamedTuple):
    """One measurement; a dash marks the `limit_s` that holds there (None: not known)."""

    name: str
    size_bytes: int
    step_s: float
    limit_s: float | None = None
    colour: str = OURS


class _Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "_Box") -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


def picture(points: Sequence[Point], told: str = "") -> str:
    """Both axes begin at 0; `told` stands behind what they are. Each point has a number, by which
    the list at the right tells its name and figures: many rungs take about the same."""
    points = sorted(points, key=lambda each: (each.size_bytes, each.step_s))
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
    places = [place(point) for point in points]
    limits = [
        (x, at(point.limit_s))
        for point, (x, _) in zip(points, places, strict=True)
        if point.limit_s is not None
    ]
    parts += _numbers(places, [_Box(x - _DASH, y - 1, x + _DASH, y + 1) for x, y in limits])
    parts += [_line(x - _DASH, y, x + _DASH, y, "#1f2933") for x, y in limits]
    for number, (point, (x, y)) in enumerate(zip(points, places, strict=True), 1):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}" fill="{point.colour}"/>')
        size = f"{point.size_bytes / unit_bytes:.1f} {unit}"
        parts += _row(number, point.colour, size, f"{point.step_s:.3f} s", point.name)
    title = f"{unit} on the GPU; seconds a step{told}"
    parts.append(_text(_LEFT, height - 8, title))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" role="img" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="11">'
    )
    titled = f"<title>{escape(title)}</title>"
    white = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, titled, white, *parts, "</svg>", ""])


def _row(number: int, colour: str, *texts: str) -> Iterator[str]:
    """One of the list: number, memory, seconds, name."""
    y, left = _TOP + _LINE * (number - 0.5), _WIDTH - _RIGHT
    yield _text(left + 34, y + 4, str(number), "end", colour)
    for x, anchor, text in zip((88, 140, 152), ("end", "end", "start"), texts, strict=True):
        yield _text(left + x, y + 4, text, anchor)


def _numbers(places: Sequence[tuple[float, float]], dashes: Sequence[_Box]) -> Iterator[str]:
    """Each point's number beside it; where others are in the way further off, with a line."""
    taken = [_Box(x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS) for x, y in places]
    taken += dashes
    for number, (x, y) in enumerate(places, 1):
        wide = _DIGIT_WIDTH * len(str(number))
        found, ring = _free_place(x, y, wide, taken)
        taken.append(found)
        middle_x, middle_y = (found.left + found.right) / 2, (found.top + found.bottom) / 2
        if ring > 1:
            yield _line(x, y, middle_x, middle_y)
        yield _text(middle_x, found.bottom - 1, str(number), "middle")


def _free_place(x: float, y: float, wide: float, taken: Sequence[_Box]) -> tuple[_Box, int]:
    """The first that nothing else has, on rings around the point; beside it if there is none."""
    for ring in range(1, _MOST_RINGS + 1):
        for turn in range(8 * ring):
            angle = math.tau * (turn / (8 * ring) - 1 / 8)
            far = _RADIUS + _NUMBER_HEIGHT * (ring - 0.3)
            box = _box(x + far * math.cos(angle), y + far * math.sin(angle), wide)
            if not any(map(box.meets, taken)):
                return box, ring
    return _box(x + _NUMBER_HEIGHT, y, wide), 1


def _box(x: float, y: float, wide: float) -> _Box:
    return _Box(x - wide / 2, y - _NUMBER_HEIGHT / 2, x + wide / 2, y + _NUMBER_HEIGHT / 2)


def _tick(most: float) -> float:
    """A round number, so that the axis has room for this much."""
    power = 10.0 ** math.floor(math.log10(most / _TICKS))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power * _TICKS >= most)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = "#d5dae1") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = "#1f2933") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}'
        "</text>"
    )
