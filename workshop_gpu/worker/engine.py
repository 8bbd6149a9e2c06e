"""The lane that draws: one job after the other, in order of arrival; whatever happens, it goes on.

Models come and go on a lane of their own (moving.py), so that a load never waits for a picture.
"""

import os
import queue
from functools import partial
from importlib.metadata import version

from workshop_gpu.conductor import errors
from workshop_gpu.worker import protocol
from workshop_gpu.worker.batch import Batch, Drawn, Tools, divided
from workshop_gpu.worker.bus import bus_bytes_per_s
from workshop_gpu.worker.compiling import Compiling
from workshop_gpu.worker.devices import Device
from workshop_gpu.worker.failures import Cancelled, Outcome, Success, attempt
from workshop_gpu.worker.images import ImageRecord, StepProfile
from workshop_gpu.worker.leaks import LeakCheck
from workshop_gpu.worker.link import Link
from workshop_gpu.worker.moving import Mover, give_back
from workshop_gpu.worker.turns import Turns
from workshop_gpu.worker.writing import Writer

_IDLE_READING_S = 2.0


class Engine:
    """Draws on one device. All its methods run on the lane's thread."""

    def __init__(
        self, device: Device, link: Link, mover: Mover, turns: Turns, compiling: Compiling
    ) -> None:
        self._device = device
        self._link = link
        self._mover = mover
        self._turns = turns
        self._compiling = compiling
        self._leaks = LeakCheck(device)
        self._writer = Writer(link)
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
                bus_bytes_per_s=bus_bytes_per_s(self._device.torch_device),
                compiles=self._compiling.possible,
                neighbours=self._mover.neighbours,
            )
        )
        cache_may_hold_memory = False
        while True:
            try:
                run = self._link.jobs.get(timeout=_IDLE_READING_S)
            except queue.Empty:
                if cache_may_hold_memory:
                    # Between jobs in a row the allocator's cache saves time; once idle, what it
                    # keeps is only missing elsewhere.
                    give_back(self._device)
                    cache_may_hold_memory = False
                self._link.send(protocol.MemoryReading(self._memory()))
            else:
                with self._compiling.standing_back():
                    self._run(run)
                cache_may_hold_memory = True
                self._check_for_leaks()

    def _check_for_leaks(self) -> None:
        """Only while no model comes or goes: its bytes would be taken for what a job left."""
        if not self._mover.quiet:
            return
        weights_bytes, kept_bytes = self._mover.weights_bytes, self._mover.kept_bytes
        device_bytes, host_bytes = self._leaks.after_job(weights_bytes, kept_bytes)
        if (device_bytes or host_bytes) and self._mover.quiet:
            self._link.send(protocol.Drifted(device_bytes, host_bytes))

    # Jobs

    def _run(self, run: protocol.Run) -> None:
        for members in divided(run.members, self._mover.pipeline(run.model)):
            stager, loras = self._mover.stager, self._mover.loras
            tools = Tools(
                self._link,
                self._turns,
                self._device,
                stager,
                loras,
                self._compiling,
                self._writer,
            )
            answer = partial(self._answer, run.model)
            batch = Batch(members, tools, answer, compiles=run.compiles)
            outcome = attempt(partial(self._draw, batch, run.model))
            if not isinstance(outcome, Success):
                give_back(self._device, outcome)
                for job in batch.unanswered():
                    self._answer(run.model, job, outcome, batch.phase)

    def _draw(self, batch: Batch, name: str) -> None:
        # Who hears that it started can count on the model: it does not leave any more.
        with self._mover.using(name) as model:
            if not batch.start():
                return
            with self._turns.turn():
                previews = self._mover.previews(model)
                batch.draw(model, previews, partial(self._record, name))

    def _record(
        self,
        model: str,
        params: protocol.GenerateParams,
        metadata: dict[str, str],
        lora_sha256: dict[str, str],
        profile: tuple[StepProfile, ...],
    ) -> ImageRecord:
        return ImageRecord(
            model=model,
            params=params,
            metadata=metadata,
            versions=self._versions,
            device=self._device.name,
            lora_sha256=lora_sha256,
            profile=profile,
        )

    def _answer(self, model: str, job: str, outcome: Outcome[Drawn], phase: str = "") -> None:
        self._link.cancellations.ended(job)
        memory = self._memory()
        match outcome:
            case Success(drawn):
                report = protocol.Drawn(
                    job, drawn.seconds_s, drawn.peak_bytes, memory, drawn.batch, drawn.compiled,
                    self._compiling.wants(model), drawn.loras, drawn.steps_s,
                    drawn.encoded,
                )  # fmt: skip
                self._link.send(report)
                self._writer.tell(model, report, drawn.files)
            case Cancelled():
                self._link.send(protocol.Stopped(job, memory))
            case _:
                broken = partial(errors.GenerationFailed, model)
                error = self._mover.explain(outcome, "generating", broken, phase)
                self._link.send(protocol.Failed(job, error, memory))

    def _memory(self) -> protocol.Memory:
        return self._mover.memory()
