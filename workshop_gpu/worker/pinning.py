"""Host memory that the card reads by itself, at the full speed of the bus.

Registering costs about a second for 20 GB, so it is done behind, in chunks, by a thread of its
own; what is not registered yet goes through small trays instead. While it goes on, the driver lets
no other thread start anything: so chunks are small, their pages are mapped before, and while
somebody draws there are pauses. Nothing here fails a load: where the driver refuses, the memory
stays as it is, and the reason is kept.
"""

import contextlib
import ctypes
import mmap
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

CHUNK_BYTES = 64 * 2**20
_PAUSE_S = 0.05
_MADV_POPULATE_READ, _MADV_POPULATE_WRITE = 22, 23
"""Linux 5.14; the standard library has no name for them. Older ones map the pages later."""
_READ_ONLY_FLAG = 8
"""cudaHostRegisterReadOnly: the card only reads it. The pool's memory is sealed against writing,
and the driver refuses to register that in any other way; not every system knows this one."""


def within_chunks(start: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Stretches of a block's bytes from `start` on, counted from there, such that none lies in two
    registrations: the driver refuses a copy from two at once."""
    begin = 0
    while begin < size_bytes:
        end = min(((start + begin) // CHUNK_BYTES + 1) * CHUNK_BYTES - start, size_bytes)
        yield begin, end
        begin = end


class Pinned:
    """One stretch of memory; its first `ready_bytes` are registered. Let it go by `release`.

    `private`: it is this process's alone, which may write to it while it is registered.
    """

    def __init__(self, memory: torch.Tensor, *, private: bool = False) -> None:
        self.memory = memory
        self._private = private
        self.ready_bytes = 0
        self._lock = threading.Lock()
        self._released = False

    def register_next(self, problems: list[str]) -> bool:
        """Register one more chunk; whether there may be another after it."""
        with self._lock:
            size_bytes = min(CHUNK_BYTES, len(self.memory) - self.ready_bytes)
            if self._released or size_bytes <= 0:
                return False
            address = self.memory.data_ptr() + self.ready_bytes
            _map_pages(address, size_bytes, to_write=self._private)
            # What is private and registered for reading alone is a page of zeros that nobody has
            # written to yet; who writes gets another one, of which older systems tell no card.
            ways = (0,) if self._private else (_READ_ONLY_FLAG, 0)
            if problem := _register(address, size_bytes, ways):
                problems.append(problem)
                return False
            self.ready_bytes += size_bytes
            return self.ready_bytes < len(self.memory)

    def release(self) -> None:
        """Unregister all of it. No copy may be under way."""
        with self._lock:
            self._released = True
            for start in range(0, self.ready_bytes, CHUNK_BYTES):
                _cudart().cudaHostUnregister(self.memory.data_ptr() + start)
            self.ready_bytes = 0
            # Who is to register it may come to it much later, and must not hold it until then.
            self.memory = torch.empty(0, dtype=torch.uint8)


class Pinning:
    """Registers memory in the background, in the order in which it is handed in."""

    def __init__(self, drawing: Callable[[], bool]) -> None:
        """`drawing` tells whether somebody draws just now."""
        self._drawing = drawing
        self._problems: list[str] = []
        self._waiting: queue.SimpleQueue[Pinned] = queue.SimpleQueue()
        threading.Thread(target=self._work_for_ever, name="pinning", daemon=True).start()

    @property
    def problem(self) -> str:
        """Why the driver refused, the last time that it did; "": it never did."""
        return self._problems[-1] if self._problems else ""

    def begin(self, memory: torch.Tensor) -> Pinned:
        """Memory (uint8) that will be registered by and by."""
        pinned = Pinned(memory)
        self._waiting.put(pinned)
        return pinned

    def at_once(self, memory: torch.Tensor) -> Pinned:
        """Private memory that is registered when this returns, as far as the driver lets us."""
        pinned = Pinned(memory, private=True)
        self.complete(pinned)
        return pinned

    def complete(self, pinned: Pinned) -> None:
        """Register what is not yet, without pauses."""
        while pinned.register_next(self._problems):
            pass

    def _work_for_ever(self) -> None:
        while True:
            pinned = self._waiting.get()
            while pinned.register_next(self._problems):
                if self._drawing():
                    time.sleep(_PAUSE_S)
            del pinned


def _cudart() -> Any:
    return torch.cuda.cudart()


def _map_pages(address: int, size_bytes: int, *, to_write: bool) -> None:
    """Have the pages mapped, without the driver's lock."""
    start = address // mmap.PAGESIZE * mmap.PAGESIZE
    stop = -(-(address + size_bytes) // mmap.PAGESIZE) * mmap.PAGESIZE
    advise = ctypes.CDLL(None).madvise
    how = _MADV_POPULATE_WRITE if to_write else _MADV_POPULATE_READ
    advise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), how)


def _register(address: int, size_bytes: int, ways: tuple[int, ...]) -> str:
    """Register in the first of these ways that the driver takes; its reason where it refuses all,
    after which torch must not stumble on it."""
    error = 0
    for flags in ways:
        error = int(_cudart().cudaHostRegister(address, size_bytes, flags))
        if error == 0:
            return ""
        with contextlib.suppress(RuntimeError):
            # The error stays with this thread until a kernel's launch reports and clears it.
            torch.zeros(1, device="cuda").add_(1)
    return f"the CUDA driver refused to register host memory (error {error})"
