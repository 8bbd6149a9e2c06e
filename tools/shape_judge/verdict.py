"""Compares what a picture shows with what its prompt asked for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

from shape_judge.pixels import Bytes, Found, Sight, look
from shape_judge.tasks import Task, Wanted

MIN_OVERLAP = 0.78
"""A shape counts only if it fits its template this well, besides fitting no other better."""

_SIZE_LIMITS_PX = {"small": (12.0, 18.3), "big": (24.2, 32.0)}
_OFF_MIDDLE_PX = 8.0
_SPECKS_PX = 20
_UNEVEN = 10.0


@dataclass(frozen=True)
class Verdict:
    """Which parts are right. `clean` is about looks alone: no specks, no blotches."""

    ground: bool
    count: bool
    colour: bool
    shape: bool
    relation: bool
    size: bool
    place: bool
    clean: bool
    overlap: float

    @property
    def right(self) -> bool:
        """All that the bar asks: count, colours, shapes, ground, and the relation of two."""
        return self.ground and self.count and self.colour and self.shape and self.relation

    @property
    def right_in_all(self) -> bool:
        """Size and place as well, where the prompt names them."""
        return self.right and self.size and self.place


def judge(picture: Bytes, task: Task, side_px: int = 128) -> Verdict:
    """The verdict on one picture [h, w, 3]."""
    sight = look(picture)
    count = len(sight.things) == len(task.things)
    ground = sight.ground is not None and task.ground in (None, sight.ground)
    clean = sight.specks_px <= _SPECKS_PX and sight.uneven <= _UNEVEN
    if not count:
        return Verdict(ground, False, False, False, False, False, False, clean, 0.0)
    options = [
        _compare(order, task, side_px, ground, clean) for order in permutations(sight.things)
    ]
    return max(options, key=lambda v: (v.right, v.colour + v.shape, v.relation, v.size))


def _compare(
    things: tuple[Found, ...], task: Task, side_px: int, ground: bool, clean: bool
) -> Verdict:
    pairs = list(zip(things, task.things, strict=True))
    return Verdict(
        ground=ground,
        count=True,
        colour=all(found.colour == wanted.colour for found, wanted in pairs),
        shape=all(_fits(found, wanted) for found, wanted in pairs),
        relation=task.relation is None or _stands(things[0], things[1], task.relation),
        size=all(_sized(found, wanted) for found, wanted in pairs),
        place=task.place is None or _placed(things[0], task.place, side_px),
        clean=clean,
        overlap=min(found.overlap for found in things),
    )


def _fits(found: Found, wanted: Wanted) -> bool:
    return found.shape == wanted.shape and found.overlap >= MIN_OVERLAP


def _sized(found: Found, wanted: Wanted) -> bool:
    low, high = _SIZE_LIMITS_PX.get(wanted.size or "", (0.0, 999.0))
    return low <= found.radius <= high


def _stands(first: Found, second: Found, relation: str) -> bool:
    dx, dy = first.x - second.x, first.y - second.y
    if relation in ("left", "right"):
        return abs(dx) > abs(dy) and (dx < 0) == (relation == "left")
    return abs(dy) > abs(dx) and (dy < 0) == (relation == "above")


def _placed(found: Found, place: str, side_px: int) -> bool:
    dx, dy = found.x - side_px / 2, found.y - side_px / 2
    if place == "middle":
        return max(abs(dx), abs(dy)) < 2 * _OFF_MIDDLE_PX
    along, across = (dx, dy) if place in ("left", "right") else (dy, dx)
    sign = -1 if place in ("left", "top") else 1
    return sign * along > _OFF_MIDDLE_PX and abs(along) > abs(across)


def describe(sight: Sight) -> str:
    """One line that says what was seen, for reading failures."""
    things = [f"{t.colour} {t.shape} r{t.radius:.0f} ({t.overlap:.2f})" for t in sight.things]
    return f"{sight.ground}: {', '.join(things) or 'nothing'}; specks {sight.specks_px} px"
