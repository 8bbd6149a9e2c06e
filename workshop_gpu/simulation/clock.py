"""Time that jumps from one thing to the next."""

import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


class Clock:
    """Things that will happen, by their time; of two at the same time, the one planned first."""

    def __init__(self) -> None:
        self.now = 0.0
        self._planned: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def after(self, seconds_s: float, action: Action) -> None:
        """Plans the action; one after 0 seconds happens when all that is planned for now has."""
        heapq.heappush(self._planned, (self.now + seconds_s, next(self._numbers), action))

    def step(self) -> bool:
        """Goes on to the next thing and does it; False where nothing is planned."""
        if not self._planned:
            return False
        self.now, _, action = heapq.heappop(self._planned)
        action()
        return True
