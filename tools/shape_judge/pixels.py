"""Finds the ground and the things on it in a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from skimage import measure as _untyped_measure

from shape_judge.templates import RADII, FloatImage, best_match

NAMED: Final[dict[str, tuple[int, int, int]]] = {
    "red": (220, 40, 40),
    "orange": (245, 140, 30),
    "yellow": (250, 220, 50),
    "green": (40, 160, 70),
    "cyan": (60, 200, 220),
    "blue": (40, 80, 210),
    "purple": (130, 60, 180),
    "pink": (245, 140, 190),
    "white": (250, 250, 250),
    "black": (25, 25, 25),
}
"""What the ten colour words mean here."""

COLOUR_TOLERANCE: Final = 40.0
"""A colour farther than this from its name's (in RGB) is no colour of ours."""

_measure: Any = _untyped_measure
_APART = 40.0
_SPECK_PX = 50

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Found:
    """One thing in a picture; centre and radius in pixels."""

    shape: str
    overlap: float
    colour: str | None
    x: float
    y: float
    radius: float
    uneven: float


@dataclass(frozen=True)
class Sight:
    """All that is seen: `specks_px` counts pixels that belong to neither ground nor things, and
    `uneven` is the largest spread of any flat area's colour (0 to 255)."""

    ground: str | None
    things: tuple[Found, ...]
    specks_px: int
    uneven: float


def name_of(colour: FloatImage) -> str | None:
    """The nearest of the ten names, or None if none is near."""
    gaps = {name: float(np.linalg.norm(colour - np.array(rgb))) for name, rgb in NAMED.items()}
    nearest = min(gaps, key=lambda name: gaps[name])
    return nearest if gaps[nearest] < COLOUR_TOLERANCE else None


def look(picture: Bytes) -> Sight:
    """Looks at a picture [h, w, 3]."""
    pixels = picture.astype(float)
    edge = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    ground = np.median(edge, axis=0)
    away = np.linalg.norm(pixels - ground, axis=-1)
    regions = _measure.label(away > _APART, connectivity=2)
    things, specks = [], 0
    for region in _measure.regionprops(regions):
        top, left, bottom, right = region.bbox
        box = np.s_[top:bottom, left:right]
        inside = regions[box] == region.label
        found = _thing(pixels[box], inside, ground, (left, top)) if region.area > 0 else None
        if found is None:
            specks += int(region.area)
        else:
            things.append(found)
    still = away <= _APART / 2
    spread = float(pixels[still].std(0).max()) if still.any() else 0.0
    uneven = max([spread, *(thing.uneven for thing in things)])
    return Sight(name_of(ground), tuple(things), specks, uneven)


def _thing(
    pixels: FloatImage, inside: npt.NDArray[np.bool_], ground: FloatImage, corner: tuple[int, int]
) -> Found | None:
    """Reads one region; None if it is only a speck."""
    if inside.sum() < _SPECK_PX:
        return None
    away = np.linalg.norm(pixels - ground, axis=-1)
    core = inside & (away > 0.75 * np.percentile(away[inside], 75))
    colour = np.median(pixels[core], axis=0)
    line = colour - ground
    cover = np.clip((pixels - ground) @ line / (line @ line), 0, 1) * inside
    rows, columns = np.where(cover > 0.5)
    if len(rows) < _SPECK_PX:
        return None
    cut = cover[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    match = best_match(cut)
    height, width = cut.shape
    flat = pixels[inside & (cover > 0.95)]
    return Found(
        match.shape,
        match.overlap,
        name_of(colour),
        corner[0] + float(columns.min() + columns.max()) / 2,
        corner[1] + float(rows.min() + rows.max()) / 2,
        max(height, width) / 2 / RADII[match.shape],
        float(flat.std(0).max()) if len(flat) else 0.0,
    )
