"""Moving a block's bytes: from files or host memory, into the pool, onto the card, all at once.

Several threads each take a stretch of a few megabytes: read it into its place in the pool, check
it, take its digest, send it on to the card by a tray of pinned memory while the next is being
read. So the slowest of disk, processor and bus sets the pace, and no more memory is needed than the
trays.
"""

import mmap
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
import xxhash

from workshop_gpu.worker.devices import CudaDevice, Device
from workshop_gpu.worker.filling import check_numbers
from workshop_gpu.worker.host_copy import HostCopy
from workshop_gpu.worker.layout import Block
from workshop_gpu.worker.pinning import CHUNK_BYTES, Pinned, Pinning

_CARD_STRETCH_BYTES = 16 * 2**20
_CPU_STRETCH_BYTES = 4 * 2**20
_MOST_THREADS = 16
_PAUSE_S = 0.2
"""Of each thread, before each stretch that goes gently while somebody draws."""
_LOOK_S = 0.005
"""How often a trip that may have to rest looks whether it has to."""

OnBytes = Callable[[int], None]
"""Told the bytes that have arrived since the last time, from any thread."""


class Source(Protocol):
    """What a block's bytes are read from."""

    def read(self, start: int, into: memoryview) -> None:
        """The bytes from `start` on, as many as there is room for."""


class Signs:
    """What the stretches of a trip look at. They know no more of it: a trip that its own stretches
    held would keep the card's memory until Python looks for cycles."""

    def __init__(self) -> None:
        self.failed = threading.Event()
        self.resting = threading.Event()


class Trip:
    """A block on its way. `finish` waits for it to arrive; meanwhile it may `rest`."""

    def __init__(
        self,
        order: Sequence[int] = (),
        submit: Callable[[int], Future[bytes]] | None = None,
        signs: Signs | None = None,
    ) -> None:
        """`order`: the starts of its stretches as they set out, each by `submit`."""
        self._order = order
        self._submit = submit
        self._stretches: dict[int, Future[bytes]] = {}
        self._signs = signs or Signs()

    def set_out(self) -> None:
        """Begin, or go on after a rest."""
        self._signs.resting.clear()
        for start in self._order:
            begun = self._stretches.get(start)
            if self._submit is not None and (begun is None or begun.cancelled()):
                self._stretches[start] = self._submit(start)

    def arrives(self, unless: Callable[[], bool]) -> bool:
        """Wait for it to arrive, well or not. Should `unless` come true before, it rests."""
        for stretch in self._stretches.values():
            while not stretch.done():
                if unless():
                    self.rest()
                    return False
                wait([stretch], _LOOK_S)
        return True

    def rest(self) -> None:
        """Start no further stretches until it sets out again, and wait for those under way."""
        self._signs.resting.set()
        wait([each for each in self._stretches.values() if not each.cancel()])

    def finish(self) -> str:
        """The digest of the bytes ("" where none was wanted).

        Raises what went wrong first, once nothing is under way any more.
        """
        if any(each.exception() for each in self._stretches.values()):
            # Bound to no name here: its traceback holds all that the stretches held, and this.
            raise self._problem()
        digests = b"".join(self._stretches[start].result() for start in sorted(self._stretches))
        return f"xxh3:{xxhash.xxh3_128_hexdigest(digests)}" if digests else ""

    def _problem(self) -> BaseException:
        """What went wrong first; the trip itself forgets it."""
        problems = [p for each in self._stretches.values() if (p := each.exception())]
        self._stretches.clear()
        return next((p for p in problems if not isinstance(p, _GivenUp)), problems[0])

    def give_up(self) -> None:
        """Start no further stretches, and wait for those under way."""
        self._signs.failed.set()
        self.rest()


class _GivenUp(Exception):
    """Another stretch of the block has failed."""


class _Tray:
    """Memory that stretches pass through, and the copy to the card that was last made from it."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory
        self.array = memory.numpy()
        self.sent: torch.cuda.Event | None = None


def _bytes_of(memory: torch.Tensor) -> memoryview:
    as_array: Any = memory.numpy()
    return memoryview(as_array)


class Carrier:
    """Carries blocks to a device."""

    def __init__(self, device: Device, drawing: Callable[[], bool]) -> None:
        """`drawing` tells whether somebody draws on the device just now."""
        self._card = device if isinstance(device, CudaDevice) else None
        self._drawing = drawing
        self._stretch_bytes = _CARD_STRETCH_BYTES if self._card else _CPU_STRETCH_BYTES
        self._threads = min(_MOST_THREADS, max(2, os.cpu_count() or 2))
        self._workers = ThreadPoolExecutor(self._threads, "weights")
        self._stream = self._card.transfers if self._card else None
        self._pinning = Pinning(drawing) if self._card else None
        self._trays: queue.SimpleQueue[_Tray] | None = None

    @property
    def problem(self) -> str:
        """Why host memory is not registered with the card; "" where it is or need not be."""
        return self._pinning.problem if self._pinning else ""

    def prepare(self) -> None:
        """Set up the trays, which else the first block waits for."""
        self._ready_trays()

    def pin(self, host: HostCopy, begun: Pinned | None, *, at_once: bool) -> Pinned | None:
        """Begin to register this copy with a card, if nobody has; `at_once`: and wait for it."""
        if self._pinning is None:
            return None
        pinned = begun or self._pinning.begin(host.tensor())
        if at_once:
            self._pinning.complete(pinned)
        return pinned

    def carry(
        self,
        source: Source,
        size_bytes: int,
        *,
        into: HostCopy | None,
        onto: torch.Tensor | None,
        digest: bool,
        on_bytes: OnBytes,
        gently: bool = False,
    ) -> Trip:
        """Start to read a block, into host memory and onto the card where they are given.
        `gently`: it leaves processor and memory to who draws."""
        filled = into.begin() if into is not None else None
        signs = Signs()

        def stretch(start: int) -> bytes:
            if gently and self._drawing():
                signs.resting.wait(_PAUSE_S)
            if signs.failed.is_set():
                raise _GivenUp
            stop = min(start + self._stretch_bytes, size_bytes)
            room = filled[start:stop] if filled is not None else None
            try:
                if into is not None:
                    into.wait_for_memory(start, stop)
                return self._carry(
                    source, start, stop - start, room,
                    onto[start:stop] if onto is not None else None, digest, on_bytes,
                )  # fmt: skip
            except BaseException:
                signs.failed.set()
                raise

        starts = range(0, size_bytes, self._stretch_bytes)
        order = self._order(starts, into)
        trip = Trip(order, lambda start: self._workers.submit(stretch, start), signs)
        trip.set_out()
        return trip

    def _order(self, starts: Sequence[int], into: HostCopy | None) -> list[int]:
        """The first of each segment, then the second of each: so each thread has its own."""
        if into is None or into.segment_bytes >= into.size_bytes:
            return list(starts)
        return sorted(starts, key=lambda start: divmod(start, into.segment_bytes)[::-1])

    def _carry(
        self,
        source: Source,
        start: int,
        length: int,
        room: torch.Tensor | None,
        onto: torch.Tensor | None,
        digest: bool,
        on_bytes: OnBytes,
    ) -> bytes:
        """One stretch: into its room in the pool, and by a tray onto the card."""
        found = b""
        if room is not None:
            data = _bytes_of(room)
            source.read(start, data)
            found = xxhash.xxh3_128_digest(data) if digest else b""
        if onto is not None:
            with self._tray() as tray:
                if room is not None:
                    np.copyto(tray.array[:length], room.numpy())
                else:
                    source.read(start, _bytes_of(tray.memory[:length]))
                tray.sent = self._send(tray.memory[:length], onto)
        on_bytes(length)
        return found

    @contextmanager
    def _tray(self) -> Iterator["_Tray"]:
        """A tray that nothing is read from any more."""
        trays = self._ready_trays()
        tray = trays.get()
        try:
            if tray.sent is not None:
                tray.sent.synchronize()
            yield tray
        finally:
            trays.put(tray)

    def upload(
        self,
        host: HostCopy,
        pinned: Pinned | None,
        onto: torch.Tensor,
        on_bytes: OnBytes,
        begin: int = 0,
    ) -> Trip:
        """Start to copy a block, or what is in it from `begin` on, to the device: what is
        registered at once, the rest by trays. On the CPU it is there when this returns."""
        if self._card is None:
            onto.copy_(host.tensor()[begin : begin + len(onto)])
            on_bytes(len(onto))
            return Trip()
        reached = begin
        ready_bytes = min(pinned.ready_bytes if pinned else 0, begin + len(onto))
        while reached < ready_bytes:
            # No copy from two registrations at once.
            stop = min((reached // CHUNK_BYTES + 1) * CHUNK_BYTES, ready_bytes)
            assert pinned is not None
            self._send(pinned.memory[reached:stop], onto[reached - begin : stop - begin])
            on_bytes(stop - reached)
            reached = stop
        rest = onto[reached - begin :]
        return self.carry(
            _From(host, reached), len(rest),
            into=None, onto=rest, digest=False, on_bytes=on_bytes,
        )  # fmt: skip

    def check_numbers(self, block: Block, onto: torch.Tensor) -> None:
        """Refuse what is not a number in a block that was sent: the card looks a hundred times
        faster than the processor. Raises BadCheckpoint."""
        if self._stream is not None:
            with torch.cuda.stream(self._stream):
                check_numbers(block, onto)

    def settle(self) -> None:
        """Wait until everything that was sent is on the card."""
        if self._stream is not None:
            self._stream.synchronize()

    def _send(self, data: torch.Tensor, onto: torch.Tensor) -> torch.cuda.Event | None:
        assert self._stream is not None
        with torch.cuda.stream(self._stream):
            onto.copy_(data, non_blocking=True)
            event = torch.cuda.Event()
            event.record(self._stream)
        return event

    def _ready_trays(self) -> "queue.SimpleQueue[_Tray]":
        if self._trays is None:
            count = self._threads + 4 if self._card else self._threads
            room_bytes = count * self._stretch_bytes
            memory = torch.frombuffer(
                mmap.mmap(-1, room_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=torch.uint8
            )
            if self._pinning:
                self._pinning.at_once(memory)
            self._trays = queue.SimpleQueue()
            for tray in memory.split(self._stretch_bytes):
                self._trays.put(_Tray(tray))
        return self._trays


class _From:
    """The rest of a host copy, from an offset on."""

    def __init__(self, host: HostCopy, offset: int) -> None:
        self._host = host
        self._offset = offset

    def read(self, start: int, into: memoryview) -> None:
        self._host.read(self._offset + start, into)
