"""The changes that records go through: each keeps ledger, shares, references and lanes in step.

Every way in which a job, slot or hold can end is here once, so that no error path can forget
half of it.
"""

from collections.abc import Sequence

from workshop_gpu.conductor.announcing import Announcer
from workshop_gpu.conductor.compiled import may_compile
from workshop_gpu.conductor.effects import (
    AnnounceHold,
    CancelJob,
    CompileModel,
    Effect,
    EvictModel,
    LoadModel,
    RunJob,
)
from workshop_gpu.conductor.errors import ErrorReport, WorkerLost
from workshop_gpu.conductor.fairness import Reason
from workshop_gpu.conductor.holds import Hold
from workshop_gpu.conductor.lanes import IDLE_S, UNKNOWN_S
from workshop_gpu.conductor.lending import lend, take_back, worker_ended
from workshop_gpu.conductor.ordering import Ordering
from workshop_gpu.conductor.orders import Load
from workshop_gpu.conductor.planning import kept_free_bytes
from workshop_gpu.conductor.planning import working_bytes as working_bytes_of
from workshop_gpu.conductor.records import Activity, Device, Job, Slot, State
from workshop_gpu.conductor.rungs import RESIDENT
from workshop_gpu.conductor.states import JobState, SlotState
from workshop_gpu.conductor.stepping import went_on
from workshop_gpu.conductor.views import hold_view

MOST_DEATHS = 2


class Changes:
    """Applies changes to the state and gathers the effects that follow."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.ordering = Ordering(state)
        self.announcer = Announcer()
        self.effects: list[Effect] = []

    # jobs

    def run(self, device: Device, jobs: Sequence[Job], now: float) -> None:
        """The device gets the jobs, which are drawn together; their working memory and their
        seconds count from here, in equal parts."""
        state, first = self.state, jobs[0]
        expected_s = state.cost_s(first, len(jobs))
        known_s = state.run_s(first, len(jobs))
        if known_s is None and (alone_s := state.run_s(first)) is not None:
            known_s = alone_s * len(jobs)  # together they take no longer than one by one
        slot = device.slots[first.model]
        working_bytes = working_bytes_of(state, first, len(jobs), slot.placement)
        for number, job in enumerate(jobs):
            self.ordering.remove(job)
            state.running[job.id] = device.running[job.id] = job
            job.state, job.device = JobState.RUNNING, device.name
            job.started_s = job.moved_s = now
            job.overtaken_s, job.reason, job.step = None, Reason.SHARE, 0
            job.batch = len(jobs)
            # The first holds what is left of the division, so that no byte is lost.
            part_bytes = working_bytes // len(jobs)
            job.working_bytes = working_bytes - part_bytes * (len(jobs) - 1)
            if number:
                job.working_bytes = part_bytes
            job.charged_s = expected_s / len(jobs)
            state.shares.begin(job.participant, job.charged_s)
            device.ledger.commit(job.id, job.working_bytes)
            slot.running.add(job.id)
            slot.users.add(job.participant)
        for job in jobs:
            self.ordering.pay(job.participant)
        device.until_s = None if known_s is None else now + known_s
        slot.leaves_because = slot.leaves_for = ""
        slot.uses += 1
        slot.moves = 0
        request = first.request
        slot.drawn = request.pixels, request.batch * len(jobs), request.steps
        went_on(state, self.effects, jobs, slot)
        self.touch(device)
        others = tuple(job.id for job in jobs[1:])
        placement = "" if slot.placement == RESIDENT else slot.placement.name
        compiles = may_compile(state, device, slot)
        run = RunJob(device.name, first.id, first.model, others, placement, compiles)
        self.effects.append(run)

    def drawn(self, job: Job, now: float) -> None:
        """The device is free for others while the job's pictures are made into files. What it used
        is known from here on."""
        state, used_s = self.state, (now - job.started_s) / job.batch
        job.drawn, job.moved_s = True, now
        state.devices[job.device or ""].writing[job.id] = job
        self._leave_lane(job, now)
        state.shares.finish(job.participant, job.charged_s, used_s)
        job.charged_s = used_s
        self.ordering.pay(job.participant)

    def ask_cancel(self, job: Job) -> None:
        """The worker is told once to stop the running job. What is drawn is as good as done."""
        if not job.cancel_asked and job.device is not None:
            job.cancel_asked = True
            if not job.drawn:
                self.effects.append(CancelJob(job.device, job.id))

    def end_job(
        self, job: Job, outcome: JobState, now: float, error: ErrorReport | None = None
    ) -> None:
        """A waiting or running job is over."""
        state = self.state
        if job.id in state.queue:
            self.ordering.remove(job)
        else:
            self._leave_device(job, now)
        job.state, job.ended_s, job.error = outcome, now, error
        state.shares.leave(job.participant)
        self.ordering.pay(job.participant)
        state.ended[job.id] = job
        while len(state.ended) > state.settings.remembered_jobs:
            state.ended.popitem(last=False)
        self.announcer.job_ended(job)

    def put_back(self, job: Job, reason: str, now: float, log: str = "") -> None:
        """The worker of a running job ended: the job waits again at its place, once, or once more
        where we ended the worker for another's sake. It does not pay for the lost run. Who no
        longer wants it does not get it."""
        job.deaths += job.stuck or not self.state.devices[job.device or ""].stopping
        job.saw_death, job.stuck = True, False
        if job.error is not None:
            self.end_job(job, JobState.FAILED, now, job.error)
        elif job.cancel_asked or job.kernel_gone:
            self.end_job(job, JobState.CANCELLED, now)
        elif job.deaths >= MOST_DEATHS:
            what = f'This job, generating with "{job.model}",'
            error = WorkerLost(what, reason, job.deaths, log)
            self.end_job(job, JobState.FAILED, now, error.report())
        else:
            self.wait_again(job, now)

    def wait_again(self, job: Job, now: float) -> None:
        """The running job waits again, before all others of its class."""
        self._leave_device(job, now, in_vain=True)
        job.state, job.device, job.started_s, job.step = JobState.QUEUED, None, -1.0, 0
        job.reason, job.batch = Reason.PUT_BACK, 1
        self.ordering.add(job, now)
        if self.state.settings.wait_limit_s:
            self.state.waiting_times.begin(job.id, now)

    def _leave_device(self, job: Job, now: float, in_vain: bool = False) -> None:
        """The job runs no longer. What was `in_vain` is not paid."""
        shares = self.state.shares
        del self.state.running[job.id]
        if job.drawn:
            device = self.state.devices[job.device or ""]
            del device.writing[job.id]
            job.drawn = False
            if in_vain:
                shares.charge(job.participant, -job.charged_s)
            self.touch(device)
        else:
            used_s = 0.0 if in_vain else (now - job.started_s) / job.batch
            shares.finish(job.participant, job.charged_s, used_s)
            self._leave_lane(job, now)

    def _leave_lane(self, job: Job, now: float) -> None:
        """The device's lane, and the memory, are free when the last of a batch has left."""
        device = self.state.devices[job.device or ""]
        device.ledger.release(job.id)
        device.running.pop(job.id, None)
        heir = next(iter(device.running.values()), None)
        if heir is not None:
            heir.working_bytes += job.working_bytes
            device.ledger.commit(heir.id, heir.working_bytes)
        slot = device.slots.get(job.model)
        if slot is not None and job.id in slot.running:
            slot.running.discard(job.id)
            slot.used_s = now
        self.touch(device)

    # slots

    def compile(self, device: Device, model: str) -> None:
        """The model's blocks are compiled beside all else."""
        device.compiling = model
        device.slots[model].to_compile = False
        self.effects.append(CompileModel(device.name, model))

    def load(self, device: Device, order: Load, now: float) -> None:
        """The model's load begins, or its way into another placement; its estimated bytes count
        from here, and those that it has already until they are gone."""
        model, placement, ledger = order.model, order.placement, device.ledger
        size_bytes = order.weights_bytes
        if size_bytes is None:
            size_bytes = self.state.weights_bytes(model)
        slot = device.slots.get(model)
        if slot is None:
            slot = Slot(device.name, model, SlotState.LOADING, now, now, placement=placement)
            device.slots[model] = slot
            self.state.places.setdefault(model, {})[device.name] = slot
            whole = placement == RESIDENT
            parts = self.state.estimates.parts(self.state.models[model].facts) if whole else ()
            ledger.set_weights(model, size_bytes, parts)
        else:
            slot.moves += 1
            # What it shares with others stays with them, and comes once more for it.
            if size_bytes > ledger.leaving_bytes((model,)):
                ledger.set_weights(model, size_bytes)
        self.keep_free(slot)
        slot.state, slot.since_s = SlotState.LOADING, now
        slot.placement = slot.asked = placement
        slot.memory = self.state.models[model].facts.memory
        slot.done_bytes, slot.total_bytes, slot.bytes_per_s = 0, size_bytes, 0.0
        device.begin(Activity.LOADING, model, now)
        device.loads_suspect = self.state.models[model].is_suspect
        lend(self.state, slot, moves=True)
        self.touch(device)
        self.state.copies_changed(model)
        self.effects.append(LoadModel(device.name, model, placement, slot.memory.max_vram_bytes))

    def keep_free(self, slot: Slot) -> None:
        """What stays free beside a model that is there, or comes, by its settings and parts as
        they are known now."""
        device = self.state.devices[slot.device]
        device.ledger.keep_free(slot.model, kept_free_bytes(self.state, slot.model))
        self.state.touch(device.name)

    def evict(self, device: Device, model: str, because: str, room_for: str, now: float) -> None:
        """The device is told to drop the model; from here on nothing can use the slot, and its
        bytes count until they are back."""
        slot = device.slots[model]
        slot.state, slot.since_s, slot.leaves_because = SlotState.LEAVING, now, because
        queue = self.state.queue
        slot.leaves_for = queue.first_of(room_for).participant if queue.awaits(room_for) else ""
        device.ledger.start_freeing(model)
        device.begin(Activity.EVICTING, model, now)
        device.room_for = room_for
        self.touch(device)
        self.state.copies_changed(model)
        self.effects.append(EvictModel(device.name, model, room_for))

    def fail_slot(self, slot: Slot, error: ErrorReport, now: float) -> None:
        """A load ended with an error and left nothing behind."""
        device = self.state.devices[slot.device]
        device.ledger.drop_weights(slot.model)
        take_back(self.state, slot)
        slot.state, slot.since_s, slot.error = SlotState.FAILED, now, error
        slot.done_bytes = slot.total_bytes = 0
        slot.leaves_because = ""
        self.state.suspects[slot.model] = None
        if device.does(Activity.LOADING, slot.model):
            device.rest()
        self.touch(device)

    def remove_slot(self, slot: Slot, freed_bytes: int = 0, why: str = "") -> None:
        """The model is absent from the device."""
        state = self.state
        device = state.devices[slot.device]
        del device.slots[slot.model]
        del state.places[slot.model][slot.device]
        if not state.places[slot.model]:
            del state.places[slot.model]
        device.ledger.drop_weights(slot.model)
        device.ledger.freed(slot.model)
        take_back(state, slot)
        state.suspects[slot.model] = None
        self.touch(device)
        state.copies_changed(slot.model)
        self.announcer.slot_left(slot, freed_bytes, why)

    def forgive(self, model: str) -> None:
        """Failed loads of the model are forgotten: it may be tried again."""
        known = self.state.models[model]
        known.load_deaths, known.is_suspect = 0, False
        self.state.shortages.forget(model)
        for slot in list(self.state.slots(model, SlotState.FAILED)):
            self.remove_slot(slot)

    # devices

    def touch(self, device: Device) -> None:
        """Something about the device changed: its lane finds its place, and people are told."""
        self.state.touch(device.name)
        if device.room_for:
            self.state.making_room[device.name] = device.room_for
        else:
            self.state.making_room.pop(device.name, None)
        if not device.takes_orders:
            self.state.lanes.remove(device.name)
        elif device.running or device.is_alone:
            until_s = device.until_s if device.running else None
            self.state.lanes.put(device.name, UNKNOWN_S if until_s is None else until_s)
        else:
            self.state.lanes.put(device.name, IDLE_S)

    def empty(self, device: Device, reason: str, now: float, log: str = "") -> None:
        """The device's worker ended and all that it had there is gone; failures are remembered,
        so that a model that ends workers is not loaded for ever."""
        for job in device.at_work:
            self.put_back(job, reason, now, log)
        for slot in list(device.slots.values()):
            if slot.state is SlotState.LOADING:
                self._load_died(slot, reason, now, log)
            elif slot.state is not SlotState.FAILED:
                freed_bytes = device.ledger.weights_bytes(slot.model)
                self.remove_slot(slot, freed_bytes, f"the GPU worker ended ({reason})")
        device.ledger.clear()
        worker_ended(self.state, device)
        device.stopping, device.retires, device.compiling = False, "", ""
        device.rest()
        self.touch(device)

    def _load_died(self, slot: Slot, reason: str, now: float, log: str) -> None:
        """It may be tried once more, or is to blame. Where we ended the worker for another's sake
        that does not count."""
        model = self.state.models[slot.model]
        spared = self.state.devices[slot.device].stopping and slot.error is None
        model.load_deaths += not spared
        model.is_suspect = True
        if spared or (model.load_deaths < MOST_DEATHS and slot.error is None):
            self.remove_slot(slot, 0, f"the GPU worker ended ({reason})")
            return
        lost = WorkerLost(f'Loading "{slot.model}"', reason, model.load_deaths, log)
        error = slot.error or lost.report()
        self.fail_slot(slot, error, now)
        if not self.state.has_slot(slot.model, SlotState.READY):
            for job in self.state.queue.of_model(slot.model):
                self.end_job(job, JobState.FAILED, now, error)

    def fail_fetch(self, model: str, error: ErrorReport, now: float) -> None:
        """Those who waited for the download are told why; the next who asks has it tried
        again."""
        each = self.state.models[model]
        each.fetching, each.fetch_failed, each.wanted_s = False, True, None
        for job in self.state.queue.of_model(model):
            self.end_job(job, JobState.FAILED, now, error)

    # holds

    def end_hold(self, hold: Hold, why: str, now: float) -> None:
        """The hold is over; the model's last use ends with it."""
        state = self.state
        hold.ended = why
        state.holds.remove(hold)
        state.ended_holds[hold.id] = hold
        while len(state.ended_holds) > state.settings.remembered_holds:
            state.ended_holds.popitem(last=False)
        for slot in state.slots(hold.model, *SlotState):
            slot.used_s = now
            state.touch(slot.device)
        self.effects.append(AnnounceHold(hold_view(hold, now), why))
