"""How long waiting jobs will wait: their order is played through once with what was learned."""

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

# Waits are told in coarse steps, so that a wait that shrinks is not announced every second.
_STEPS_S = (0, 1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 60, 75, 90, 120, 150, 180, 240, 300)
_STEP_BEYOND_S = 60
_HALFWAY_S = [(one + next_) / 2 for one, next_ in pairwise(_STEPS_S)]


class Lane(msgspec.Struct):
    """A device as the play sees it: it computes for so long (None: nobody knows), loads and
    evicts for so long, and then has these models, each from the second that is given."""

    busy_s: float | None
    models: dict[str, float] = {}
    transfer_s: float = 0.0
    group: tuple[str, str] = ("", "")
    """Model and group of the batch that begins last, while others may still join it."""
    begins_s: float = 0.0
    joined: int = 0

    def takes_in(self, turn: "Turn") -> bool:
        """Whether the turn joins the batch that begins last."""
        return self.group == (turn.model, turn.group) and self.joined < turn.batch


class Turn(msgspec.Struct, frozen=True):
    """A waiting job as the play sees it; None where nothing was learned yet. `batch`: how many of
    its group are drawn together, which takes `run_s` in all."""

    model: str
    load_s: float | None
    run_s: float | None
    group: str = ""
    batch: int = 1


def rounded(seconds_s: float) -> float:
    """The step next to a wait."""
    if seconds_s >= _STEPS_S[-1]:
        return float(round(seconds_s / _STEP_BEYOND_S) * _STEP_BEYOND_S)
    return float(_STEPS_S[bisect_left(_HALFWAY_S, seconds_s)])


def expected_waits(turns: Iterable[Turn], lanes: Sequence[Lane]) -> list[float | None]:
    """Seconds until each job starts. Each takes the device where it would start first, and
    leaves it busy; a load goes on beside what runs; evictions cost nothing here. None from where
    something is unknown."""
    play = Play(lanes)
    return [play.take(turn) for turn in turns]


class Play:
    """Lanes by when they are free, so that a turn need not look at all of them."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = lanes
        self._by_time = [
            (lane.busy_s, number) for number, lane in enumerate(lanes) if lane.busy_s is not None
        ]
        heapq.heapify(self._by_time)
        self._by_model: dict[str, list[int]] = {}
        for number, lane in enumerate(lanes):
            for model in lane.models:
                self._by_model.setdefault(model, []).append(number)
        self._groups: dict[tuple[str, str], Lane] = {}
        self._lost = False

    def take(self, turn: Turn) -> float | None:
        """Plays one turn."""
        if self._lost:
            return None
        together = self._groups.get((turn.model, turn.group)) if turn.group else None
        if together is not None and together.takes_in(turn):
            together.joined += 1
            return together.begins_s
        number, start_s = self._soonest(turn)
        if number is None:
            # Nobody knows which lane it takes, and so nothing is known of those behind it.
            self._lost = True
            return None
        self._run(turn, number, start_s)
        return start_s

    def start_s(self, turn: Turn) -> float | None:
        """When the turn would start if it came next; it is not played."""
        number, start_s = self._soonest(turn)
        return None if self._lost or number is None else start_s

    def _soonest(self, turn: Turn) -> tuple[int | None, float]:
        """The lane where it would start first (the first of equals), and when."""
        best, best_s = None, math.inf
        for number in self._where(turn):
            lane = self._lanes[number]
            start_s, ready_s = lane.busy_s, lane.models.get(turn.model)
            if ready_s is None and turn.load_s is not None:
                ready_s = lane.transfer_s + turn.load_s
            if start_s is None or ready_s is None:
                continue
            start_s = max(start_s, ready_s)
            if start_s < best_s or (start_s == best_s and best is not None and number < best):
                best, best_s = number, start_s
        return best, best_s

    def _where(self, turn: Turn) -> list[int]:
        """The lanes that have its model, and the one that is free first."""
        while self._by_time:
            busy_s, number = self._by_time[0]
            if self._lanes[number].busy_s == busy_s:
                return [*self._by_model.get(turn.model, ()), number]
            heapq.heappop(self._by_time)
        return self._by_model.get(turn.model, [])

    def _run(self, turn: Turn, number: int, start_s: float) -> None:
        lane = self._lanes[number]
        if turn.model not in lane.models and turn.load_s is not None:
            lane.transfer_s += turn.load_s
            lane.models[turn.model] = lane.transfer_s
            self._by_model.setdefault(turn.model, []).append(number)
        if turn.group:
            self._groups[turn.model, turn.group] = lane
        lane.group, lane.begins_s, lane.joined = (turn.model, turn.group), start_s, 1
        lane.busy_s = None if turn.run_s is None else start_s + turn.run_s
        if lane.busy_s is not None:
            heapq.heappush(self._by_time, (lane.busy_s, number))
