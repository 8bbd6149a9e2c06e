"""For how long jobs have waited, on a clock that stands still while the queue is paused."""

from collections import deque


class Clock:
    """Seconds in which the queue went on."""

    def __init__(self) -> None:
        self._stood_s = 0.0
        self._stands_since_s: float | None = None

    def read(self, now: float) -> float:
        return (now if self._stands_since_s is None else self._stands_since_s) - self._stood_s

    def pause(self, now: float) -> None:
        if self._stands_since_s is None:
            self._stands_since_s = now

    def resume(self, now: float) -> None:
        if self._stands_since_s is not None:
            self._stood_s += now - self._stands_since_s
            self._stands_since_s = None


class WaitingTimes:
    """Since when jobs wait, those first that have waited longest."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._since: deque[tuple[float, str]] = deque()
        self._latest: dict[str, float] = {}

    def begin(self, job: str, now: float) -> None:
        """The job waits from now on, or anew."""
        since_s = self.clock.read(now)
        self._since.append((since_s, job))
        self._latest[job] = since_s

    def over(self, limit_s: float, now: float) -> list[str]:
        """Takes out those that began to wait so long ago, whether or not they wait still."""
        end_s, over = self.clock.read(now) - limit_s, []
        while self._since and self._since[0][0] <= end_s:
            since_s, job = self._since.popleft()
            if self._latest.get(job) == since_s:
                del self._latest[job]
                over.append(job)
        return over
