"""The bytes of a block in host memory: the server's, shared by a descriptor, or our own."""

import mmap
import os
import warnings
from collections.abc import Sequence
from typing import Protocol

import torch

from workshop_gpu.worker.protocol import segment_bytes
from workshop_gpu.worker.shared_memory import MemoryAhead, NoRoom, mapped

_WRITABLE = mmap.PROT_READ | mmap.PROT_WRITE


class HostCopy(Protocol):
    """A block of bytes that can be written once, read, and shown as a tensor."""

    size_bytes: int
    segment_bytes: int
    """What is filled fastest by a thread for each."""

    def begin(self) -> torch.Tensor:
        """All bytes as uint8, to be filled and then let go. Raises NoRoom."""

    def wait_for_memory(self, start: int, stop: int) -> None:
        """Before these bytes are written, after `begin`. Raises NoRoom."""

    def read(self, start: int, into: memoryview) -> None:
        """Take bytes from there."""

    def tensor(self) -> torch.Tensor:
        """All bytes as uint8, without a copy."""

    def close(self) -> None:
        """Let go of it; tensors over it keep it."""


class SharedCopy:
    """A block in the server's weight pool, by the descriptors of its segments.

    Reading by a descriptor touches no page tables, so that a first read of many gigabytes does
    not wait for faults.
    """

    def __init__(self, descriptors: Sequence[int], size_bytes: int, *, private: bool) -> None:
        """`private`: what a pipeline writes into its weights is its own affair (on the CPU)."""
        self.size_bytes = size_bytes
        self.segment_bytes = segment_bytes(size_bytes, len(descriptors))
        self._descriptors = list(descriptors)
        self._private = private
        self._tensor: torch.Tensor | None = None
        self._memory: list[MemoryAhead] = []

    def begin(self) -> torch.Tensor:
        # Not by the descriptors: the system lets only one thread at a time write to a file.
        try:
            shared = self._mapped(_WRITABLE, mmap.MAP_SHARED)
        except OSError as problem:
            raise NoRoom(f"the weight pool cannot be filled: {problem.strerror}") from None
        if not self._memory:  # else somebody else began to fill it, and gave up
            for number, descriptor in enumerate(self._descriptors):
                start = number * self.segment_bytes
                size_bytes = min(self.segment_bytes, self.size_bytes - start)
                self._memory.append(MemoryAhead(descriptor, size_bytes))
        return shared

    def wait_for_memory(self, start: int, stop: int) -> None:
        first, last = start // self.segment_bytes, (stop - 1) // self.segment_bytes
        for number in range(first, last + 1):
            begin = number * self.segment_bytes
            self._memory[number].wait_for(min(stop - begin, self.segment_bytes))

    def read(self, start: int, into: memoryview) -> None:
        while into:
            number, offset = divmod(start, self.segment_bytes)
            wanted = into[: self.segment_bytes - offset]
            count = os.preadv(self._descriptors[number], [wanted], offset)
            if count == 0:
                raise NoRoom("a block in the weight pool is shorter than it was")
            start, into = start + count, into[count:]

    def tensor(self) -> torch.Tensor:
        if self._tensor is None:
            if self._private:
                self._tensor = self._mapped(_WRITABLE, mmap.MAP_PRIVATE)
            else:
                try:
                    self._tensor = self._mapped(_WRITABLE, mmap.MAP_SHARED)
                except PermissionError:  # sealed against writing
                    self._tensor = self._mapped(mmap.PROT_READ, mmap.MAP_SHARED)
        return self._tensor

    def _mapped(self, protection: int, flags: int) -> torch.Tensor:
        return mapped(self._descriptors, self.size_bytes, self.segment_bytes, protection, flags)

    def close(self) -> None:
        self._tensor = None
        for memory in self._memory:
            memory.stop()
        self._memory.clear()
        while self._descriptors:
            os.close(self._descriptors.pop())


class OwnCopy:
    """A block in this process's own memory, where there is no pool."""

    def __init__(self, size_bytes: int) -> None:
        """Raises NoRoom."""
        self.size_bytes = self.segment_bytes = size_bytes
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        try:
            self._memory = mmap.mmap(-1, max(size_bytes, 1), private)
        except OSError as problem:
            raise NoRoom(f"no host memory for the weights: {problem.strerror}") from None
        self._tensor = _shown(self._memory, size_bytes)

    def begin(self) -> torch.Tensor:
        return self._tensor

    def wait_for_memory(self, start: int, stop: int) -> None:
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
