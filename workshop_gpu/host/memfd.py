"""Memory that the server and its workers share: what only Linux can do, in one file.

A memfd lives as long as any process has a descriptor of it, so the server's outlives its workers.
Seals keep what is shared as it is: nobody can cut it off under a reader's mapping, which would
kill the reader by a signal, and nobody can write to what is complete.
"""

import errno
import os
import sys

from workshop_gpu.worker.protocol import segment_bytes

_MOST_SEGMENTS = 16
_SMALLEST_SEGMENT_BYTES = 256 * 2**20
_F_SEAL_FUTURE_WRITE = 0x0010
"""Linux 5.1; the standard library has no name for it."""


def why_not() -> str:
    """Why there is no shared memory of this kind here; "" where there is."""
    if not sys.platform.startswith("linux"):
        return "sharing memory with the workers needs Linux"
    try:
        os.close(create(0))
    except OSError as error:
        return f"the system refuses shared memory (memfd): {error.strerror}"
    return ""


def create(size_bytes: int) -> int:
    """A descriptor of so many zeros, which take memory only once they are written.

    Its size can never change. Raises OSError.
    """
    descriptor = os.memfd_create("workshop-gpu-weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        import fcntl  # not there on every system that imports this file

        os.ftruncate(descriptor, size_bytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def create_segments(size_bytes: int) -> list[int]:
    """Descriptors of memory for so many bytes in all, in segments of `segment_bytes`.

    One memfd is filled by one thread at a time, for the most part: many are filled by many. Raises
    OSError.
    """
    count = max(1, min(_MOST_SEGMENTS, size_bytes // _SMALLEST_SEGMENT_BYTES))
    each_bytes = segment_bytes(size_bytes, count)
    descriptors: list[int] = []
    try:
        for start in range(0, max(size_bytes, 1), each_bytes):
            descriptors.append(create(min(each_bytes, size_bytes - start)))
    except OSError:
        close(descriptors)
        raise
    return descriptors


def close(descriptors: list[int]) -> None:
    """Lets go of these, and empties the list."""
    while descriptors:
        os.close(descriptors.pop())


def sealed(descriptor: int) -> int:
    """Seals the content; returns a descriptor for reading in the place of this one. Raises OSError.

    Where somebody has mapped it to write, that mapping alone stays as it is. Linux before 6.7
    shows sealed memory only by a descriptor that was opened for reading.
    """
    import fcntl

    reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    except OSError as error:
        if error.errno != errno.EBUSY:
            os.close(reader)
            raise
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE)
    os.close(descriptor)
    return reader


def taken_bytes(descriptor: int) -> int:
    """How much memory it takes by now."""
    return os.fstat(descriptor).st_blocks * 512
