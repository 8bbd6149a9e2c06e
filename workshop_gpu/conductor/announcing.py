"""What people are told: views of the records, and only those that differ from the last ones.

The first jobs of the queue are told at every change, each with its exact position and the wait
that follows from those before it (see `waits_kept.py`); so is every job whose own state changed.
Those further back are told a few with each event, in turn, so that an event costs the same however
many wait: their positions may be some events old. `Conductor.snapshot` has all of them as they are.
"""

import re
from enum import Enum

import msgspec

from workshop_gpu.conductor.effects import (
    AnnounceDevice,
    AnnounceJob,
    AnnounceSlot,
    AnnounceWaits,
    DeviceView,
    Effect,
    JobView,
    SlotView,
    Snapshot,
)
from workshop_gpu.conductor.forecast import forecast, newcomers, waiting_views
from workshop_gpu.conductor.reasons import wait_reason, waits_for
from workshop_gpu.conductor.records import Device, Job, Slot, State
from workshop_gpu.conductor.reservation_views import reservation_view
from workshop_gpu.conductor.states import JobState, SlotState
from workshop_gpu.conductor.views import (
    aged,
    ageless_view,
    device_view,
    hold_view,
    job_view,
    slot_view,
)
from workshop_gpu.conductor.waits_kept import KeptWaits

FRONT = 32
"""So many waiting jobs are told at every change."""

_IN_TURN = 4
_FIGURES = re.compile(r"\d+(\.\d+)? [GM]B")
"""Bytes in a reason change with each reading of memory: they alone are not told anew."""


_FORESEEN = ("", "load")
"""Of all else that a job may wait for nobody knows how long it lasts."""


class Affects(Enum):
    """Which waiting jobs an event may have given another position or wait."""

    NOBODY = "nobody"
    THOSE_BEHIND = "those behind"
    """The job that came or went, and those behind it."""
    ALL = "all"
    TIME = "all, by the passing of time"


def slots(state: State, now: float) -> tuple[SlotView, ...]:
    """All slots, which costs the same however many jobs wait."""
    return tuple(
        slot_view(state, slot, now)
        for device in state.devices.values()
        for slot in device.slots.values()
    )


def snapshot(state: State, now: float) -> Snapshot:
    """Everything, at one moment."""
    waiting = list(state.queue)
    foreseen = forecast(state, waiting, now, len(state.lanes))
    return Snapshot(
        devices=tuple(device_view(device) for device in state.devices.values()),
        slots=slots(state, now),
        jobs=tuple(waiting_views(state, waiting, foreseen))
        + tuple(job_view(state, job) for job in state.running.values()),
        holds=tuple(hold_view(hold, now) for hold in state.holds),
        reservations=tuple(
            reservation_view(state, each, now) for each in state.reservations.values()
        ),
        policy=state.policy,
        newcomers_s=newcomers(state, foreseen.play),
    )


class Announcer:
    """Remembers what was announced last."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobView] = {}
        self._slots: dict[str, dict[str, SlotView]] = {}
        self._devices: dict[str, DeviceView] = {}
        self._left: dict[tuple[str, str], AnnounceSlot] = {}
        self._ended: dict[str, Job] = {}
        self._next = FRONT
        self._front: list[Job] = []
        """Those that were the first of the queue when it was told last."""
        self._waits = KeptWaits()
        self._newcomers_s: dict[str, float | None] = {}

    def job(self, job: str) -> JobView | None:
        """A waiting or running job, as it was announced last."""
        return self._jobs.get(job)

    def slot_left(self, slot: Slot, freed_bytes: int, why: str) -> None:
        """The next announcement says that the slot is absent, and why."""
        told = self._slots.get(slot.device, {}).get(slot.model)
        if told is not None:
            idle_s = slot.since_s - slot.used_s if slot.state is SlotState.LEAVING else 0.0
            view = _absent(told, max(0.0, idle_s))
            left = AnnounceSlot(view, freed_bytes, why, slot.leaves_for)
            self._left[slot.device, slot.model] = left

    def job_ended(self, job: Job) -> None:
        """The next announcement says how the job ended."""
        self._ended[job.id] = job

    def changes(
        self, state: State, devices: list[Device], affects: Affects, now: float
    ) -> list[Effect]:
        """What differs from what was announced last: of these devices, their slots, and jobs;
        of positions and waits only where the event may have changed them."""
        effects = [
            *self._changed_devices(devices),
            *self._changed_slots(state, devices, now),
            *self._ended_jobs(state),
        ]
        touched = [job for job in map(state.job, state.touched_jobs) if job is not None]
        for job in touched:
            if job.state is JobState.RUNNING:
                self._tell(job_view(state, job), effects)
        if affects is not Affects.NOBODY:
            self._changed_order(state, touched, affects, now, effects)
        return effects

    def _changed_devices(self, devices: list[Device]) -> list[Effect]:
        effects: list[Effect] = []
        for device in devices:
            view = device_view(device)
            if self._devices.get(device.name) != view:
                self._devices[device.name] = view
                effects.append(AnnounceDevice(view))
        return effects

    def _changed_slots(self, state: State, devices: list[Device], now: float) -> list[Effect]:
        left: list[Effect] = []
        here: list[Effect] = []
        for device in devices:
            told = self._slots.setdefault(device.name, {})
            for model in list(told):
                key = (device.name, model)
                if model not in device.slots or key in self._left:
                    view = told.pop(model)
                    left.append(self._left.get(key) or AnnounceSlot(_absent(view)))
            for model, slot in device.slots.items():
                view = ageless_view(state, slot)
                if told.get(model) != view:
                    told[model] = view
                    why, whose = slot.leaves_because, slot.leaves_for
                    here.append(AnnounceSlot(aged(view, slot, now), why=why, participant=whose))
        self._left = {}
        return left + here

    def _ended_jobs(self, state: State) -> list[Effect]:
        ended, self._ended = self._ended, {}
        for job in ended:
            self._jobs.pop(job, None)
            state.touched_jobs.pop(job, None)
        return [AnnounceJob(job_view(state, job)) for job in ended.values()]

    def _changed_order(
        self,
        state: State,
        touched: list[Job],
        affects: Affects,
        now: float,
        effects: list[Effect],
    ) -> None:
        why: dict[str, tuple[str, str]] = {}
        front = state.queue.line.part(0, FRONT)
        ticks = affects is Affects.TIME
        anew = self._waits.play(state, front, ticks, now)
        if ticks:
            self._tell_newcomers(state, effects)
        if anew or affects is Affects.ALL or front != self._front:
            self._front = front
            waits = self._waits.of_front(state, front)
            for position, (job, wait_s) in enumerate(zip(front, waits, strict=True), start=1):
                self._tell_waiting(state, job, position, wait_s, _why(state, job, why), effects)
        if len(state.queue) <= FRONT:
            return
        for job in [*touched, *self._in_turn(state)]:
            position = state.queue.position(job) if job.state is JobState.QUEUED else 0
            if position > FRONT:
                wait_s = self._waits.further_back(state, position)
                self._tell_waiting(state, job, position, wait_s, _why(state, job, why), effects)

    def _tell_newcomers(self, state: State, effects: list[Effect]) -> None:
        """Once a second is enough for those who have asked for nothing yet."""
        waits_s = self._waits.of_newcomers(state)
        if waits_s != self._newcomers_s:
            self._newcomers_s = waits_s
            effects.append(AnnounceWaits(waits_s))

    def _in_turn(self, state: State) -> list[Job]:
        """The next few that stand further back."""
        if self._next >= len(state.queue):
            self._next = FRONT
        begin, self._next = self._next, self._next + _IN_TURN
        return state.queue.line.part(begin, self._next)

    def _tell_waiting(
        self,
        state: State,
        job: Job,
        position: int,
        wait_s: float | None,
        why: tuple[str, str],
        effects: list[Effect],
    ) -> None:
        """Where something about the waiting job is not as it was told last."""
        word, reason = why
        if word not in _FORESEEN:
            wait_s = None
        told = self._jobs.get(job.request.job)
        if (
            told is None
            or told.waiting_for != word
            or told.state is not job.state
            or told.priority is not job.priority
            or told.participant != job.request.participant
            or _differ(told.reason, reason)
        ):
            self._tell(job_view(state, job, position, wait_s, word), effects)
        elif told.position != position or told.expected_wait_s != wait_s:
            view = self._jobs[told.job] = msgspec.structs.replace(
                told, position=position, expected_wait_s=wait_s, reason=reason
            )
            effects.append(AnnounceJob(view))

    def _tell(self, view: JobView, effects: list[Effect]) -> None:
        if self._jobs.get(view.job) != view:
            self._jobs[view.job] = view
            effects.append(AnnounceJob(view))


def _why(state: State, job: Job, known: dict[str, tuple[str, str]]) -> tuple[str, str]:
    """What those who wait for the job's model wait for, in a word and in a sentence."""
    model = job.request.model
    why = known.get(model)
    if why is None:
        word = waits_for(state, model)
        why = known[model] = word, wait_reason(state, word)
    return why


def _differ(told: str, reason: str) -> bool:
    """Whether another reason is to be told."""
    return told != reason and _FIGURES.sub("", told) != _FIGURES.sub("", reason)


def _absent(view: SlotView, idle_s: float = 0.0) -> SlotView:
    return msgspec.structs.replace(
        view,
        state=SlotState.ABSENT,
        bytes=0,
        done_bytes=0,
        total_bytes=0,
        bytes_per_s=0.0,
        running_jobs=0,
        idle_s=idle_s,
        error=None,
    )
