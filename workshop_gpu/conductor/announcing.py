"""What people are told: views of the records, and only those that differ from the last ones."""

import msgspec

from workshop_gpu.conductor.dispatch import waiting_for
from workshop_gpu.conductor.effects import (
    AnnounceDevice,
    AnnounceJob,
    AnnounceSlot,
    DeviceView,
    Effect,
    HoldView,
    JobView,
    SlotView,
    Snapshot,
)
from workshop_gpu.conductor.fetching import awaits_download
from workshop_gpu.conductor.records import Activity, Device, Hold, Job, Slot, State
from workshop_gpu.conductor.states import DeviceState, SlotState
from workshop_gpu.conductor.waits import Lane, Turn, expected_waits, rounded


def device_view(device: Device) -> DeviceView:
    """A device with its account."""
    ledger = device.ledger
    return DeviceView(
        device=device.name,
        state=device.state.value,
        total_bytes=ledger.total_bytes,
        free_bytes=ledger.free_bytes,
        holders=ledger.holders(),
    )


def slot_view(state: State, slot: Slot, now: float) -> SlotView:
    """A slot with those who use it."""
    model = state.models.get(slot.model)
    idle = slot.state is SlotState.READY and slot.running is None
    return SlotView(
        device=slot.device,
        model=slot.model,
        state=slot.state,
        bytes=state.devices[slot.device].ledger.weights_bytes(slot.model),
        done_bytes=slot.done_bytes,
        total_bytes=slot.total_bytes,
        running_jobs=0 if slot.running is None else 1,
        holds=len(state.holds_on(slot.model)),
        pinned=model is not None and model.pinned,
        idle_s=max(0.0, now - slot.used_s) if idle else 0.0,
        error=slot.error,
    )


def hold_view(hold: Hold, now: float) -> HoldView:
    """A hold with the time that it has left."""
    return HoldView(
        hold=hold.id,
        participant=hold.participant,
        kernel=hold.kernel,
        model=hold.model,
        expires_in_s=max(0.0, hold.expires_s - now),
    )


def job_view(state: State, job: Job, position: int = 0, wait_s: float | None = None) -> JobView:
    """A job; position and wait are known to those who made the order."""
    request = job.request
    return JobView(
        job=request.job,
        participant=request.participant,
        kernel=request.kernel,
        model=request.model,
        priority=request.priority,
        state=job.state,
        device=job.device,
        position=position,
        expected_wait_s=None if wait_s is None else rounded(wait_s),
        waiting_for=waiting_for(state, job),
        step=job.step,
        steps=request.steps,
        submitted_s=job.submitted_s,
        started_s=job.started_s,
        ended_s=job.ended_s,
        error=job.error,
    )


def waiting_views(state: State, now: float) -> list[JobView]:
    """The waiting jobs in their order, with positions and expected waits."""
    order = state.order(now)
    waits = expected_waits([_turn(state, job) for job in order], _lanes(state, now))
    return [
        job_view(state, job, position, None if awaits_download(state, job.model) else wait_s)
        for position, (job, wait_s) in enumerate(zip(order, waits, strict=True), start=1)
    ]


def snapshot(state: State, now: float) -> Snapshot:
    """Everything, at one moment."""
    return Snapshot(
        devices=tuple(device_view(device) for device in state.devices.values()),
        slots=tuple(
            slot_view(state, slot, now)
            for device in state.devices.values()
            for slot in device.slots.values()
        ),
        jobs=tuple(waiting_views(state, now))
        + tuple(job_view(state, job) for job in state.running.values()),
        holds=tuple(hold_view(hold, now) for hold in state.holds.values()),
    )


def _turn(state: State, job: Job) -> Turn:
    request, estimates = job.request, state.estimates
    model = state.models.get(request.model)
    load_s = None
    if model is not None:
        load_s = estimates.load_s(request.model, estimates.weights_bytes(model.facts))
    return Turn(
        request.model, load_s, estimates.run_s(request.model, request.pixels, request.steps)
    )


def _lanes(state: State, now: float) -> list[Lane]:
    """The devices that can take work, and how long each is still busy."""
    here = (SlotState.READY, SlotState.LOADING)
    return [
        Lane(
            _busy_s(state, device, now),
            {slot.model for slot in device.slots.values() if slot.state in here},
        )
        for device in state.devices.values()
        if device.state is DeviceState.READY
    ]


def _busy_s(state: State, device: Device, now: float) -> float | None:
    estimates = state.estimates
    total_s: float | None = 0.0
    if device.activity is Activity.LOADING:
        weights_bytes = device.ledger.weights_bytes(device.subject)
        total_s = estimates.load_s(device.subject, weights_bytes)
    elif device.activity is Activity.RUNNING:
        request = state.running[device.subject].request
        total_s = estimates.run_s(request.model, request.pixels, request.steps)
    return None if total_s is None else max(0.0, total_s - (now - device.since_s))


class Announcer:
    """Remembers what was announced last."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobView] = {}
        self._slots: dict[tuple[str, str], SlotView] = {}
        self._devices: dict[str, DeviceView] = {}
        self._left: dict[tuple[str, str], tuple[int, str]] = {}
        self._ended: dict[str, Job] = {}

    def job(self, job: str) -> JobView | None:
        """A waiting or running job, as it was announced last."""
        return self._jobs.get(job)

    def slot_left(self, slot: Slot, freed_bytes: int, why: str) -> None:
        """The next announcement says that the slot is absent, and why."""
        self._left[slot.device, slot.model] = (freed_bytes, why)

    def job_ended(self, job: Job) -> None:
        """The next announcement says how the job ended."""
        self._ended[job.id] = job

    def changes(self, state: State, now: float) -> list[Effect]:
        """What differs from what was announced last: devices, slots, jobs."""
        return [
            *self._changed_devices(state),
            *self._changed_slots(state, now),
            *self._changed_jobs(state, now),
        ]

    def _changed_devices(self, state: State) -> list[Effect]:
        views = {device.name: device_view(device) for device in state.devices.values()}
        changed = [view for name, view in views.items() if self._devices.get(name) != view]
        self._devices = views
        return [AnnounceDevice(view) for view in changed]

    def _changed_slots(self, state: State, now: float) -> list[Effect]:
        effects: list[Effect] = []
        views: dict[tuple[str, str], SlotView] = {}
        slots = {
            (slot.device, slot.model): slot
            for device in state.devices.values()
            for slot in device.slots.values()
        }
        for key, before in self._slots.items():
            if key not in slots or key in self._left:
                freed_bytes, why = self._left.get(key, (0, ""))
                effects.append(AnnounceSlot(_absent(before), freed_bytes, why))
        for key, slot in slots.items():
            view = slot_view(state, slot, now)
            # An idle slot grows older all the time: that alone is no change.
            views[key] = _ageless(view)
            if key in self._left or self._slots.get(key) != views[key]:
                effects.append(AnnounceSlot(view, why=slot.leaves_because))
        self._slots = views
        self._left = {}
        return effects

    def _changed_jobs(self, state: State, now: float) -> list[Effect]:
        effects: list[Effect] = [AnnounceJob(job_view(state, job)) for job in self._ended.values()]
        self._ended = {}
        current = [job_view(state, job) for job in state.running.values()]
        current += waiting_views(state, now)
        effects += [AnnounceJob(view) for view in current if self._jobs.get(view.job) != view]
        self._jobs = {view.job: view for view in current}
        return effects


def _ageless(view: SlotView) -> SlotView:
    return msgspec.structs.replace(view, idle_s=0.0)


def _absent(view: SlotView) -> SlotView:
    return msgspec.structs.replace(
        view,
        state=SlotState.ABSENT,
        bytes=0,
        done_bytes=0,
        total_bytes=0,
        running_jobs=0,
        idle_s=0.0,
        error=None,
    )
