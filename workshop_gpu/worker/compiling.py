"""Blocks are compiled while nothing else goes on, and jobs draw with what is ready: all of a job
or nothing of it.

A job that draws without is watched: how its blocks are called is noted, by types and sizes. When
the host says that it is time, a process of its own makes twins for these calls (see `compiler.py`);
it is halted while somebody draws. A twin holds for other sizes too. Where one turns up for which
none does, the job begins anew without, and the sizes are noted for the next time.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from workshop_gpu.conductor.rungs import DENOISER
from workshop_gpu.worker import protocol
from workshop_gpu.worker.block_calls import Call, NotDescribable, call_of, kind_of
from workshop_gpu.worker.blocks import repeated_blocks
from workshop_gpu.worker.compiler import Task, Wanted
from workshop_gpu.worker.compiler_process import CompilerProcess
from workshop_gpu.worker.components import OpenModel
from workshop_gpu.worker.failures import Success, attempt
from workshop_gpu.worker.protocol import GenerateParams
from workshop_gpu.worker.turns import Turns
from workshop_gpu.worker.twin_store import TwinStore
from workshop_gpu.worker.twins import LoadedTwin, Twin, block_tensors

_log = logging.getLogger(__name__)

_REST_S, _MOST_RESTS = 0.5, 60
"""What was compiled before is read when nobody draws, or after half a minute."""
_MOST_CALLS = 8
"""A kind of block that is called in more ways than these has something in its calls that changes
from step to step: it stays as it is."""


class NoTwin(Exception):
    """No twin holds for a call: the job has to begin anew without them."""


@dataclass(eq=False)
class _Block:
    """A block of a denoiser. `modules` are those inside it as it was looked at."""

    component: str
    path: str
    module: Any
    kind: str
    modules: tuple[Any, ...]
    own: Callable[[], list[torch.Tensor]]

    @property
    def is_plain(self) -> bool:
        """Whether it is as it was, and only it as a whole has hooks: none of them is passed over
        when a twin runs instead."""
        there = tuple(self.module.modules())
        if len(there) != len(self.modules) or any(
            one is not other for one, other in zip(there, self.modules, strict=True)
        ):
            return False
        return not any(_is_hooked(inner) for inner in there[1:])


@dataclass(eq=False)
class _Known:
    """What is known of an open model's blocks."""

    model: OpenModel
    blocks: tuple[_Block, ...]
    calls: dict[str, dict[Call, None]] = field(default_factory=dict)
    """By kind, how blocks were called for which there was no twin."""
    covered: set[tuple[str, Call]] = field(default_factory=set)
    """Kinds and calls for which there is nothing more to note."""
    watched: bool = False
    """Whether a whole job was."""
    missed: set[object] = field(default_factory=set)
    """Jobs of these sizes need twins that are not there."""

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(block.kind for block in self.blocks))

    def were_tried(self, wanted: Sequence[Wanted]) -> None:
        """There are twins now for these, or there can be none."""
        tried = {(each.kind, each.call) for each in wanted}
        left = {
            kind: {each: None for each in calls if (kind, each) not in tried}
            for kind, calls in self.calls.items()
        }
        self.calls = {kind: calls for kind, calls in left.items() if calls}
        self.covered.clear()
        self.missed.clear()


class Compiling:
    """The compiled blocks of one worker. Without a `store` there are none, and all jobs draw
    without."""

    def __init__(
        self,
        store: TwinStore | None,
        turns: Turns,
        kind_of_device: str,
        tell: Callable[[protocol.Compiled], None],
        process: CompilerProcess | None = None,
    ) -> None:
        self._store = store
        self._turns = turns
        self._device = kind_of_device
        self._tell = tell
        self._process = process or CompilerProcess()
        self._known: dict[str, _Known] = {}
        self._readings: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._compilations: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    @property
    def possible(self) -> bool:
        """Whether blocks can be compiled for this device."""
        return self._store is not None

    def start(self) -> None:
        """Begin to take orders. What is there already is not read behind what is compiled."""
        for name, orders in (("twins", self._readings), ("compiling", self._compilations)):
            threading.Thread(target=_work_for_ever, args=(orders,), name=name, daemon=True).start()

    # Orders

    def look_at(self, model: OpenModel) -> None:
        """The model has come, and nobody draws with it yet."""
        there = self._known.get(model.source.model)
        if self._store is not None and (there is None or there.model is not model):
            self._known[model.source.model] = _Known(model, tuple(_blocks_of(model)))

    def recall(self, model: str) -> None:
        """What was compiled before for the blocks of a model that was looked at is read, soon;
        then Compiled tells that they are ready."""
        known = self._known.get(model)
        if self._store is not None and known is not None and known.blocks:
            self._readings.put(partial(self._read, self._store, model))

    def compile(self, model: str) -> None:
        """Make the twins that the model's jobs would have had; answered by Compiled."""
        self._compilations.put(partial(self._compile, model))

    def closed(self, model: OpenModel) -> None:
        """The model is forgotten: its modules, which show the pool's memory, are held no longer."""
        self._known.pop(model.source.model, None)

    # For the lane that draws

    @contextmanager
    def standing_back(self) -> Iterator[None]:
        """While somebody draws the compiler is halted."""
        with self._process.halted():
            yield

    def chooses(self, model: OpenModel, wanted: Sequence[GenerateParams]) -> bool:
        """Whether a job is to be drawn with compiled blocks, before it begins."""
        known = self._of(model)
        return (
            known is not None
            and wanted[0].compiled is not False
            and _size(wanted) not in known.missed
            and self._is_ready(known)
        )

    @contextmanager
    def drawing(
        self, model: OpenModel, wanted: Sequence[GenerateParams], compiled: bool
    ) -> Iterator[None]:
        """During one call of the pipeline its blocks run compiled, or are watched. Raises NoTwin
        from within the call where a block is called otherwise than ever before."""
        known = self._of(model)
        if known is None or self._store is None:
            yield
            return
        found: dict[tuple[str, Call], LoadedTwin] = {}
        for block in known.blocks:
            if compiled and self._store.has(block.kind):
                missed = partial(self._missed, known, wanted)
                block.module.forward = _Twinned(block, self._store, found, missed)
            elif not compiled:
                block.module.forward = _Watched(block, partial(self._note, known))
        try:
            yield
            known.watched = known.watched or not compiled
        finally:
            for block in known.blocks:
                vars(block.module).pop("forward", None)

    def wants(self, model: str) -> bool:
        """Whether there are calls to make twins for."""
        known = self._known.get(model)
        return known is not None and bool(known.calls)

    def _of(self, model: OpenModel) -> _Known | None:
        """What is known of the model as it is now; None where its blocks are to be left alone."""
        known = self._known.get(model.source.model)
        if known is None or known.model is not model or model.placement.sliced:
            return None
        return known if all(block.is_plain for block in known.blocks) else None

    def _is_ready(self, known: _Known) -> bool:
        """Whether all that could be compiled is."""
        store = self._store
        if store is None or not any(store.has(kind) for kind in known.kinds):
            return False
        if known.watched:
            return all(store.knows(kind) for kind in known.calls)
        return all(store.knows(kind) for kind in known.kinds)

    def _note(
        self, known: _Known, block: _Block, call: Call, tensors: Sequence[torch.Tensor]
    ) -> None:
        """Of each kind a few calls are kept for which there is no twin."""
        assert self._store is not None
        if (block.kind, call) in known.covered:
            return
        known.covered.add((block.kind, call))
        if self._store.find(block.kind, call, tensors) is None:
            self._wish(self._store, known, block.kind, call)

    def _missed(
        self, known: _Known, wanted: Sequence[GenerateParams], block: _Block, call: Call
    ) -> None:
        """The next job of this size does not try."""
        assert self._store is not None
        known.missed.add(_size(wanted))
        self._wish(self._store, known, block.kind, call)

    def _wish(self, store: TwinStore, known: _Known, kind: str, call: Call) -> None:
        calls = known.calls.get(kind, {})
        if len(calls) < _MOST_CALLS and not store.impossible(kind, call):
            known.calls.setdefault(kind, {})[call] = None

    # The threads

    def _read(self, store: TwinStore, model: str) -> None:
        self._wait_for_rest()
        known = self._known.get(model)
        if known is None:
            return
        attempt(partial(store.read, known.kinds))
        if self._is_ready(known):
            self._tell(protocol.Compiled(model, ready=True))

    def _wait_for_rest(self) -> None:
        for _ in range(_MOST_RESTS):
            if not self._turns.taken:
                return
            time.sleep(_REST_S)

    def _compile(self, model: str) -> None:
        """Every order is answered."""
        known, store = self._known.get(model), self._store
        if known is None or store is None:
            self._tell(protocol.Compiled(model, ready=False))
            return
        with self._turns.turn():  # who draws notes calls
            wanted = tuple(_wanted(known))
        task = Task(known.model.source, self._device, store.backend, str(store.folder), wanted)
        del known  # for minutes the compiler works, and the model may be closed meanwhile
        problem = self._made(store, task) if wanted else ""
        known = self._known.get(model)
        if known is not None:
            with self._turns.turn():
                known.were_tried(wanted)
        ready = known is not None and self._is_ready(known)
        self._tell(protocol.Compiled(model, ready, "" if ready else problem))

    def _made(self, store: TwinStore, task: Task) -> str:
        """Says why a twin could not be made, "" where all were. What failed is not tried again."""
        problems: list[str] = []
        answered: set[tuple[str, str]] = set()

        def arrived(twin: Twin) -> None:
            store.add(twin)
            answered.add((twin.kind, twin.form))
            problems.extend([twin.problem] if twin.problem else [])

        outcome = attempt(partial(self._process.run, task, arrived))
        problems.append(
            outcome.value if isinstance(outcome, Success) else "the compiler did not start"
        )
        for each in task.wanted:
            if (each.kind, each.call.form) not in answered:
                store.give_up(each.kind)
        return problems[0]


def _work_for_ever(orders: "queue.SimpleQueue[Callable[[], None]]") -> None:
    while True:
        orders.get()()


Note = Callable[[_Block, Call, Sequence[torch.Tensor]], None]


class _Watched:
    """A block's forward that notes how it is called."""

    def __init__(self, block: _Block, note: Note) -> None:
        self._block = block
        self._forward = block.module.forward
        self._note = note

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            call, tensors = call_of(args, kwargs)
            self._note(self._block, call, tensors)
        except NotDescribable:
            pass
        return self._forward(*args, **kwargs)


class _Twinned:
    """A block's forward that lets a twin compute."""

    def __init__(
        self,
        block: _Block,
        store: TwinStore,
        found: dict[tuple[str, Call], LoadedTwin],
        missed: Callable[[_Block, Call], None],
    ) -> None:
        """`found` is shared by all blocks of a model during a call of its pipeline."""
        self._block = block
        self._store = store
        self._found = found
        self._missed = missed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call, tensors = call_of(args, kwargs)
        tensors = [each.contiguous() for each in tensors]
        kind = self._block.kind
        twin = self._found.get((kind, call)) or self._store.find(kind, call, tensors)
        if twin is None:
            self._missed(self._block, call)
            raise NoTwin
        self._found[kind, call] = twin
        try:
            return twin([*self._block.own(), *tensors])
        except torch.OutOfMemoryError:
            raise  # as it would have been without
        except Exception:
            _log.exception("A compiled block failed; it is not used any more")
        self._store.forget(kind, twin)
        raise NoTwin


def _blocks_of(model: OpenModel) -> Iterator[_Block]:
    """The denoisers' repeated blocks that are worth it: what convolutions do takes nearly all of
    the time of those that have some, and is no faster for it."""
    for component in model.with_role(DENOISER):
        paths = {id(module): path for path, module in component.module.named_modules()}
        for block in repeated_blocks(component.module):
            inner = tuple(block.modules())
            if any(isinstance(each, torch.nn.modules.conv._ConvNd) for each in inner):
                continue
            try:
                kind = kind_of(block)
            except NotDescribable:
                continue
            own = block_tensors(block)
            yield _Block(component.name, paths[id(block)], block, kind, inner, own)


def _wanted(known: _Known) -> Iterator[Wanted]:
    for kind, wanted in known.calls.items():
        block = next(each for each in known.blocks if each.kind == kind)
        for call in wanted:
            yield Wanted(block.component, block.path, kind, call)


def _is_hooked(module: Any) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _size(wanted: Sequence[GenerateParams]) -> object:
    """What the sizes within a call depend on, as far as one can know before it."""
    first = wanted[0]
    negative = bool(first.negative_prompt)
    return len(wanted), first.width, first.height, first.guidance, negative
