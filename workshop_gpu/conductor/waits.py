"""How long waiting jobs will wait: their order is played through once with what was learned."""

from collections.abc import Sequence
from dataclasses import dataclass, field

# Waits are told in coarse steps, so that a wait that shrinks is not announced every second.
_STEPS_S = (0, 1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 60, 75, 90, 120, 150, 180, 240, 300)
_STEP_BEYOND_S = 60


@dataclass(slots=True)
class Lane:
    """A device as the play sees it: busy for so long (None: nobody knows), then with these
    models."""

    busy_s: float | None
    models: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Turn:
    """A waiting job as the play sees it; None where nothing was learned yet."""

    model: str
    load_s: float | None
    run_s: float | None


def rounded(seconds_s: float) -> float:
    """The step next to a wait."""
    if seconds_s >= _STEPS_S[-1]:
        return float(round(seconds_s / _STEP_BEYOND_S) * _STEP_BEYOND_S)
    return float(min(_STEPS_S, key=lambda step: abs(step - seconds_s)))


def expected_waits(turns: Sequence[Turn], lanes: Sequence[Lane]) -> list[float | None]:
    """Seconds until each job starts. Each takes the device where it would start first, and
    leaves it busy; evictions cost nothing here. None from where something is unknown."""
    waits: list[float | None] = []
    for turn in turns:
        starts = [(_start(turn, lane), number) for number, lane in enumerate(lanes)]
        known = [(start, number) for start, number in starts if start is not None]
        if not known:
            waits.append(None)
            for lane in lanes:
                lane.busy_s = None
            continue
        start, number = min(known)
        waits.append(start)
        lanes[number].busy_s = None if turn.run_s is None else start + turn.run_s
        lanes[number].models.add(turn.model)
    return waits


def _start(turn: Turn, lane: Lane) -> float | None:
    if lane.busy_s is None:
        return None
    if turn.model in lane.models:
        return lane.busy_s
    return None if turn.load_s is None else lane.busy_s + turn.load_s
