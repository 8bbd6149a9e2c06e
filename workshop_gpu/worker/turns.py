"""Who may rely on the libraries' global state: a lock that is handed on in order of arrival.

Building a module sets torch's default dtype and replaces functions of torch for a moment, for the
whole process. A picture that another thread draws meanwhile would come out wrong. So drawing holds
the turn and hands it on between two steps; whoever builds a module waits for that.
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """A fair lock. Handing it on costs nothing while nobody waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Lock] = deque()

    @property
    def taken(self) -> bool:
        """Whether anybody has the turn."""
        return self._taken

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn and have it."""
        self._take()
        try:
            yield
        finally:
            self._hand_on()

    def let_others_pass(self) -> None:
        """Only for who has the turn: whoever waits by now has it first; then go on."""
        if self._waiting:
            self._hand_on()
            self._take()

    def _take(self) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        mine.acquire()

    def _hand_on(self) -> None:
        """The turn goes straight to the next: nobody who comes now can be faster."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False
