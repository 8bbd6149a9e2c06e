"""What lies in the page cache goes straight to the card, and into the pool afterwards.

To write to the pool's memory for the first time takes several times as long as to write to the
trays that lead to the card. A model from the page cache would wait for that; so it stands ready
first, and is read once more, into the pool, while people draw. From a disk one reading has to do.
Whoever wants another model meanwhile does not wait either: the reading rests, and goes on after.
"""

import errno
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from workshop_gpu.worker.carrying import Carrier, Source, Trip
from workshop_gpu.worker.checkpoints import BadCheckpoint
from workshop_gpu.worker.components import Component
from workshop_gpu.worker.filling import BlockReader
from workshop_gpu.worker.host_copy import HostCopy
from workshop_gpu.worker.pool import Part, Parts
from workshop_gpu.worker.shared_memory import NoRoom
from workshop_gpu.worker.stored import OpenFiles

_PROBES = 64
"""Places of a file, or of a block, that are looked at."""
_PROBE_BYTES = 4096

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Owed:
    """A block that the pool lacks; the reader and the trip of one that has begun to come."""

    model: str
    component: Component
    files: OpenFiles
    reader: BlockReader
    trip: Trip | None = None

    @property
    def part(self) -> Part:
        return self.component.part


class LateFills:
    """The blocks on the card that the pool does not have yet. Only the loader's thread calls."""

    def __init__(self, parts: Parts, carrier: Carrier, then: Callable[[Part], None]) -> None:
        """`then` is told of each block that has come into the pool."""
        self._parts = parts
        self._carrier = carrier
        self._then = then
        self._owed: list[_Owed] = []

    def suits(self, component: Component, files: OpenFiles) -> bool:
        """Whether the component should be on the card first.

        Not where it might be the twin of a block here, from another file: only their digests
        would tell, and until then the card would have them twice. What might be such a twin and
        is not in the pool yet is brought there first.
        """
        part = component.part
        reader = BlockReader(component.weights, files, check_numbers=False, read_again=True)
        for owed in [each for each in self._owed if each.part is not part]:
            if owed.part.size_bytes == part.size_bytes and not _differ(owed.reader, reader, part):
                self._bring(owed, _never)
        if not (part.in_pool and component.files and is_cached(files)):
            return False
        twins = (each for each in self._parts.as_large_as(part) if each.host and each.complete)
        return all(each.host and _differ(each.host, reader, part) for each in twins)

    def owe(self, model: str, component: Component, files: OpenFiles) -> None:
        """The component is on the card; its files stay open until the pool has it too."""
        part = component.part
        part.told_as = part.digest
        if any(each.part is part for each in self._owed):  # it left and came again meanwhile
            files.close()
            return
        # Should the model leave and come again before all is in the pool, it comes from there.
        reader = BlockReader(component.weights, files, check_numbers=False, read_again=True)
        self._owed.append(_Owed(model, component, files, reader))

    @property
    def owes(self) -> bool:
        """Whether there is anything left to bring."""
        return bool(self._owed)

    def forget(self, model: str) -> None:
        """The model's load has failed."""
        self._let_go([each for each in self._owed if each.model == model])

    def forget_part(self, part: Part) -> None:
        """The block gets its bytes in another way."""
        self._let_go([each for each in self._owed if each.part is part])

    def forget_closed(self) -> None:
        """A model was closed: nobody uses some blocks any more."""
        self._let_go([each for each in self._owed if each.part.host is None])

    def _let_go(self, going: list[_Owed]) -> None:
        for owed in going:
            self._owed.remove(owed)
            if owed.trip is not None:
                owed.trip.give_up()
            owed.files.close()

    def fill(self, wanted: Callable[[], bool]) -> None:
        """Bring into the pool what it lacks. What cannot be read again stays on the card, and
        comes from its files the next time.

        It leaves processor and memory to who draws, and the rest to the next call as soon as the
        caller is `wanted` elsewhere.
        """
        while self._owed and not wanted():
            if not self._bring(self._owed[0], wanted):
                return

    def _bring(self, owed: _Owed, wanted: Callable[[], bool]) -> bool:
        """Whether it was done with: False where the fill rests."""
        try:
            if not self._arrives(owed, wanted):
                return False
        except (BadCheckpoint, NoRoom, OSError) as problem:
            _log.warning("%s does not come into the weight pool: %s", owed.model, problem)
            self._let_go([owed])
            self._parts.do_without_copy(owed.part)
        else:
            self._let_go([owed])
            self._then(owed.part)
        return True

    def _arrives(self, owed: _Owed, wanted: Callable[[], bool]) -> bool:
        part = owed.part
        if owed.trip is None:
            named = part.key.startswith("sha256:")
            owed.trip = self._carrier.carry(
                owed.reader, part.size_bytes,
                into=part.host, onto=None, digest=not named, on_bytes=lambda _: None, gently=True,
            )  # fmt: skip
        else:
            owed.trip.set_out()
        if not owed.trip.arrives(unless=wanted):
            return False
        digest = owed.trip.finish()
        owed.files.check_unchanged()
        owed.reader.forget_cached_pages()
        owed.trip = None  # what wrote to the block's memory is gone before it is sealed
        self._parts.filled(part, digest, stays=True)
        return True


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


def _differ(one: Source | HostCopy, other: Source, part: Part) -> bool:
    """Whether two blocks as large as this part surely have different bytes."""
    ours, theirs = bytearray(_PROBE_BYTES), bytearray(_PROBE_BYTES)
    for place in _places(part.size_bytes, _PROBE_BYTES):
        size_bytes = min(_PROBE_BYTES, part.size_bytes - place)
        one.read(place, memoryview(ours)[:size_bytes])
        other.read(place, memoryview(theirs)[:size_bytes])
        if ours[:size_bytes] != theirs[:size_bytes]:
            return True
    return False


def _never() -> bool:
    return False


def _places(size_bytes: int, probe_bytes: int) -> Iterator[int]:
    for number in range(_PROBES):
        yield max(0, size_bytes - probe_bytes) * number // _PROBES
