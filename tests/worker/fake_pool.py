"""A weight pool inside the test's process: what the server's does, without the server."""

import os
from collections.abc import Callable
from typing import Any


class FakePool:
    """Keeps memfds by key and by digest. `before` is called with each key that is asked for."""

    def __init__(self, room: int = 10**9, before: Callable[[str], None] | None = None) -> None:
        self.room = room
        self.before = before
        self.complete: dict[str, int] = {}
        self.filling: dict[str, int] = {}
        self.granted: list[str] = []
        self.dropped: list[str] = []
        self.read_only = False

    def want(self, key: str, size_bytes: int) -> Any:
        from workshop_gpu.worker.pool import Grant, PartState, Refusal

        if self.before is not None:
            self.before(key)
        if key in self.complete:
            self.granted.append("complete")
            return Grant(PartState.COMPLETE, (self._reader(self.complete[key]),), size_bytes)
        if len(self.memory()) >= self.room:
            return Refusal("the pool is full")
        self.granted.append("empty")
        descriptor = self.filling[key] = os.memfd_create("part")
        os.ftruncate(descriptor, size_bytes)
        mine = self._reader(descriptor) if self.read_only else os.dup(descriptor)
        return Grant(PartState.EMPTY, (mine,), size_bytes)

    def filled(self, key: str, digest: str) -> Any:
        from workshop_gpu.worker.pool import Grant, PartState

        descriptor = self.filling.pop(key)
        if digest in self.complete:
            os.close(descriptor)
            descriptor = self.complete[key] = self.complete[digest]
            size_bytes = os.fstat(descriptor).st_size
            return Grant(PartState.COMPLETE, (self._reader(descriptor),), size_bytes)
        self.complete[key] = self.complete[digest] = descriptor
        return None

    def drop(self, key: str) -> None:
        self.dropped.append(key)
        if key in self.filling:
            os.close(self.filling.pop(key))

    def memory(self) -> dict[int, bytes]:
        """The complete parts' bytes, each once."""
        found = {}
        for descriptor in {*self.complete.values()}:
            found[descriptor] = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        return found

    def close(self) -> None:
        for descriptor in {*self.complete.values(), *self.filling.values()}:
            os.close(descriptor)

    def _reader(self, descriptor: int) -> int:
        """Nobody may write to what is complete."""
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
