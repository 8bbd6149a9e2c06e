"""How the time of each step was spent: copying, waiting for copies, computing."""

import time
from collections.abc import Callable
from typing import Any

import torch

from workshop_gpu.worker.images import StepProfile

Mark = Callable[[], None]
"""Called where what is measured ends."""


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
        self._bounds.append(self._now())
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
            step_s = self._seconds(self._bounds[number], self._bounds[number + 1])
            copy_s = sum(self._seconds(*each) for each in copies)
            # On the CPU nothing is computed while a copy is made.
            wait_s = sum(self._seconds(*each) for each in waits) if self._on_card else copy_s
            found.append(StepProfile(copy_s, wait_s, max(0.0, step_s - wait_s)))
        return tuple(found)

    def _measure(self, kind: int) -> Mark:
        begun, target = self._now(), self._steps[-1][kind]
        return lambda: target.append((begun, self._now()))

    def _now(self) -> Any:
        if not self._on_card:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _seconds(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end) / 1000 if self._on_card else end - begin)
