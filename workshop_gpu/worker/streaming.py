"""Streaming: blocks of a denoiser come to the device one after the other, at each step anew.

A few buffers on the device rotate. While one block computes in its buffer, the next ones are
copied into the others, from registered host memory (or another card's) and on a stream of their
own; after the last block of a step the first of the next is already on its way. Events go both
ways: a block waits for its bytes, and a buffer is written to again only once the block in it has
computed. Nothing is ever copied back, since weights do not change.

Which block comes next is learned as they run (see `order.py`). A wrong guess costs a wait, never a
wrong picture.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch

from workshop_gpu.worker.layout import Block, views
from workshop_gpu.worker.metering import Meter
from workshop_gpu.worker.order import Order
from workshop_gpu.worker.pinning import within_chunks
from workshop_gpu.worker.pool import Part


@dataclass(eq=False)
class Unit:
    """What comes and goes together: modules that the network calls, and their bytes, which lie one
    after the other from `start` on in the part.

    `tensors` has its places from 0 on.
    """

    modules: tuple[Any, ...]
    part: Part
    start: int
    tensors: Block
    elsewhere: torch.Tensor | None = None
    """Its bytes in another device's memory, where they come from there."""
    _on_host: list[torch.Tensor] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return self.tensors.size_bytes

    @property
    def host(self) -> torch.Tensor:
        """Its bytes in host memory."""
        assert self.part.host is not None
        return self.part.host.tensor()[self.start : self.start + self.size_bytes]

    def hide(self) -> None:
        """Let the slots show host memory.

        Whoever computes with a block outside its turn then fails aloud on a card, and never reads
        what another block left in a buffer.
        """
        if not self._on_host:
            with torch.inference_mode(False):
                self._on_host = views(self.tensors, self.host)
        self.put(self._on_host)

    def put(self, shown: Sequence[torch.Tensor]) -> None:
        """Let the slots show these."""
        for piece, view in zip(self.tensors.pieces, shown, strict=True):
            for slot in piece.slots:
                slot.put(view)

    def sends(self) -> Iterator[tuple[int, int, torch.Tensor]]:
        """What is copied to bring it: bytes of it from 0 on, and where they are."""
        if self.elsewhere is not None:
            yield 0, self.size_bytes, self.elsewhere
            return
        host = self.host
        for begin, end in within_chunks(self.start, self.size_bytes):
            yield begin, end, host[begin:end]


@dataclass(eq=False)
class Buffer:
    """Memory on the device, with the unit whose bytes are there or on their way.

    `shown` are the tensors of each unit over this memory, made once. `arrived` and `left` are
    the events of the last copy into it and of the last computation with it.
    """

    memory: torch.Tensor
    unit: Unit | None = None
    busy: bool = False
    arrived: Any = None
    left: Any = None
    shown: dict[Unit, list[torch.Tensor]] = field(default_factory=dict)

    def show(self, unit: Unit) -> None:
        """Let the unit's slots show this memory."""
        if unit not in self.shown:
            with torch.inference_mode(False):
                self.shown[unit] = views(unit.tensors, self.memory)
        unit.put(self.shown[unit])


class Lane(Protocol):
    """How bytes come to the device, beside what is computed there."""

    def copy(self, unit: Unit, buffer: Buffer, meter: Meter | None) -> None:
        """Send the unit's bytes, once nothing computes in the buffer any more."""

    def wait(self, buffer: Buffer, meter: Meter | None) -> None:
        """What is computed from now on has the bytes."""

    def release(self, buffer: Buffer) -> None:
        """What was computed up to now was the last in this buffer."""

    def settle(self) -> None:
        """Return once no copy is under way."""


class PlainLane:
    """Copies at once: for the CPU."""

    def copy(self, unit: Unit, buffer: Buffer, meter: Meter | None) -> None:
        copied = meter.copying() if meter else None
        for begin, end, data in unit.sends():
            buffer.memory[begin:end].copy_(data)
        if copied is not None:
            copied()

    def wait(self, buffer: Buffer, meter: Meter | None) -> None:
        pass

    def release(self, buffer: Buffer) -> None:
        pass

    def settle(self) -> None:
        pass


class CardLane:
    """Copies on a stream of their own."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._senders: dict[torch.device, torch.cuda.Stream] = {}

    def copy(self, unit: Unit, buffer: Buffer, meter: Meter | None) -> None:
        with torch.cuda.stream(self._stream):
            if buffer.left is not None:
                self._stream.wait_event(buffer.left)
            copied = meter.copying() if meter else None
            for begin, end, data in unit.sends():
                with self._sending_from(data.device):
                    buffer.memory[begin:end].copy_(data, non_blocking=True)
            if copied is not None:
                copied()
            buffer.arrived = torch.cuda.Event()
            buffer.arrived.record(self._stream)

    def _sending_from(self, device: torch.device) -> AbstractContextManager[Any]:
        """From another card torch sends on a stream of that card, for which ours waits. Its default
        stream would not do: a copy there begins once both cards have computed all they were given,
        and neither goes on before it has ended."""
        if device.type != "cuda":
            return nullcontext()
        if device not in self._senders:
            self._senders[device] = torch.cuda.Stream(device)
        return torch.cuda.stream(self._senders[device])

    def wait(self, buffer: Buffer, meter: Meter | None) -> None:
        waited = meter.waiting() if meter else None
        torch.cuda.current_stream().wait_event(buffer.arrived)
        if waited is not None:
            waited()

    def release(self, buffer: Buffer) -> None:
        buffer.left = torch.cuda.Event()
        buffer.left.record(torch.cuda.current_stream())

    def settle(self) -> None:
        self._stream.synchronize()


class Rotation:
    """The streamed units of one model and the buffers that they come through.

    Only the thread that draws may run them; nothing else may touch it while a job draws.
    """

    def __init__(self, units: Sequence[Unit], memories: Iterable[torch.Tensor], lane: Lane) -> None:
        self._units = tuple(units)
        self._buffers = [Buffer(memory) for memory in memories]
        self._lane = lane
        self._order = Order(units)
        self._current: Unit | None = None
        self._left: set[Any] = set()
        self.meter: Meter | None = None
        self._hooks: list[Any] = []
        for unit in units:
            unit.hide()
            for module in unit.modules:
                before, after = partial(self._enter, unit), partial(self._leave, unit)
                self._hooks.append(module.register_forward_pre_hook(before))
                self._hooks.append(module.register_forward_hook(after))

    @property
    def size_bytes(self) -> int:
        """What the buffers take on the device."""
        return sum(len(buffer.memory) for buffer in self._buffers)

    @property
    def elsewhere_bytes(self) -> int:
        """What its units take of another device's memory."""
        return sum(unit.size_bytes for unit in self._units if unit.elsewhere is not None)

    def settle(self) -> None:
        """After a job, however it ended: no unit is in its buffer and no copy under way."""
        for buffer in self._buffers:
            self._lane.release(buffer)
            buffer.busy = False
        for unit in self._units:
            unit.hide()
        self._lane.settle()
        self._current = None
        self._order.begin()
        self.meter = None

    def end(self) -> None:
        """The modules are as before; the buffers are gone with the last reference to this."""
        self.settle()
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._buffers.clear()

    def _enter(self, unit: Unit, module: Any, _: Any) -> None:
        self._order.runs(unit, module)
        if unit is self._current:
            return
        if self._current is not None:  # some of its modules did not run, or run later
            self._release(self._current)
        buffer = next((each for each in self._buffers if each.unit is unit), None)
        if buffer is None:
            buffer = self._fetch(unit, keep=())
        self._lane.wait(buffer, self.meter)
        buffer.busy = True
        buffer.show(unit)
        self._current = unit
        self._left = set()
        self._prefetch()

    def _leave(self, unit: Unit, module: Any, *_: Any) -> None:
        self._left.add(module)
        if unit is self._current and len(self._left) == len(unit.modules):
            self._release(unit)
            self._prefetch()

    def _release(self, unit: Unit) -> None:
        """Nothing is computed with the unit for now."""
        for buffer in self._buffers:
            if buffer.unit is unit:
                buffer.busy = False
                self._lane.release(buffer)
        unit.hide()
        self._current = None

    def _prefetch(self) -> None:
        """Let the next units come, as many as there are buffers in which nothing computes."""
        free = sum(not buffer.busy for buffer in self._buffers)
        coming = self._order.coming(free)
        there = {each.unit for each in self._buffers}
        for wanted in coming:
            if wanted not in there:
                self._fetch(wanted, keep=coming)

    def _fetch(self, unit: Unit, keep: Sequence[Unit]) -> Buffer:
        free = [each for each in self._buffers if not each.busy and each.unit not in keep]
        buffer = free[0]
        buffer.unit = None  # should the copy fail, the buffer holds nothing
        self._lane.copy(unit, buffer, self.meter)
        buffer.unit = unit
        return buffer


def chosen(sizes: Sequence[int], wanted_bytes: int) -> list[int]:
    """Which units are streamed, by number: so many bytes or a little more, spread evenly."""
    total_bytes, so_far_bytes, streamed_bytes = sum(sizes), 0, 0
    numbers = []
    for number, size_bytes in enumerate(sizes):
        so_far_bytes += size_bytes
        if streamed_bytes * total_bytes < wanted_bytes * so_far_bytes:
            streamed_bytes += size_bytes
            numbers.append(number)
    return numbers
