"""How far a load is, for those who wait for it: often enough to see it move, never too often."""

import threading
import time
from collections.abc import Callable

from workshop_gpu.worker.components import Component

INTERVAL_S = 0.1

OnProgress = Callable[[int, int, float], None]
"""Called with (bytes done, bytes in all, bytes a second so far), from any thread."""


class LoadProgress:
    """Counts what arrives, in bytes of the files, from however many threads."""

    def __init__(self, total_bytes: int, on_progress: OnProgress) -> None:
        self._total_bytes = total_bytes
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._started_s = time.monotonic()
        self._last_s = self._started_s
        self._reported_bytes = 0
        self._weights: dict[int, tuple[int, int]] = {}
        self._arrived: dict[int, int] = {}
        on_progress(0, total_bytes, 0.0)

    def expect(self, component: Component, file_bytes: int) -> None:
        """The component's block counts as so many of all bytes."""
        self._weights[id(component)] = (file_bytes, max(1, component.part.size_bytes))
        self._arrived[id(component)] = 0

    def arrived(self, component: Component, size_bytes: int) -> None:
        """So much more of the component's block is there."""
        with self._lock:
            self._arrived[id(component)] += size_bytes
            if time.monotonic() - self._last_s >= INTERVAL_S:
                self._report()

    def finish(self) -> None:
        """Everything is there, what the headers took as well."""
        with self._lock:
            if self._reported_bytes < self._total_bytes:
                self._send(self._total_bytes)

    def _report(self) -> None:
        done_bytes = 0
        for key, (file_bytes, size_bytes) in self._weights.items():
            done_bytes += file_bytes * self._arrived[key] // size_bytes
        if self._reported_bytes < done_bytes <= self._total_bytes:
            self._send(done_bytes)

    def _send(self, done_bytes: int) -> None:
        now_s = time.monotonic()
        self._last_s, self._reported_bytes = now_s, done_bytes
        speed = done_bytes / max(now_s - self._started_s, 1e-6)
        self._on_progress(done_bytes, self._total_bytes, speed)
