"""What lies in the page cache goes straight to the card, and into the pool afterwards.

To write to the pool's memory for the first time takes several times as long as to write to the
trays that lead to the card. A model from the page cache would wait for that; so it stands ready
first, and is read once more, into the pool, while people draw. From a disk one reading has to do.
"""

import errno
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from workshop_gpu.worker.carrying import Carrier
from workshop_gpu.worker.checkpoints import BadCheckpoint
from workshop_gpu.worker.components import Component
from workshop_gpu.worker.filling import BlockReader
from workshop_gpu.worker.pool import Part, Parts
from workshop_gpu.worker.shared_memory import NoRoom
from workshop_gpu.worker.stored import OpenFiles

_PROBES = 64
"""Places of a file, or of a block, that are looked at."""
_PROBE_BYTES = 4096

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Owed:
    model: str
    component: Component
    files: OpenFiles


class LateFills:
    """The blocks on the card that the pool does not have yet. Only the loader's thread calls."""

    def __init__(self, parts: Parts, carrier: Carrier) -> None:
        self._parts = parts
        self._carrier = carrier
        self._owed: list[_Owed] = []

    def suits(self, component: Component, files: OpenFiles) -> bool:
        """Whether the component should be on the card first.

        Not where it might be the twin of a block here, from another file: only their digests
        would tell, and until then the card would have them twice.
        """
        part = component.part
        if not (part.in_pool and component.files and is_cached(files)):
            return False
        reader = BlockReader(component.weights, files, check_numbers=False, read_again=True)
        return all(_differs(other, reader) for other in self._parts.as_large_as(part))

    def owe(self, model: str, component: Component, files: OpenFiles) -> None:
        """The component is on the card; its files stay open until the pool has it too."""
        component.part.told_as = component.part.digest
        self._owed.append(_Owed(model, component, files))

    def forget(self, model: str) -> None:
        """The model's load has failed."""
        for owed in [each for each in self._owed if each.model == model]:
            self._owed.remove(owed)
            owed.files.close()

    def fill(self, then: Callable[[Part], None], hurried: Callable[[], bool]) -> None:
        """Bring into the pool what it lacks; `then` is told of each block that is there. What
        cannot be read again stays on the card, and comes from its files the next time. While it
        is not `hurried`, it leaves processor and memory to who draws."""
        while self._owed:
            owed = self._owed.pop(0)
            part = owed.component.part
            try:
                self._fill(owed, hurried)
            except (BadCheckpoint, NoRoom, OSError) as problem:
                _log.warning("%s does not come into the weight pool: %s", owed.model, problem)
                self._parts.do_without_copy(part)
            else:
                then(part)
            finally:
                owed.files.close()

    def _fill(self, owed: _Owed, hurried: Callable[[], bool]) -> None:
        part = owed.component.part
        named = part.key.startswith("sha256:")
        reader = BlockReader(owed.component.weights, owed.files, check_numbers=False)
        trip = self._carrier.carry(
            reader, part.size_bytes,
            into=part.host, onto=None, digest=not named, on_bytes=lambda _: None, hurried=hurried,
        )  # fmt: skip
        digest = trip.finish()
        owed.files.check_unchanged()
        self._parts.filled(part, digest)


def is_cached(files: OpenFiles) -> bool:
    """Whether the files lie in the page cache, as far as some probes tell."""
    return all(_answers_at_once(descriptor) for descriptor in files.descriptors)


def _answers_at_once(descriptor: int) -> bool:
    byte = bytearray(1)
    for place in _places(os.fstat(descriptor).st_size, 1):
        try:
            os.preadv(descriptor, [byte], place, os.RWF_NOWAIT)
        except OSError as problem:
            if problem.errno in (errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL):
                return False
            raise
    return True


def _differs(part: Part, reader: BlockReader) -> bool:
    """Whether a block of the same size surely has other bytes than the reader gives."""
    if part.host is None or not part.complete:
        return False
    ours, theirs = bytearray(_PROBE_BYTES), bytearray(_PROBE_BYTES)
    for place in _places(part.size_bytes, _PROBE_BYTES):
        size_bytes = min(_PROBE_BYTES, part.size_bytes - place)
        part.host.read(place, memoryview(theirs)[:size_bytes])
        reader.read(place, memoryview(ours)[:size_bytes])
        if ours[:size_bytes] != theirs[:size_bytes]:
            return True
    return False


def _places(size_bytes: int, probe_bytes: int) -> Iterator[int]:
    for number in range(_PROBES):
        yield max(0, size_bytes - probe_bytes) * number // _PROBES
