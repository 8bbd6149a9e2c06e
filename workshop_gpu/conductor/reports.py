"""What workers and the driver report. Facts never raise: a stale or repeated one changes nothing.

A fact is stale when it does not fit what the conductor has ordered: a load that ends on a slot
that is not loading, the end of a job that does not run (its worker died, it was put back).
"""

from workshop_gpu.conductor.changes import Changes
from workshop_gpu.conductor.compiled import not_as_asked
from workshop_gpu.conductor.effects import Notice
from workshop_gpu.conductor.errors import Fact, gigabytes
from workshop_gpu.conductor.estimates import contradicts
from workshop_gpu.conductor.events import (
    DeviceGone,
    DeviceReady,
    JobDrawn,
    JobFailed,
    JobFinished,
    JobProgressed,
    JobStarted,
    JobStopped,
    LoadFailed,
    MemoryRead,
    SlotCompiled,
    SlotEvicted,
    SlotLoaded,
    SlotProgressed,
    WorkerDied,
    WorkerDrifted,
)
from workshop_gpu.conductor.ledger import Ledger
from workshop_gpu.conductor.lending import (
    lend,
    replace_workers,
    tell_guests_to_leave,
    worker_holds,
)
from workshop_gpu.conductor.planner import moving_s
from workshop_gpu.conductor.planning import question_for, size_of, working_bytes
from workshop_gpu.conductor.records import Activity, Device, Job, Slot, State
from workshop_gpu.conductor.rungs import RESIDENT
from workshop_gpu.conductor.states import DeviceState, JobState, SlotState
from workshop_gpu.conductor.stepdown import StepDown

DeviceFact = DeviceReady | WorkerDied | WorkerDrifted | DeviceGone | MemoryRead
SlotFact = SlotProgressed | SlotLoaded | LoadFailed | SlotEvicted | SlotCompiled
JobFact = JobStarted | JobProgressed | JobDrawn | JobFinished | JobFailed | JobStopped


class Reports:
    """Applies facts."""

    def __init__(self, state: State, changes: Changes) -> None:
        self._state = state
        self._changes = changes
        self._step_down = StepDown(state, changes)

    # devices

    def apply_device(self, event: DeviceFact, now: float) -> None:
        device = self._state.devices.get(event.device)
        match event:
            case DeviceReady():
                self._ready(event, device, now)
            case WorkerDied() if device and device.state is not DeviceState.LOST:
                self._died(event, device, now)
            case WorkerDrifted() if device and device.takes_orders:
                self._drifted(event, device)
            case DeviceGone(_, reason, retry_s) if device:
                self._changes.empty(device, reason, now)
                device.state, device.reason, device.retry_s = DeviceState.LOST, reason, retry_s
                tell_guests_to_leave(self._state, device, f"{device.name} is gone")
            case MemoryRead() if device and device.state is DeviceState.READY:
                device.ledger.read(
                    event.used_bytes, event.ours_bytes, event.processes, event.taken_s
                )
                worker_holds(self._state, device, event.elsewhere)
            case _:
                pass
        if not isinstance(event, MemoryRead):
            self._state.count_devices()

    def _died(self, event: WorkerDied, device: Device, now: float) -> None:
        """A worker that never was ready says nothing about those that it would have served."""
        was_ready = device.state is DeviceState.READY and not device.retires
        self._changes.empty(device, event.reason, now, event.log)
        device.state, device.reason = DeviceState.STARTING, event.reason
        before = device.in_safe_mode
        device.deaths += was_ready
        if device.in_safe_mode and not before:
            self._say(
                device,
                f"The worker of {device.name} ended twice in a row ({event.reason}). Until it has "
                "made a picture it runs in safe mode: one job at a time, with as little on the GPU "
                "as can be.",
            )

    def _drifted(self, event: WorkerDrifted, device: Device) -> None:
        lost = event.device_bytes or event.host_bytes
        where = "the GPU" if event.device_bytes else "the host"
        device.retires = f"a planned restart: {gigabytes(lost)} on {where} were not given back"
        self._changes.touch(device)
        self._say(
            device,
            f"The worker of {device.name} does not give all memory back ({gigabytes(lost)} on "
            f"{where}). It is replaced when its jobs have ended; models then come back.",
        )

    def _recovered(self, device: Device) -> None:
        """It made a picture."""
        if device.in_safe_mode:
            self._say(device, f"The worker of {device.name} works again; safe mode is over.")
        device.deaths = 0

    def _say(self, device: Device, text: str) -> None:
        self._changes.effects.append(Notice(text, {"device": device.name}))

    def _ready(self, event: DeviceReady, device: Device | None, now: float) -> None:
        if device is None:
            settings = self._state.settings
            ledger = Ledger(settings.margin_fraction, settings.margin_max_bytes)
            device = self._state.devices[event.device] = Device(event.device, ledger)
        if device.state is DeviceState.READY:
            self._changes.empty(device, "it was started again", now)
        device.state, device.reason = DeviceState.READY, ""
        device.ledger.open(event.total_bytes, event.foreign_bytes)
        device.bus_bytes_per_s = event.bus_bytes_per_s
        device.compiles, device.neighbours = event.compiles, event.neighbours
        self._state.estimates.learn_bus(event.bus_bytes_per_s)
        replace_workers(self._state)

    # slots

    def apply_slot(self, event: SlotFact, now: float) -> None:
        device = self._state.devices.get(event.device)
        slot = device.slots.get(event.model) if device else None
        if isinstance(event, SlotCompiled) and device and device.compiling == event.model:
            device.compiling = ""
        if device is None or slot is None:
            return
        if not isinstance(event, SlotProgressed | SlotCompiled):
            device.ledger.changed_s = now
        if isinstance(event, SlotCompiled):
            self._compiled(event, device, slot)
            return
        if isinstance(event, SlotEvicted):
            if slot.state is SlotState.LEAVING and device.does(Activity.EVICTING, slot.model):
                self._changes.remove_slot(slot, event.freed_bytes, slot.leaves_because)
                device.rest()
            return
        if slot.state is not SlotState.LOADING:
            return
        match event:
            case SlotProgressed():
                slot.done_bytes, slot.total_bytes = event.done_bytes, event.total_bytes
                slot.bytes_per_s = event.bytes_per_s
            case SlotLoaded():
                self._loaded(event, device, slot, now)
            case LoadFailed(_, _, error):
                left = self._step_down.load_failed(slot, error, now)
                if left is not None:
                    self._changes.fail_slot(slot, left, now)
                    self._state.models[slot.model].wanted_s = None

    def _compiled(self, event: SlotCompiled, device: Device, slot: Slot) -> None:
        slot.compiled = event.ready
        slot.to_compile = False
        self._changes.touch(device)
        if event.problem:
            text = f"{slot.model} is drawn without compiled blocks: {event.problem.rstrip('.')}."
            self._changes.effects.append(Notice(text, {"model": slot.model}))

    def _loaded(self, event: SlotLoaded, device: Device, slot: Slot, now: float) -> None:
        """The measured weights count from here; those who waited pay for the load together."""
        state, model = self._state, self._state.models[event.model]
        self._correct_weights(event, device)
        self._changes.keep_free(slot)
        if event.placement == RESIDENT and not slot.uses:
            state.estimates.learn_load(event.model, event.weights_bytes, event.seconds_s)
        slot.state, slot.since_s = SlotState.READY, now
        state.copies_changed(event.model)
        if not slot.moves:  # an idle model that was placed otherwise was not used by that
            slot.used_s = now
        slot.placement = event.placement
        lend(state, slot, moves=False)
        slot.error = None
        slot.done_bytes = slot.total_bytes = device.ledger.weights_bytes(slot.model)
        model.wanted_s, model.load_deaths, model.is_suspect = None, 0, False
        device.rest()
        state.tolls.add(event.model, event.seconds_s, state.queue.waiting(event.model))
        if state.queue.awaits(event.model):
            slot.leaves_because = ""

    def _correct_weights(self, event: SlotLoaded, device: Device) -> None:
        measured = max(event.weights_bytes, sum(part.bytes for part in set(event.parts)))
        if measured <= 0 and event.placement == RESIDENT:
            return
        model, ledger = event.model, device.ledger
        estimated = ledger.weights_bytes(model)
        facts, estimates = self._state.models[model].facts, self._state.estimates
        if event.placement == RESIDENT:
            estimates.learn_weights(
                model, measured, facts.file_bytes, event.parts, event.roles, event.lacks,
                event.encoders,
            )  # fmt: skip
        elif event.roles:
            in_all = sum(role.size_bytes for role in event.roles)
            parts = estimates.parts(facts)
            estimates.learn_weights(
                model, in_all, facts.file_bytes, parts, event.roles, event.lacks, event.encoders
            )
        ledger.set_weights(model, measured, event.parts)
        if contradicts(measured, estimated):
            self._notice(
                f"Weights of {model} measured: {gigabytes(measured)}, not {gigabytes(estimated)}.",
                model,
                measured,
                estimated,
            )

    # jobs

    def apply_job(self, event: JobFact, now: float) -> None:
        job = self._state.running.get(event.job)
        if job is None:
            return
        if isinstance(event, JobDrawn | JobFailed | JobStopped):
            self._device_of(job).ledger.changed_s = now
        match event:
            case JobStarted():
                job.started_s = job.moved_s = now
            case JobProgressed():
                job.moved_s = now
                job.step = max(job.step, min(event.step, job.request.steps))
            case JobDrawn() if not job.drawn:
                device = self._device_of(job)
                if not device.in_safe_mode:  # what it took there says nothing about other runs
                    self._learn(event, job)
                job.went_on = not_as_asked(job, event.compiled) or job.went_on
                job.step = job.request.steps
                self._kept_loras(event, job, device)
                self._changes.drawn(job, now)
            case JobFinished():
                self._recovered(self._device_of(job))
                self._changes.end_job(job, JobState.DONE, now)
            case JobFailed(_, error) if self._step_down.run_failed(job, error, now):
                pass
            case JobFailed(_, error):
                self._changes.end_job(job, JobState.FAILED, now, error)
            case JobStopped() if job.error is not None:  # it took too long
                self._changes.end_job(job, JobState.FAILED, now, job.error)
            case JobStopped():
                self._changes.end_job(job, JobState.CANCELLED, now)

    def _kept_loras(self, event: JobDrawn, job: Job, device: Device) -> None:
        slot = device.slots.get(job.model)
        if slot is not None:
            slot.loras = event.loras

    def _learn(self, event: JobDrawn, job: Job) -> None:
        request, estimates = job.request, self._state.estimates
        model, pixels, batch = job.model, request.pixels, request.batch * max(1, event.batch)
        slot = self._device_of(job).slots.get(model)
        placement = slot.placement if slot else RESIDENT
        if slot is not None:
            slot.to_compile = event.to_compile
        listed = model in self._state.models
        together = max(1, event.batch)
        estimated = working_bytes(self._state, job, together, placement) if listed else 0
        moved_s = 0.0
        if listed and placement != RESIDENT:
            size = size_of(job, together)
            question = question_for(self._state, model, size, 0, self._device_of(job))
            moved_s = moving_s(question, placement)
        estimates.learn_run(
            model,
            pixels,
            request.steps,
            event.seconds_s,
            batch,
            placement.name,
            moved_s,
            event.compiled,
            event.steps_s,
            request.images,
            encoded=event.encoded,
        )
        if event.compiled and event.peak_bytes <= estimated:
            return  # room is kept for those that are drawn without
        own_bytes = max(0, event.peak_bytes - request.beside_bytes)
        news = estimates.learn_working(model, pixels, batch, own_bytes, placement.kind)
        if news and contradicts(event.peak_bytes, estimated):
            self._notice(
                f"Working memory of {model} measured: {gigabytes(event.peak_bytes)}, "
                f"not {gigabytes(estimated)} ({batch} × {pixels} pixels).",
                model,
                event.peak_bytes,
                estimated,
            )

    def _device_of(self, job: Job) -> Device:
        return self._state.devices[job.device or ""]

    def _notice(self, text: str, model: str, measured: int, estimated: int) -> None:
        facts: dict[str, Fact] = {
            "model": model,
            "measured_bytes": measured,
            "estimated_bytes": estimated,
        }
        self._changes.effects.append(Notice(text, facts))
