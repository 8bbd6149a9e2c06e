"""What people ask for. Each is checked first; a refused one has changed nothing."""

from workshop_gpu.conductor import admission
from workshop_gpu.conductor.changes import Changes
from workshop_gpu.conductor.effects import AnnounceHold, AnnouncePolicy
from workshop_gpu.conductor.errors import HoldUnknown, JobEnded, JobUnknown
from workshop_gpu.conductor.events import (
    EvictionAsked,
    HoldDropped,
    HoldRenewed,
    HoldTaken,
    JobCancelled,
    JobsRestored,
    JobSubmitted,
    ModelWanted,
    ParticipantReplaced,
    PolicyChanged,
)
from workshop_gpu.conductor.holds import Hold
from workshop_gpu.conductor.inheriting import inherit
from workshop_gpu.conductor.offering import class_of, settings_under, under
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.records import Job, State
from workshop_gpu.conductor.restoring import restore
from workshop_gpu.conductor.states import JobState, SlotState
from workshop_gpu.conductor.views import hold_view

Request = (
    JobSubmitted
    | JobsRestored
    | JobCancelled
    | ModelWanted
    | EvictionAsked
    | HoldTaken
    | HoldRenewed
    | HoldDropped
    | PolicyChanged
    | ParticipantReplaced
)

_PRESENT = (SlotState.LOADING, SlotState.READY, SlotState.LEAVING)


class Requests:
    """Checks and applies requests."""

    def __init__(self, state: State, changes: Changes) -> None:
        self._state = state
        self._changes = changes
        self._accepted = 0

    def apply(self, event: Request, now: float) -> None:
        match event:
            case JobSubmitted():
                self._submit(event, now)
            case JobsRestored():
                restore(self._state, self._changes, event, self._next_number, now)
            case JobCancelled():
                self._cancel(event, now)
            case HoldTaken():
                self._take(event, now)
            case HoldRenewed():
                self._renew(event, now)
            case HoldDropped():
                hold = admission.living_hold(self._state, event.hold, now)
                self._changes.end_hold(hold, "dropped", now)
            case ModelWanted():
                self._want(event, now)
            case EvictionAsked():
                self._evict(event)
            case PolicyChanged():
                admission.check_policy(self._state, event.policy)
                self.follow(event.policy, now)
            case ParticipantReplaced():
                inherit(self._state, self._changes, event, now)

    def _next_number(self) -> int:
        """Of the next job that is accepted."""
        self._accepted += 1
        return self._accepted

    def _submit(self, event: JobSubmitted, now: float) -> None:
        admission.check_job(self._state, event, now, self._changes.announcer.job)
        self._demand(event.model, now)
        job = Job(event, self._next_number(), now)
        job.priority = class_of(self._state.policy, event.participant, event.priority)
        self._state.shares.enter(event.participant)
        if self._state.settings.wait_limit_s:
            self._state.waiting_times.begin(job.id, now)
        self._changes.ordering.add(job, now)

    def _cancel(self, event: JobCancelled, now: float) -> None:
        """A waiting job is over at once; a running one when its worker says so."""
        job = self._state.job(event.job)
        if job is None:
            raise JobUnknown(event.job)
        if job.state.ended:
            raise JobEnded(job.id, job.state.value)
        if job.state is JobState.QUEUED:
            self._changes.end_job(job, JobState.CANCELLED, now)
        else:
            self._changes.ask_cancel(job)

    def _take(self, event: HoldTaken, now: float) -> None:
        admission.check_hold(self._state, event, now)
        self._demand(event.model, now)
        hold = Hold(
            event.hold, event.participant, event.kernel, event.model, now, now + event.ttl_s
        )
        self._state.holds.add(hold)
        self._stay(event.model)
        self._changes.effects.append(AnnounceHold(hold_view(hold, now)))

    def _renew(self, event: HoldRenewed, now: float) -> None:
        hold = admission.living_hold(self._state, event.hold, now)
        if hold.kernel != event.kernel:
            raise HoldUnknown(event.hold)
        admission.check_ttl(event.ttl_s)
        hold.expires_s = now + event.ttl_s
        self._changes.effects.append(AnnounceHold(hold_view(hold, now)))

    def _want(self, event: ModelWanted, now: float) -> None:
        admission.check_wanted(self._state, event)
        self._changes.forgive(event.model)
        self._demand(event.model, now)
        self._stay(event.model)
        if not self._state.has_slot(event.model, SlotState.LOADING, SlotState.READY):
            self._state.models[event.model].wanted_s = now

    def _evict(self, event: EvictionAsked) -> None:
        """Also a pinned model leaves when an instructor asks; the pin holds again once somebody
        asks for the model. A model that is just being loaded leaves as soon as nobody waits."""
        admission.check_eviction(self._state, event)
        model = self._state.models[event.model]
        model.pin_paused, model.wanted_s = True, None
        self._changes.forgive(event.model)
        for slot in self._state.slots(event.model, SlotState.READY, SlotState.LOADING):
            slot.leaves_because = "asked by the instructor"

    def _stay(self, model: str) -> None:
        """A slot that was told to leave, and has not begun to, stays."""
        for slot in self._state.slots(model, SlotState.READY, SlotState.LOADING):
            slot.leaves_because = ""

    def _demand(self, name: str, now: float) -> None:
        """Somebody asks for the model: a paused pin holds again, so that what was told to leave
        stays; and a failed download or load is tried again, unless others are waiting for another
        try already, or it failed just now."""
        model = self._state.models[name]
        if model.pin_paused:
            model.pin_paused = False
            if model.pinned:
                self._stay(name)
            for slot in self._state.slots(name, *SlotState):
                self._state.touch(slot.device)
        self._state.models[name].fetch_failed = False
        kept_s = self._state.settings.failed_load_s
        for slot in list(self._state.slots(name, SlotState.FAILED)):
            if now - slot.since_s >= kept_s:  # though it may be somewhere else meanwhile
                self._changes.remove_slot(slot)
        if self._state.queue.awaits(name) or self._state.has_slot(name, *_PRESENT):
            return
        if not admission.fresh_failures(self._state, name, now):
            self._changes.forgive(name)

    def follow(self, policy: Policy, now: float) -> None:
        """The policy counts from now on, for waiting jobs too."""
        state = self._state
        before, state.policy = state.policy, policy
        patience_s = state.settings.patience_s
        state.settings = settings_under(policy, state.settings)
        if state.settings.patience_s != patience_s:
            self._changes.ordering.patience_changed()
        clock = state.waiting_times.clock
        clock.pause(now) if policy.paused else clock.resume(now)
        for name, facts in state.catalogue.items():
            model = state.models[name]
            pinned = policy.pinned.get(name) and not before.pinned.get(name)
            model.facts, model.pin_paused = under(policy, facts), model.pin_paused and not pinned
            for slot in state.slots(name, *SlotState):
                state.touch(slot.device)
        for participant in before.priorities.keys() | policy.priorities.keys():
            self._changes.ordering.reclass_all(participant, now)
        self._changes.effects.append(AnnouncePolicy(policy))
