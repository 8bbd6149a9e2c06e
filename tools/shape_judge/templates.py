"""What each shape looks like, as polygons drawn by Pillow, and which one an outline fits best."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

FloatImage = npt.NDArray[np.float64]

SIDE: Final = 64
_FINE: Final = 8

RADII: Final = {
    "circle": 0.95,
    "square": 0.84,
    "triangle": 1.0,
    "star": 0.95,
    "heart": 1.0,
    "hexagon": 0.98,
    "cross": 0.93,
    "ring": 0.95,
}
"""Half of each shape's longer side, in radii: a square of radius 20 is 33.6 px wide."""

_INNER_OF_RING: Final = 0.45 / 0.95


@dataclass(frozen=True)
class Match:
    """The shape that fits best; `overlap` is intersection over union, 1 for a perfect fit."""

    shape: str
    overlap: float


def _polar(angle: float, radius: float = 1.0) -> tuple[float, float]:
    return radius * math.sin(angle), -radius * math.cos(angle)


def _heart() -> list[tuple[float, float]]:
    """A square standing on its corner with a half disc on each of its upper sides."""
    radius = math.sqrt(2) / 4
    turns = [-math.pi / 4 + math.pi * k / 48 for k in range(49)]
    lobe = [(0.25 + radius * math.cos(t), -0.75 - radius * math.sin(t)) for t in turns]
    return [(0.0, 0.0), *lobe, *[(-x, y) for x, y in reversed(lobe)]]


def _outline(shape: str) -> list[tuple[float, float]]:
    arm = 0.32 / 0.93
    if shape == "square":
        return [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    if shape == "triangle":
        return [(0, -1), (1, 0.75), (-1, 0.75)]
    if shape == "star":
        return [_polar(math.pi * k / 5, 0.45 if k % 2 else 1) for k in range(10)]
    if shape == "heart":
        return _heart()
    if shape == "hexagon":
        return [_polar(math.pi / 2 + math.pi * k / 3) for k in range(6)]
    if shape == "cross":
        quarter = [(arm, -1.0), (arm, -arm), (1.0, -arm)]
        points: list[tuple[float, float]] = []
        for _ in range(4):
            points += quarter
            quarter = [(-y, x) for x, y in quarter]
        return points
    return [_polar(math.pi * k / 60) for k in range(120)]


def _template(shape: str) -> tuple[FloatImage, float]:
    """Coverage [64, 64] of the shape stretched to its bounding box, and width over height."""
    points = np.array(_outline(shape))
    low, high = points.min(0), points.max(0)
    side = SIDE * _FINE
    stretched = (points - low) / (high - low) * (side - 1)
    picture = Image.new("L", (side, side))
    pen = ImageDraw.Draw(picture)
    pen.polygon([(float(x), float(y)) for x, y in stretched], fill=255)
    if shape == "ring":
        inner = _INNER_OF_RING * side / 2
        pen.ellipse([side / 2 - inner, side / 2 - inner, side / 2 + inner, side / 2 + inner], 0)
    small = picture.resize((SIDE, SIDE), Image.Resampling.BOX)
    width, height = high - low
    return np.asarray(small) / 255.0, float(width / height)


_TEMPLATES: Final = {shape: _template(shape) for shape in RADII}


def best_match(cover: FloatImage) -> Match:
    """`cover` [h, w] is how much of each pixel the shape fills, cut to its bounding box."""
    height, width = cover.shape
    picture = Image.fromarray((cover * 255).astype(np.uint8))
    stretched = np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR)) / 255.0
    best, best_score = Match("circle", 0.0), -1.0
    for shape, (template, aspect) in _TEMPLATES.items():
        overlap = np.minimum(stretched, template).sum() / np.maximum(stretched, template).sum()
        skew = abs(math.log(width / height / aspect))
        score = overlap - 0.4 * max(0.0, skew - 0.05)
        if score > best_score:
            best, best_score = Match(shape, float(overlap)), score
    return best
