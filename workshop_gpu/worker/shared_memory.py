"""Memory of many gigabytes that processes share: mapped in one piece, given by the system in time.

A memfd's first pages are the slow part: threads that each touch one for the first time wait for
each other, 5 GB/s in all. One that asks for a stretch at a time gets 11 GB/s, and one for each of
sixteen memfds 50 GB/s. So large blocks are kept in segments.
"""

import ctypes
import errno
import mmap
import os
import threading
import weakref
from collections.abc import Sequence

import torch

_ASKED_BYTES = 64 * 2**20
"""Of memory at a time."""
_AHEAD_BYTES = 2 * _ASKED_BYTES
"""Of those who write: who rests has no memory cleared meanwhile, which takes all cores."""
_MAP_FIXED = 0x10


class NoRoom(Exception):
    """Host memory that was promised is not there."""


class MemoryAhead:
    """Has the system give a memfd its memory, a little ahead of those who write to it."""

    def __init__(self, descriptor: int, size_bytes: int) -> None:
        self._descriptor = os.dup(descriptor)
        self._size_bytes = size_bytes
        self._given_bytes = 0
        self._wanted_bytes = 0
        self._ended = False
        self._problem = ""
        self._changed = threading.Condition()
        threading.Thread(target=self._ask, name="pool memory", daemon=True).start()

    def wait_for(self, stop: int) -> None:
        """Until there is memory up to `stop`. Raises NoRoom."""
        with self._changed:
            if stop > self._wanted_bytes:
                self._wanted_bytes = stop
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended or self._given_bytes >= stop)
            if self._problem:
                raise NoRoom(f"the weight pool has no memory left: {self._problem}")

    def stop(self) -> None:
        """Ask for no more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _ask(self) -> None:
        problem = ""
        try:
            while self._goes_on():
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

    def _goes_on(self) -> bool:
        """Waits until more is wanted; False where nothing is, any more."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended or self._given_bytes < self._wanted_bytes + _AHEAD_BYTES
            )
            return not self._ended and self._given_bytes < self._size_bytes


def mapped(
    descriptors: Sequence[int], size_bytes: int, segment_bytes: int, protection: int, flags: int
) -> torch.Tensor:
    """Files one behind the other as one tensor of uint8; its last user unmaps them.

    Python's own mmap cannot put a mapping beside another. Raises OSError.
    """
    if size_bytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    address = _map(None, size_bytes, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    memory = (ctypes.c_uint8 * size_bytes).from_address(address)
    weakref.finalize(memory, _libc.munmap, address, size_bytes).atexit = False
    for number, descriptor in enumerate(descriptors):
        start = number * segment_bytes
        length = min(segment_bytes, size_bytes - start)
        _map(address + start, length, protection, flags | _MAP_FIXED, descriptor)
    return torch.frombuffer(memory, dtype=torch.uint8)


def _map(address: int | None, size_bytes: int, protection: int, flags: int, descriptor: int) -> int:
    found = _libc.mmap(address, size_bytes, protection, flags, descriptor, 0)
    if found == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(found)


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value
