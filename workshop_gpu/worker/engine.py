"""The lane: one order after the other, in order of arrival; whatever happens, it goes on."""

import os
import queue
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version

from workshop_gpu.conductor import errors
from workshop_gpu.worker import protocol
from workshop_gpu.worker.batch import Batch, Drawn, divided
from workshop_gpu.worker.devices import Device
from workshop_gpu.worker.failures import Broken, Cancelled, Outcome, OutOfMemory, Success, attempt
from workshop_gpu.worker.images import ImageRecord
from workshop_gpu.worker.link import Link, end_process
from workshop_gpu.worker.pipelines import OpenModel, open_model, repair_dtypes
from workshop_gpu.worker.previews import PreviewMap

EXIT_DEVICE_LOST = 5

_IDLE_READING_S = 2.0

Order = protocol.Load | protocol.Evict | protocol.Run


class Engine:
    """Loads, evicts and draws on one device. All its methods run on the lane's thread."""

    def __init__(self, device: Device, link: Link) -> None:
        self._device = device
        self._link = link
        self._models: dict[str, OpenModel] = {}
        self._previews: dict[str, PreviewMap] = {}
        self._versions = {name: version(name) for name in ("torch", "diffusers", "transformers")}

    def work_for_ever(self) -> None:
        """Say that the worker is ready, then take orders until the process ends."""
        self._link.send(
            protocol.Ready(
                pid=os.getpid(),
                device_name=self._device.name,
                total_bytes=self._device.total_bytes,
                memory=self._memory(),
                versions=self._versions,
            )
        )
        cache_may_hold_memory = False
        while True:
            try:
                order = self._link.inbox.get(timeout=_IDLE_READING_S)
            except queue.Empty:
                if cache_may_hold_memory:
                    # Between jobs in a row the allocator's cache saves time; once idle, what it
                    # keeps is only missing elsewhere.
                    self._give_back()
                    cache_may_hold_memory = False
                self._link.send(protocol.MemoryReading(self._memory()))
            else:
                self._carry_out(order)
                cache_may_hold_memory = True

    def _carry_out(self, order: Order) -> None:
        match order:
            case protocol.Load():
                self._load(order.source)
            case protocol.Evict():
                self._evict(order.model)
            case protocol.Run():
                self._run(order)

    # Models

    def _load(self, source: protocol.ModelSource) -> None:
        started = time.monotonic()
        there = self._models.get(source.model)
        if there is not None and there.source != source:
            self._drop(source.model)
            there = None
            self._give_back()
        if there is None:
            outcome = attempt(lambda: self._open(source))
            self._give_back()
            if not isinstance(outcome, Success):
                error = self._explain(
                    outcome, f'loading "{source.model}"', partial(errors.LoadFailed, source.model)
                )
                self._link.send(protocol.LoadFailed(source.model, error, self._memory()))
                return
            there = self._models[source.model] = outcome.value
            self._prepare_previews(there)
        seconds_s = time.monotonic() - started
        self._link.send(
            protocol.Loaded(source.model, there.weights_bytes, seconds_s, self._memory())
        )

    def _open(self, source: protocol.ModelSource) -> OpenModel:
        def report(done_bytes: int, total_bytes: int) -> None:
            self._link.send(protocol.Loading(source.model, done_bytes, total_bytes))

        model = open_model(source, self._device, report)
        free_bytes = self._device.free_bytes(self._weights_bytes())
        if self._device.allocated_bytes() is None and model.weights_bytes > free_bytes:
            # A pretended device is as strict as a real one.
            what = f'loading "{source.model}"'
            raise errors.OutOfMemory(what, model.weights_bytes, free_bytes)
        return model

    def _prepare_previews(self, model: OpenModel) -> None:
        previews = self._previews.setdefault(model.source.path, PreviewMap())
        if previews.untouched:
            attempt(lambda: previews.guess_from_decoder(model.pipeline))
            self._give_back()

    def _evict(self, model: str) -> None:
        before_bytes = self._allocated_bytes()
        if model in self._models:
            self._drop(model)
            self._give_back()
        freed_bytes = max(0, before_bytes - self._allocated_bytes())
        self._link.send(protocol.Evicted(model, freed_bytes, self._memory()))

    def _drop(self, model: str) -> None:
        self._models.pop(model, None)

    # Jobs

    def _run(self, run: protocol.Run) -> None:
        model = self._models.get(run.model)
        for members in divided(run.members, model.pipeline if model else None):
            batch = Batch(members, self._link, partial(self._answer, run.model))
            outcome = attempt(partial(self._draw, batch, run.model))
            if not isinstance(outcome, Success):
                self._clean_up(run.model)
                for job in batch.unanswered():
                    self._answer(run.model, job, outcome)

    def _draw(self, batch: Batch, name: str) -> None:
        if not batch.start():
            return
        model = self._models.get(name)
        if model is None:
            raise errors.GenerationFailed(name, "it is not loaded on this worker")
        previews = self._previews[model.source.path]
        batch.draw(model, previews, self._device, partial(self._record, name))

    def _record(
        self, model: str, params: protocol.GenerateParams, metadata: dict[str, str]
    ) -> ImageRecord:
        return ImageRecord(
            model=model,
            params=params,
            metadata=metadata,
            versions=self._versions,
            device=self._device.name,
        )

    def _answer(self, model: str, job: str, outcome: Outcome[Drawn]) -> None:
        self._link.cancellations.ended(job)
        memory = self._memory()
        match outcome:
            case Success(drawn):
                self._link.send(
                    protocol.Done(
                        job, drawn.files, drawn.seconds_s, drawn.peak_bytes, memory, drawn.batch
                    )
                )
            case Cancelled():
                self._link.send(protocol.Stopped(job, memory))
            case _:
                error = self._explain(
                    outcome, "generating", partial(errors.GenerationFailed, model)
                )
                self._link.send(protocol.Failed(job, error, memory))

    def _clean_up(self, model: str) -> None:
        self._give_back()
        if model not in self._models:
            return
        repaired = attempt(partial(repair_dtypes, self._models[model]))
        if not isinstance(repaired, Success):
            end_process(EXIT_DEVICE_LOST, f'"{model}" could not be mended after a failed job')

    # Errors and memory

    def _give_back(self) -> None:
        """Free what nobody uses. A CUDA context that broke cannot be mended: then the worker ends.

        The host sees the process end and puts its job back or fails it.
        """
        outcome = attempt(self._device.give_back)
        if isinstance(outcome, Broken):
            end_process(EXIT_DEVICE_LOST, f"the device no longer answers: {outcome.problem}")

    def _explain(
        self,
        outcome: OutOfMemory | Broken | Cancelled | errors.ErrorReport,
        what: str,
        broken: Callable[[str], errors.WorkshopError],
    ) -> errors.ErrorReport:
        match outcome:
            case OutOfMemory(needed_bytes):
                free_bytes = self._device.free_bytes(self._weights_bytes())
                return errors.OutOfMemory(what, needed_bytes, free_bytes).report()
            case Broken(problem):
                return broken(problem).report()
            case errors.ErrorReport():
                return outcome
            case Cancelled():
                return broken("it was cancelled").report()

    def _weights_bytes(self) -> int:
        return sum(model.weights_bytes for model in self._models.values())

    def _allocated_bytes(self) -> int:
        counted = self._device.allocated_bytes()
        return self._weights_bytes() if counted is None else counted

    def _memory(self) -> protocol.Memory:
        return self._device.memory(self._weights_bytes())
