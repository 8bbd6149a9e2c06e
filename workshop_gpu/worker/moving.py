"""The lane that moves models: loads and evictions, one after the other, beside the drawing."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import msgspec

from workshop_gpu.conductor import errors
from workshop_gpu.conductor.rungs import VAE
from workshop_gpu.worker import protocol
from workshop_gpu.worker.ahead import Ahead
from workshop_gpu.worker.compiling import Compiling
from workshop_gpu.worker.components import OpenModel
from workshop_gpu.worker.devices import CudaDevice, Device
from workshop_gpu.worker.failures import (
    Broken,
    Cancelled,
    Outcome,
    OutOfMemory,
    Success,
    attempt,
)
from workshop_gpu.worker.link import Link, Move, end_process
from workshop_gpu.worker.loading import Loader
from workshop_gpu.worker.loras import Loras
from workshop_gpu.worker.neighbours import Neighbours
from workshop_gpu.worker.placements import lacking
from workshop_gpu.worker.pool import PoolClient
from workshop_gpu.worker.previews import PreviewMap
from workshop_gpu.worker.staging import Stager
from workshop_gpu.worker.turns import Turns

EXIT_DEVICE_LOST = 5

_KEPT_S = 1.0
"""The load for which memory is kept is ordered as soon as the host hears of the eviction."""


class Mover:
    """Carries out the orders to load and to evict, on a thread of its own."""

    def __init__(
        self,
        device: Device,
        link: Link,
        turns: Turns,
        client: PoolClient,
        ahead: Ahead,
        compiling: Compiling,
        neighbours: Neighbours | None = None,
        loras: Loras | None = None,
    ) -> None:
        self._device = device
        self._link = link
        self._turns = turns
        self._neighbours = neighbours or Neighbours()
        self.loras = loras or Loras()
        """Those of its models."""
        self._loader = Loader(device, turns, client, ahead, self._neighbours, self._closed)
        self._ahead = ahead
        self._compiling = compiling
        self._previews: dict[str, PreviewMap] = {}
        self._waiting: deque[Move] = deque()
        self.quiet = True
        """Whether no model comes or goes, and no memory is kept for one."""
        self._keeps = False

    def start(self) -> None:
        """Begin to take orders."""
        threading.Thread(target=self._work_for_ever, name="moves", daemon=True).start()

    # For the lane that draws

    @contextmanager
    def using(self, model: str) -> Iterator[OpenModel]:
        """The model, which does not leave meanwhile. Raises GenerationFailed if it is not there.

        What a job left changed in the weights (a cast that was broken off) is mended after it.
        """
        found = self._loader.resident(model)
        if found is None:
            raise errors.GenerationFailed(model, "it is not loaded on this worker")
        with found.in_use:
            if not found.resident:
                raise errors.GenerationFailed(model, "it is not loaded on this worker")
            try:
                yield found
            finally:
                self._device.settle()
                for component in found.components:
                    component.mend()

    @property
    def stager(self) -> Stager:
        """Brings the components of a model that are on the device only while they are used."""
        return self._loader.stager

    def pipeline(self, model: str) -> Any:
        """The model's pipeline, to look at its make; None if the model is not there."""
        found = self._loader.resident(model)
        return found.pipeline if found else None

    def previews(self, model: OpenModel) -> PreviewMap:
        """What is known of the model's latents; it outlives evictions."""
        return self._previews.setdefault(model.source.path, PreviewMap())

    @property
    def neighbours(self) -> tuple[str, ...]:
        """The other devices whose memory models may use."""
        return self._neighbours.names

    @property
    def weights_bytes(self) -> int:
        """What all models take on the device together."""
        return self._loader.resident_bytes

    @property
    def kept_bytes(self) -> int:
        """What is kept on the host for later jobs: LoRAs, and what encoders gave for prompts."""
        return self.loras.kept_bytes + self._loader.embeddings_bytes

    def explain(
        self,
        outcome: OutOfMemory | Broken | Cancelled | errors.ErrorReport,
        what: str,
        broken: Callable[[str], errors.WorkshopError],
        phase: str,
    ) -> errors.ErrorReport:
        """What went wrong, and in which phase of the work, as it goes to people."""
        match outcome:
            case OutOfMemory(needed_bytes):
                free_bytes = self._device.free_bytes(self.weights_bytes)
                return errors.OutOfMemory(what, needed_bytes, free_bytes, phase).report()
            case Broken(problem):
                return broken(problem).report()
            case errors.ErrorReport():
                return outcome
            case Cancelled():
                return broken("it was cancelled").report()

    def _closed(self, model: OpenModel) -> None:
        self.loras.closed(model)
        self._compiling.closed(model)

    # The lane

    def _work_for_ever(self) -> None:
        attempt(self._loader.prepare)
        while True:
            order = self._next()
            self.quiet = False
            with self._ahead.stands_aside():
                self._carry_out(order)
                if not self._keeps:
                    self._loader.fill_pool(wanted=self._is_wanted)
            self.quiet = not (self._keeps or self._loader.fills_pool)

    def _carry_out(self, order: Move | None) -> None:
        match order:
            case protocol.Load():
                self._load(order)
            case protocol.Evict(model, load_follows):
                self._evict(model, load_follows)
            case None:
                self._keep_no_longer()
            case protocol.FreePool(size_bytes):
                self._loader.free(size_bytes)

    def _next(self) -> Move | None:
        """The next order; None: the load for which memory is kept does not come."""
        if self._waiting:
            return self._waiting.popleft()
        try:
            return self._link.moves.get(timeout=_KEPT_S if self._keeps else None)
        except queue.Empty:
            return None

    def _load_follows(self) -> bool:
        """Whether the next order is already there and loads a model."""
        if not self._waiting:
            with suppress(queue.Empty):
                self._waiting.append(self._link.moves.get_nowait())
        return bool(self._waiting) and isinstance(self._waiting[0], protocol.Load)

    def _load(self, order: protocol.Load) -> None:
        source, started = order.source, time.monotonic()

        def report(done_bytes: int, total_bytes: int, bytes_per_s: float) -> None:
            progress = protocol.Loading(source.model, done_bytes, total_bytes, bytes_per_s)
            self._link.send(progress)

        changes = self._loader.resident(source.model) is not None
        load = partial(self._loader.load, source, report, order.placement, order.most_bytes)
        outcome = attempt(load)
        if not isinstance(outcome, Success):
            self._loader.let_linger_go()
            self._keeps = False
            give_back(self._device, outcome)
            broken = partial(errors.LoadFailed, source.model)
            error = self.explain(outcome, f'loading "{source.model}"', broken, "load")
            self._link.send(protocol.LoadFailed(source.model, error, self.memory()))
            return
        model = outcome.value
        attempt(partial(self._compiling.look_at, model))
        seconds_s = time.monotonic() - started
        self._link.send(
            protocol.Loaded(
                source.model,
                model.weights_bytes,
                seconds_s,
                self.memory(),
                parts=model.part_bytes,
                no_pool=self._loader.no_pool_because,
                placement=model.placement,
                roles=model.roles,
                transient_bytes=model.transient_bytes,
                lacks=lacking(model.pipeline),
                encoders=model.encoder_bytes,
            )
        )
        self._keeps = self._keeps or changes  # what it had in its other placement
        self._compiling.recall(source.model)
        self._keep_no_longer()
        self._prepare_previews(model)

    def _is_wanted(self) -> bool:
        """Whether there is another order."""
        return bool(self._waiting) or not self._link.moves.empty()

    def _prepare_previews(self, model: OpenModel) -> None:
        """After the model is ready: nobody waits for a preview's colours."""
        previews = self.previews(model)
        if previews.untouched and model.has_on_device(VAE):
            with self._turns.turn():
                attempt(lambda: previews.guess_from_decoder(model.pipeline))

    def _evict(self, model: str, load_follows: bool) -> None:
        """What the model leaves stays where a load follows, which may need just that.

        To give memory back to the driver and to get it again takes a fifth of the time in which
        the next model comes.
        """
        freed_bytes = self._loader.evict(model)
        memory = self.memory()
        if load_follows or self._load_follows():
            # Parts that wait to be used again, and what only this model had, which is let go.
            kept_bytes = self._loader.lingering_bytes + self._device.cached_bytes()
            self._keeps = self._keeps or kept_bytes > 0
            memory = msgspec.structs.replace(
                memory,
                used_bytes=max(0, memory.used_bytes - kept_bytes),
                ours_bytes=max(0, memory.ours_bytes - kept_bytes),
            )
        elif self._loader.let_linger_go() or self._keeps or self._device.cached_bytes():
            self._return_memory()
            memory = self.memory()
        self._link.send(protocol.Evicted(model, freed_bytes, memory))

    def _keep_no_longer(self) -> None:
        """Give back what was kept for a load, and what the load did not take of it."""
        if self._loader.let_linger_go() or self._keeps:
            self._return_memory()
            self._link.send(protocol.MemoryReading(self.memory()))

    def _return_memory(self) -> None:
        self._keeps = False
        if isinstance(self._device, CudaDevice):
            attempt(self._device.return_cache)

    def memory(self) -> protocol.Memory:
        """The memory now, of this device and what is held of others."""
        here = self._device.memory(self.weights_bytes)
        held = self._neighbours.held(self._loader.elsewhere_bytes)
        return msgspec.structs.replace(here, elsewhere=held) if held else here


def give_back(device: Device, after: Outcome[Any] | None = None) -> None:
    """Free what nobody uses, `after` an attempt. A CUDA context that broke cannot be mended, nor a
    driver that failed be trusted: then the worker ends.

    The host sees the process end and puts its job back or fails it.
    """
    if isinstance(after, Broken) and after.by_driver:
        end_process(EXIT_DEVICE_LOST, f"the card's driver failed: {after.problem}")
    outcome = attempt(device.give_back)
    if isinstance(outcome, Broken):
        end_process(EXIT_DEVICE_LOST, f"the device no longer answers: {outcome.problem}")
