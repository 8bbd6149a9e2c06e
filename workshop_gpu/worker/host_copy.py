"""The bytes of a block in host memory: the server's, shared by a descriptor, or our own."""

import errno
import mmap
import os
import threading
import warnings
from typing import Protocol

import torch

_ASKED_BYTES = 64 * 2**20
"""Of memory at a time."""


class NoRoom(Exception):
    """Host memory that was promised is not there."""


class HostCopy(Protocol):
    """A block of bytes that can be written once, read, and shown as a tensor."""

    size_bytes: int

    def begin(self) -> torch.Tensor:
        """All bytes as uint8, to be filled and then let go. Raises NoRoom."""

    def wait_for_memory(self, stop: int) -> None:
        """Before bytes up to `stop` are written, after `begin`. Raises NoRoom."""

    def read(self, start: int, into: memoryview) -> None:
        """Take bytes from there."""

    def tensor(self) -> torch.Tensor:
        """All bytes as uint8, without a copy."""

    def close(self) -> None:
        """Let go of it; tensors over it keep it."""


class SharedCopy:
    """A block in the server's weight pool, by its descriptor.

    Reading by the descriptor touches no page tables, so that a first read of many gigabytes does
    not wait for faults.
    """

    def __init__(self, descriptor: int, size_bytes: int, *, private: bool) -> None:
        """`private`: what a pipeline writes into its weights is its own affair (on the CPU)."""
        self.size_bytes = size_bytes
        self._descriptor = descriptor
        self._private = private
        self._tensor: torch.Tensor | None = None
        self._memory: _MemoryAhead | None = None

    def begin(self) -> torch.Tensor:
        # Not by the descriptor: the system lets only one thread at a time write to a file.
        both = mmap.PROT_READ | mmap.PROT_WRITE
        try:
            shared = mmap.mmap(self._descriptor, self.size_bytes, mmap.MAP_SHARED, both)
        except OSError as problem:
            raise NoRoom(f"the weight pool cannot be filled: {problem.strerror}") from None
        self._memory = _MemoryAhead(self._descriptor, self.size_bytes)
        return _shown(shared, self.size_bytes)

    def wait_for_memory(self, stop: int) -> None:
        assert self._memory is not None
        self._memory.wait_for(stop)

    def read(self, start: int, into: memoryview) -> None:
        while into:
            count = os.preadv(self._descriptor, [into], start)
            if count == 0:
                raise NoRoom("a block in the weight pool is shorter than it was")
            start, into = start + count, into[count:]

    def tensor(self) -> torch.Tensor:
        if self._tensor is None:
            self._tensor = _shown(self._map(), self.size_bytes)
        return self._tensor

    def _map(self) -> mmap.mmap:
        readable, both = mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE
        if self._private:
            return mmap.mmap(self._descriptor, self.size_bytes, mmap.MAP_PRIVATE, both)
        try:
            return mmap.mmap(self._descriptor, self.size_bytes, mmap.MAP_SHARED, both)
        except PermissionError:  # sealed against writing
            return mmap.mmap(self._descriptor, self.size_bytes, mmap.MAP_SHARED, readable)

    def close(self) -> None:
        self._tensor = None
        if self._memory is not None:
            self._memory.stop()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _MemoryAhead:
    """Has the system give a memfd its memory, a little ahead of those who write to it.

    Many threads that each touch a page of one memfd for the first time wait for each other: 4 GB/s.
    One that asks for a stretch at a time gets 11 GB/s, and the others then write at full speed.
    """

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self._descriptor = os.dup(descriptor)
        self._size_bytes = size_bytes
        self._given_bytes = 0
        self._ended = False
        self._problem = ""
        self._changed = threading.Condition()
        threading.Thread(target=self._ask, name="pool memory", daemon=True).start()

    def wait_for(self, stop: int) -> None:
        """Until there is memory up to `stop`. Raises NoRoom."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._given_bytes >= stop)
            if self._problem:
                raise NoRoom(f"the weight pool has no memory left: {self._problem}")

    def stop(self) -> None:
        """Ask for no more."""
        with self._changed:
            self._ended = True

    def _ask(self) -> None:
        problem = ""
        try:
            while not self._ended and self._given_bytes < self._size_bytes:
                size_bytes = min(_ASKED_BYTES, self._size_bytes - self._given_bytes)
                os.posix_fallocate(self._descriptor, self._given_bytes, size_bytes)
                with self._changed:
                    self._given_bytes += size_bytes
                    self._changed.notify_all()
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # else it comes when it is written to
                problem = error.strerror or str(error)
        finally:
            os.close(self._descriptor)
            with self._changed:
                self._ended, self._problem = True, problem
                self._changed.notify_all()


class OwnCopy:
    """A block in this process's own memory, where there is no pool."""

    def __init__(self, size_bytes: int) -> None:
        """Raises NoRoom."""
        self.size_bytes = size_bytes
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        try:
            self._memory = mmap.mmap(-1, max(size_bytes, 1), private)
        except OSError as problem:
            raise NoRoom(f"no host memory for the weights: {problem.strerror}") from None
        self._tensor = _shown(self._memory, size_bytes)

    def begin(self) -> torch.Tensor:
        return self._tensor

    def wait_for_memory(self, stop: int) -> None:
        pass

    def read(self, start: int, into: memoryview) -> None:
        target = torch.frombuffer(into, dtype=torch.uint8)
        target.copy_(self._tensor[start : start + len(into)])

    def tensor(self) -> torch.Tensor:
        return self._tensor

    def close(self) -> None:
        pass


def _shown(memory: mmap.mmap, size_bytes: int) -> torch.Tensor:
    if size_bytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a sealed block cannot be written is meant so
        return torch.frombuffer(memory, dtype=torch.uint8, count=size_bytes)
