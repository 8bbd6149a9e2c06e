"""The bytes of a block in host memory: the server's, shared by a descriptor, or our own."""

import mmap
import os
import warnings
from typing import Protocol

import torch


class NoRoom(Exception):
    """Host memory that was promised is not there."""


class HostCopy(Protocol):
    """A block of bytes that can be written once, read, and shown as a tensor."""

    size_bytes: int

    def begin(self) -> torch.Tensor:
        """All bytes as uint8, to be filled and then let go. Raises NoRoom."""

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

    def begin(self) -> torch.Tensor:
        # Not by the descriptor: the system lets only one thread at a time write to a file.
        both = mmap.PROT_READ | mmap.PROT_WRITE
        try:
            shared = mmap.mmap(self._descriptor, self.size_bytes, mmap.MAP_SHARED, both)
        except OSError as problem:
            raise NoRoom(f"the weight pool cannot be filled: {problem.strerror}") from None
        return _shown(shared, self.size_bytes)

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
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


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
