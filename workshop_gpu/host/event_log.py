"""The last events in order, for any number of readers, none of whom can hold anything up.

A reader keeps a position of its own and reads on from it; one that falls behind by more than
the log keeps is told so, and starts afresh from a snapshot. So there is no queue per reader.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FellBehind(Exception):
    """The reader's position is older than the oldest event kept, or of another server's life."""


class EventLog(Generic[T]):
    """A ring of the last `capacity` events. Positions count from 1 and never go back."""

    def __init__(self, capacity: int = 2000) -> None:
        self._events: deque[T] = deque(maxlen=capacity)
        self._last = 0
        self._grown = asyncio.Event()
        self._closed = False

    @property
    def position(self) -> int:
        """The position of the newest event."""
        return self._last

    @property
    def closed(self) -> bool:
        return self._closed

    def append(self, event: T) -> None:
        self._events.append(event)
        self._last += 1
        self._wake()

    def close(self) -> None:
        """Ends all readers' waiting."""
        self._closed = True
        self._wake()

    def after(self, position: int) -> list[tuple[int, T]]:
        """The events behind a position, with theirs. Raises FellBehind."""
        missing = self._last - position
        if missing < 0 or missing > len(self._events):
            raise FellBehind
        start = len(self._events) - missing
        return [(position + 1 + offset, self._events[start + offset]) for offset in range(missing)]

    async def grown(self, position: int) -> None:
        """Returns once there is an event behind `position`, or the log is closed."""
        while self._last <= position and not self._closed:
            await self._grown.wait()

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()
