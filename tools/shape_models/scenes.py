"""Scenes: one or two shapes on a plain ground, with sizes and places. No drawing here."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shape_models.words import (
    COLOURS,
    PLACES,
    RELATIONS,
    SHAPES,
    SIZE_PX,
    SIZES,
    default_ground,
)

RADII_PX = {"small": (14.0, 17.0), "medium": (19.5, 22.5), "big": (26.0, 28.5)}
"""Smallest and largest radius of each size: the gaps between them are what makes sizes words."""

EDGE_PX = 3.0
"""No shape comes nearer to the picture's edge than this."""

PACKED = 11
"""Numbers in a packed scene: the ground, then five for each of two things."""

TWO_THINGS = 0.65
"""Share of scenes with two things: they are the harder ones."""


@dataclass(frozen=True)
class Thing:
    """One shape in a picture; centre and radius in pixels, y downwards."""

    shape: str
    colour: str
    size: str
    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class Scene:
    """What a picture shows. `relation` says where the first thing is, seen from the second."""

    ground: str
    things: tuple[Thing, ...]
    place: str | None
    relation: str | None


def _look(rng: random.Random, ground: str) -> tuple[str, str, str]:
    colour = rng.choice([c for c in COLOURS if c != ground])
    return rng.choice(SHAPES), colour, rng.choice(("small", "medium", "medium", "big"))


def draw_scene(rng: random.Random, things: int | None = None) -> Scene:
    """A random scene of `things` things (one or two; drawn when None)."""
    count = things or (2 if rng.random() < TWO_THINGS else 1)
    ground = rng.choice(COLOURS)
    looks = [_look(rng, ground) for _ in range(count)]
    if count == 2 and rng.random() < 0.5:
        # Most people ask for two things that differ in everything.
        while looks[1][0] == looks[0][0] or looks[1][1] == looks[0][1]:
            looks[1] = _look(rng, ground)
    if rng.random() < 0.3:
        # Prompts that name no ground are only made for scenes on the ground they stand for.
        ground = default_ground(tuple(colour for _, colour, _ in looks))
    radii = [rng.uniform(*RADII_PX[size]) for _, _, size in looks]
    if count == 1:
        return _single(rng, ground, looks[0], radii[0])
    return _pair(rng, ground, looks, radii)


def _single(rng: random.Random, ground: str, look: tuple[str, str, str], radius: float) -> Scene:
    place = "middle" if rng.random() < 0.5 else rng.choice(PLACES[:4])
    half = SIZE_PX / 2
    x, y = half + rng.uniform(-5, 5), half + rng.uniform(-5, 5)
    offset = half - radius - EDGE_PX - 1 - rng.uniform(0, min(8, half - radius - 22))
    if place in ("left", "right"):
        x = half + (offset if place == "right" else -offset)
    if place in ("top", "bottom"):
        y = half + (offset if place == "bottom" else -offset)
    return Scene(ground, (Thing(*look, x, y, radius),), place, None)


def _pair(
    rng: random.Random,
    ground: str,
    looks: list[tuple[str, str, str]],
    radii: list[float],
) -> Scene:
    relation = rng.choice(RELATIONS)
    along = [0, 1] if relation in ("left", "above") else [1, 0]
    free = SIZE_PX - 2 * sum(radii) - 2 * EDGE_PX
    gap = min(free, rng.uniform(6, 16))
    slack = free - gap
    start = EDGE_PX + slack / 2 + rng.uniform(-1, 1) * min(slack / 2, 8)
    centres = [0.0, 0.0]
    for index in along:
        centres[index] = start + radii[index]
        start += 2 * radii[index] + gap
    placed = []
    for look, radius, centre in zip(looks, radii, centres, strict=True):
        across = SIZE_PX / 2 + rng.uniform(-7, 7)
        x, y = (centre, across) if relation in ("left", "right") else (across, centre)
        placed.append(Thing(*look, x, y, radius))
    return Scene(ground, tuple(placed), None, relation)


def pack(scenes: Sequence[Scene]) -> npt.NDArray[np.float32]:
    """Scenes as numbers [n, 11]: ground, then shape (-1: none), colour, x, y, radius of two."""
    rows = np.zeros((len(scenes), PACKED), np.float32)
    for row, scene in zip(rows, scenes, strict=True):
        row[0] = COLOURS.index(scene.ground)
        row[1::5] = -1
        row[5::5] = 10
        for k, thing in enumerate(scene.things):
            row[1 + 5 * k : 6 + 5 * k] = (
                SHAPES.index(thing.shape),
                COLOURS.index(thing.colour),
                thing.x,
                thing.y,
                thing.radius,
            )
    return rows


def first_along(scene: Scene) -> tuple[Thing, ...]:
    """The things in reading order: left before right, top before bottom."""
    if scene.relation in ("right", "below"):
        return scene.things[::-1]
    return scene.things


def size_label(size: str) -> int:
    """1 for small, 2 for medium, 3 for big (0 stands for unsaid)."""
    return SIZES.index(size) + 1
