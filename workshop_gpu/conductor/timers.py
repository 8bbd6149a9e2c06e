"""Moments at which something is due by the passing of time alone."""

import heapq
from enum import IntEnum


class Alarm(IntEnum):
    """What is to be done for a waiting job."""

    RISE = 0
    """It rises one class."""
    DUE = 1
    """Its patience is over."""


class Timers:
    """Alarms in the order of their time. One whose job no longer waits rings for nothing."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm, str]] = []

    def set(self, at_s: float, sequence: int, alarm: Alarm, job: str) -> None:
        heapq.heappush(self._heap, (at_s, sequence, alarm, job))

    def ringing(self, now: float, most: int) -> list[tuple[Alarm, str]]:
        """Takes out the alarms whose time has come, at most so many: the rest ring next time."""
        rung: list[tuple[Alarm, str]] = []
        while self._heap and self._heap[0][0] <= now and len(rung) < most:
            _, _, alarm, job = heapq.heappop(self._heap)
            rung.append((alarm, job))
        return rung
