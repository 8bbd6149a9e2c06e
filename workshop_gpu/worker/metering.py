"""How long the steps of a call took, and how each one's time was spent: copying, waiting for
copies, computing."""

import time
from collections.abc import Callable
from typing import Any

import torch

from workshop_gpu.worker.images import StepProfile

Mark = Callable[[], None]
"""Called where what is measured ends."""


def _now(on_card: bool) -> Any:
    """This moment on the current stream, or on the CPU."""
    if not on_card:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between_s(begin: Any, end: Any) -> float:
    """Seconds from one moment to another, both of which the card has passed."""
    return float(begin.elapsed_time(end) / 1000) if hasattr(begin, "elapsed_time") else end - begin


class StepClock:
    """Measures how long the steps of a job's calls take, on a card by its own clock, without
    waiting for it."""

    def __init__(self, *, on_card: bool) -> None:
        self._on_card = on_card
        self._first: Any = None
        self._calls: list[tuple[Any, Any, int]] = []
        self._all_known = True

    def step_ended(self, index: int, count: int) -> None:
        """That step, of so many of this call, is done. A call of one step alone says nothing."""
        if count < 2:
            self._all_known = False
        elif index == 0:
            self._first = _now(self._on_card)
        elif index + 1 == count and self._first is not None:
            self._calls.append((self._first, _now(self._on_card), count))
            self._first = None

    def seconds(self) -> float:
        """Of all steps of all calls that ended, the first of each as long as its others; 0 where
        that is not known. Only once the card has done all of them."""
        if not self._all_known:
            return 0.0
        return sum(
            _between_s(first, last) * count / (count - 1) for first, last, count in self._calls
        )


class Meter:
    """Measures the steps of one call of a pipeline; on a card by its own clock.

    Nothing waits for the card while it measures: the marks are read at the end.
    """

    def __init__(self, *, on_card: bool) -> None:
        self._on_card = on_card
        self._steps: list[tuple[list[Any], list[Any]]] = []
        self._bounds: list[Any] = []
        self.start_step()

    def start_step(self) -> None:
        """A step begins here, and the one before ends."""
        self._bounds.append(_now(self._on_card))
        self._steps.append(([], []))

    def copying(self) -> Mark:
        """A copy begins, on the current stream."""
        return self._measure(0)

    def waiting(self) -> Mark:
        """The current stream begins to wait for a copy."""
        return self._measure(1)

    def profiles(self) -> tuple[StepProfile, ...]:
        """The steps that have ended. Waits for the card."""
        if self._on_card:
            torch.cuda.synchronize()
        found = []
        for number, (copies, waits) in enumerate(self._steps[:-1]):
            step_s = _between_s(self._bounds[number], self._bounds[number + 1])
            copy_s = sum(_between_s(*each) for each in copies)
            # On the CPU nothing is computed while a copy is made.
            wait_s = sum(_between_s(*each) for each in waits) if self._on_card else copy_s
            found.append(StepProfile(copy_s, wait_s, max(0.0, step_s - wait_s)))
        return tuple(found)

    def _measure(self, kind: int) -> Mark:
        begun, target = _now(self._on_card), self._steps[-1][kind]
        return lambda: target.append((begun, _now(self._on_card)))
