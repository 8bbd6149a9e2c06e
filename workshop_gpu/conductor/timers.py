"""Moments at which something is due by the passing of time alone."""

import heapq


class Timers:
    """Alarms for waiting jobs in the order of their time. One whose job no longer waits rings for
    nothing."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []

    def set(self, at_s: float, sequence: int, job: str) -> None:
        heapq.heappush(self._heap, (at_s, sequence, job))

    def ringing(self, now: float, most: int) -> list[str]:
        """Takes out the jobs whose time has come, at most so many: the rest ring next time."""
        rung: list[str] = []
        while self._heap and self._heap[0][0] <= now and len(rung) < most:
            rung.append(heapq.heappop(self._heap)[2])
        return rung
