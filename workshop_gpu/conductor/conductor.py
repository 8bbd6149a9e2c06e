"""The conductor: events in, effects out. One owner of all state, so there are no locks."""

from typing import get_args

import msgspec

from workshop_gpu.conductor import dispatch, granting
from workshop_gpu.conductor.accounts import Accounts
from workshop_gpu.conductor.admission import living_hold, verdict
from workshop_gpu.conductor.announcing import Affects, slots, snapshot
from workshop_gpu.conductor.changes import Changes
from workshop_gpu.conductor.effects import (
    Effect,
    FetchModel,
    HoldView,
    JobView,
    ReservationView,
    SlotView,
    Snapshot,
)
from workshop_gpu.conductor.estimates import Estimates
from workshop_gpu.conductor.events import (
    CatalogueChanged,
    DeviceGone,
    DeviceReady,
    Event,
    FetchFailed,
    JobCancelled,
    JobDrawn,
    JobFinished,
    JobProgressed,
    JobStarted,
    JobSubmitted,
    KernelGone,
    PolicyChanged,
    SlotLoaded,
    SlotProgressed,
    Tick,
    WorkerDied,
)
from workshop_gpu.conductor.explaining import PlanView, explain
from workshop_gpu.conductor.fetching import to_fetch
from workshop_gpu.conductor.inert import tell_of_inert
from workshop_gpu.conductor.learned import Learned
from workshop_gpu.conductor.ledger import Ledger
from workshop_gpu.conductor.lending import replace_workers
from workshop_gpu.conductor.limits import Limits
from workshop_gpu.conductor.offering import under
from workshop_gpu.conductor.orders import Compile, Evict, Load, Run
from workshop_gpu.conductor.planning import Size
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.records import Device, Model, State
from workshop_gpu.conductor.reports import DeviceFact, JobFact, Reports, SlotFact
from workshop_gpu.conductor.requests import Request, Requests
from workshop_gpu.conductor.reservation_views import reservation_view
from workshop_gpu.conductor.reservations import ReservationRequest, Reservations, living
from workshop_gpu.conductor.settings import Settings
from workshop_gpu.conductor.states import JobState, SlotState
from workshop_gpu.conductor.views import hold_view, job_view
from workshop_gpu.conductor.watch import Watch
from workshop_gpu.conductor.wishes import end_hopeless_wishes, see_to_pins, wished_for

__all__ = ["Conductor", "Settings"]


class Conductor:
    """Decides what happens next, on all devices.

    `devices` are those that the server has; each is "starting" until its DeviceReady. Time is
    passed in, in seconds of one monotonic clock. It does no I/O and raises nothing but the
    refusal of a request, after which nothing has changed. `learned` is what an earlier life of
    the server had learned on this machine (see `learned()`).
    """

    def __init__(
        self,
        settings: Settings | None = None,
        devices: tuple[str, ...] = (),
        learned: Learned | None = None,
    ) -> None:
        settings = settings or Settings()
        ledgers = {
            name: Ledger(settings.margin_fraction, settings.margin_max_bytes) for name in devices
        }
        self._state = State(
            settings,
            {name: Device(name, ledger) for name, ledger in ledgers.items()},
            estimates=Estimates(learned),
        )
        self._changes = Changes(self._state)
        self._requests = Requests(self._state, self._changes)
        self._reports = Reports(self._state, self._changes)
        self._reservations = Reservations(self._state, self._changes)
        self._limits = Limits(self._state, self._changes)
        self._state.policy = Policy.of(settings)
        self._watch = Watch()

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Takes one event and returns the effects that follow from it, in their order.

        1. A request (submit, cancel, hold, load, evict, policy, reservation) is checked; a
           refused one raises its `WorkshopError` here. An accepted one changes the records, and
           so do those that the server's last life had accepted, and somebody who takes the place of
           another.
        2. A fact about a device: it is ready, its worker died (its jobs go back, once), it is
           gone, its memory was read.
        3. A fact about a slot: a load goes on, has ended, has failed; a model has left.
        4. A fact about a job: it began, goes on, is done, failed, was stopped.
        5. The catalogue changed; a download failed; a kernel is gone; time passed.

        Then, unless it was mere progress, which decides nothing:

        6. Jobs rise a class or fall due, whose time has come. Waiting jobs that can never run
           any more fail, each with the reason; so do holds and preloads.
        7. Wanted models that are not on disk are downloaded. Reservations whose turn it is get
           their room (see `granting.py`). Devices with a free lane get orders, until there is
           nothing to order (see `dispatch.py`).

        And always:

        8. What changed is announced.

        The cost of an event does not grow with the jobs that wait, but by the search in their
        order, nor with the devices: see `watch.py` and `announcing.py` for what is left to the
        events that follow where there are many.
        """
        decides = not self._is_mere_progress(event)
        if isinstance(event, _REQUESTS):  # 1
            self._requests.apply(event, now)
        elif isinstance(event, _RESERVATIONS):
            self._reservations.apply(event, now)
        elif isinstance(event, _DEVICE_FACTS):  # 2
            self._reports.apply_device(event, now)
            if isinstance(event, DeviceGone):
                self._reservations.device_gone(event.device, event.reason, now)
        elif isinstance(event, _SLOT_FACTS):  # 3
            self._reports.apply_slot(event, now)
        elif isinstance(event, _JOB_FACTS):  # 4
            self._reports.apply_job(event, now)
        elif isinstance(event, CatalogueChanged):  # 5
            self._catalogue_changed(event, now)
        elif isinstance(event, FetchFailed):
            self._fetch_failed(event, now)
        elif isinstance(event, KernelGone):
            self._kernel_gone(event.kernel, now)
        elif isinstance(event, Tick):
            self._time_passed(now)
        self._touch(event)
        self._watch.begin(self._state)
        if decides:
            self._changes.ordering.time_passed(now)  # 6
            self._fail_hopeless(event, now)
            self._fetch_missing(now)  # 7
            self._serve_reservations(now)
            while self._give_orders(now) and self._state.reservations:
                self._serve_reservations(now)  # those before them may just have begun
            self._forget_unlisted()
        effects, self._changes.effects = self._changes.effects, []
        devices = self._watch.to_tell(self._state)
        affects = self._affects_order(event) if decides else Affects.NOBODY
        effects += self._changes.announcer.changes(self._state, devices, affects, now)  # 8
        self._state.touched_devices.clear()
        self._state.touched_jobs.clear()
        return effects

    # looking

    def learned(self) -> Learned:
        """What was measured so far, to be kept for the next life of the server."""
        return self._state.estimates.learned()

    def accounts(self) -> Accounts:
        """Everybody's account, to be kept with the jobs for the next life of the server."""
        state = self._state
        advances = [(job.participant, job.charged_s) for job in state.running.values()]
        costs_s = {job.id: job.cost_s for job in state.queue}
        return msgspec.structs.replace(state.shares.accounts(advances), costs_s=costs_s)

    def snapshot(self, now: float) -> Snapshot:
        """Everything, at this moment."""
        return snapshot(self._state, now)

    def waiting(self) -> list[str]:
        """The ids of the waiting jobs in their order, which costs no look at anything else."""
        return [job.id for job in self._state.queue]

    def slots(self, now: float) -> tuple[SlotView, ...]:
        """The slots alone, at this moment."""
        return slots(self._state, now)

    def job(self, job: str) -> JobView | None:
        """A job that is still remembered, as it was announced last, at its place of now."""
        announced = self._changes.announcer.job(job)
        waiting = self._state.queue.get(job)
        if announced is not None and waiting is not None:
            return msgspec.structs.replace(announced, position=self._state.queue.position(waiting))
        if announced is not None:
            return announced
        ended = self._state.ended.get(job)
        return None if ended is None else job_view(self._state, ended)

    def reservation(self, reservation: str, now: float) -> ReservationView:
        """One that waits or was granted. Raises ReservationUnknown or ReservationEnded."""
        return reservation_view(self._state, living(self._state, reservation, now), now)

    def plan(self, model: str, size: Size, now: float, device: str | None = None) -> PlanView:
        """What the planner thinks of each rung; see `explaining.py` for what it raises."""
        return explain(self._state, now, model, size, device)

    def hold(self, hold: str, now: float) -> HoldView:
        """A living hold. Raises HoldUnknown or HoldEnded."""
        return hold_view(living_hold(self._state, hold, now), now)

    # 5

    def _catalogue_changed(self, event: CatalogueChanged, now: float) -> None:
        """Models that changed may be tried again; those that are no longer listed lose their
        holds, and leave when idle."""
        state = self._state
        before = state.models
        state.models = {}
        state.catalogue = {facts.model: facts for facts in event.models}
        for facts in [under(state.policy, facts) for facts in event.models]:
            state.estimates.know(facts)
            model = before.pop(facts.model, None) or Model(facts)
            state.models[facts.model] = model
            if model.facts != facts or not model.listed:
                model.pin_paused = model.pin_paused and model.facts.pinned
                model.facts, model.listed = facts, True
                if facts.on_disk:
                    model.fetching = model.fetch_failed = False
                self._changes.forgive(facts.model)
                for slot in state.slots(facts.model, SlotState.LOADING, SlotState.READY):
                    self._changes.keep_free(slot)
        for name, model in before.items():
            state.models[name] = model
            model.listed, model.wanted_s = False, None
            self._changes.forgive(name)
            for hold in state.holds_on(name):
                self._changes.end_hold(hold, "the model left the catalogue", now)
        replace_workers(state)

    def _forget_unlisted(self) -> None:
        """A model that is no longer listed is forgotten once nothing refers to it."""
        state = self._state
        for name, model in list(state.models.items()):
            if model.listed or state.queue.awaits(name):
                continue
            if any(job.model == name for job in state.running.values()):
                continue  # drawn, it needs no slot, and comes back if its files are lost
            self._changes.forgive(name)
            if not state.has_slot(name, *SlotState):
                del state.models[name]

    def _fetch_failed(self, event: FetchFailed, now: float) -> None:
        """One that was given up by now changes nothing."""
        model = self._state.models.get(event.model)
        if model is not None and model.fetching:
            self._changes.fail_fetch(event.model, event.error, now)

    def _kernel_gone(self, kernel: str, now: float) -> None:
        """Its holds go, its waiting jobs are cancelled, its running ones finish."""
        for hold in [hold for hold in self._state.holds if hold.kernel == kernel]:
            self._changes.end_hold(hold, "the kernel ended", now)
        self._reservations.kernel_gone(kernel, now)
        for job in self._state.queue.of_kernel(kernel):
            self._changes.end_job(job, JobState.CANCELLED, now)
        for job in self._state.running.values():
            if job.request.kernel == kernel:
                job.kernel_gone = True

    def _time_passed(self, now: float) -> None:
        for hold in [hold for hold in self._state.holds if hold.expires_s <= now]:
            self._changes.end_hold(hold, "its time was over", now)
        self._reservations.time_passed(now)
        self._limits.enforce(now)
        self._state.shares.forget_idle()

    # 6

    def _fail_hopeless(self, event: Event, now: float) -> None:
        """Looks where something changed, and at one job of each size."""
        if isinstance(event, _ABOUT_PINS):
            see_to_pins(self._state, self._changes)
        if isinstance(event, CatalogueChanged | PolicyChanged):
            tell_of_inert(self._state, self._changes)
        suspects, self._state.suspects = self._state.suspects, {}
        for model in suspects:
            end_hopeless_wishes(self._state, self._changes, model, now)
            for job in self._state.queue.one_of_each_size(model):
                error = verdict(self._state, job)
                if error is None:
                    continue
                for each in self._state.queue.of_size(job):
                    self._changes.end_job(each, JobState.FAILED, now, error)

    # 7

    def _fetch_missing(self, now: float) -> None:
        for name in to_fetch(self._state):
            model = self._state.models[name]
            model.fetching, model.fetching_s = True, now
            self._changes.effects.append(FetchModel(name))

    def _serve_reservations(self, now: float) -> None:
        state = self._state
        if not state.reservations:
            return
        self._reservations.end_hopeless(now)
        self._reservations.announce(now)
        while True:
            decision = granting.next_step(state, now)
            state.closed = decision.closed
            match decision.step:
                case granting.Grant(device, reservation):
                    self._reservations.grant(reservation, state.devices[device], now)
                case Evict(name, model, because, _):
                    self._changes.evict(state.devices[name], model, because, "", now)
                case Load() as load:
                    self._changes.load(state.devices[load.device], load, now)
                case None:
                    break
        self._reservations.announce(now)

    def _give_orders(self, now: float) -> bool:
        """Says whether there was anything to order."""
        state, changes = self._state, self._changes
        ordered = False
        while True:
            decision = dispatch.next_order(state, now, self._watch.devices(state))
            order = decision.order
            if order is None:
                break
            ordered = True
            device = state.devices[order.device]
            match order:
                case Compile():
                    changes.compile(device, order.model)
                case Run():
                    self._mark_overtaken(order, now)
                    changes.run(device, order.jobs, now)
                case Load():
                    changes.load(device, order, now)
                case Evict():
                    if order.room_for:
                        state.models[order.model].pushed_out_s = now
                    changes.evict(device, order.model, order.because, order.room_for, now)
        state.without_room = decision.without_room
        return ordered

    def _mark_overtaken(self, order: Run, now: float) -> None:
        """Those who wait on though they are before one who begins. Whoever is drawn together with
        others begins before some more."""
        ordering, first, last = self._changes.ordering, order.jobs[0], order.jobs[-1]
        for model in order.overtaken:
            ordering.overtake(model, first.key, now)
        if last is not first:
            for model in self._state.queue.models():
                ordering.overtake(model, last.key, now)

    def _is_mere_progress(self, event: Event) -> bool:
        """Whether nothing follows from it: also from files that are there now, for their device has
        gone on already, unless it did so with care."""
        if isinstance(event, JobFinished):
            job = self._state.running.get(event.job)
            if job is None or not job.drawn:
                return False
            device = self._state.devices[job.device or ""]
            return not (device.deaths or device.is_alone)
        return isinstance(event, _PROGRESS)

    def _affects_order(self, event: Event) -> Affects:
        """Which waiting jobs may have another position or wait after the event."""
        if isinstance(event, Tick):
            return Affects.TIME
        one_job = isinstance(event, JobSubmitted | JobCancelled)
        return Affects.THOSE_BEHIND if one_job and not self._state.touched_devices else Affects.ALL

    def _touch(self, event: Event) -> None:
        """What the event itself may have changed, beside what followed from it."""
        state = self._state
        device = state.devices.get(getattr(event, "device", None) or "")
        job = state.running.get(getattr(event, "job", ""))
        if device is not None:
            self._changes.touch(device)
        if job is not None:
            state.touched_jobs[job.id] = None
        model = getattr(event, "model", "")
        if not isinstance(event, (JobSubmitted, *_SLOT_FACTS)):  # these touch what they change
            for slot in state.slots(model, *SlotState):
                state.touch(slot.device)
        if isinstance(event, SlotLoaded | JobDrawn):
            state.suspects[model or (job.model if job else "")] = None
        changed = CatalogueChanged | PolicyChanged | DeviceReady | DeviceGone | WorkerDied
        if isinstance(event, changed):
            state.suspects |= dict.fromkeys([*state.queue.models(), *wished_for(state)])
        if isinstance(event, CatalogueChanged | PolicyChanged):
            for name in state.devices:
                state.touch(name)


_REQUESTS: tuple[type[Request], ...] = get_args(Request)
_RESERVATIONS: tuple[type[ReservationRequest], ...] = get_args(ReservationRequest)
_DEVICE_FACTS: tuple[type[DeviceFact], ...] = get_args(DeviceFact)
_SLOT_FACTS: tuple[type[SlotFact], ...] = get_args(SlotFact)
_ABOUT_PINS = (CatalogueChanged, PolicyChanged, DeviceReady, DeviceGone, SlotLoaded)
_PROGRESS = (JobStarted, JobProgressed, SlotProgressed)
_JOB_FACTS: tuple[type[JobFact], ...] = get_args(JobFact)
