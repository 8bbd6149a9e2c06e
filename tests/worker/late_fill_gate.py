"""Somebody who wants the filler of the weight pool elsewhere, at a moment that a test chooses."""

import threading
from collections.abc import Callable
from typing import Any

import pytest


class Gate:
    """Sees each stretch that comes into the pool and not onto the card."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from workshop_gpu.worker.carrying import Carrier

        self.starts: list[int] = []
        self._most = -1
        self._open = threading.Event()
        self._open.set()
        carry = Carrier._carry

        def seen(carrier: Any, source: Any, start: int, *rest: Any) -> bytes:
            onto = rest[2]
            found = carry(carrier, source, start, *rest)
            if onto is None:
                self.starts.append(start)
                if 0 <= self._most <= len(self.starts):
                    self._open.wait()  # the rest of the block does not come before it is seen
            return found

        monkeypatch.setattr(Carrier, "_carry", seen)

    def after(self, stretches: int) -> Callable[[], bool]:
        """Whether the filler is wanted elsewhere: once so many more stretches have come."""
        self._most = len(self.starts) + stretches
        self._open.clear()

        def wanted() -> bool:
            if len(self.starts) >= self._most:
                self._most = -1
                self._open.set()
            return self._most < 0

        return wanted


def never() -> bool:
    """The filler is wanted nowhere else."""
    return False
