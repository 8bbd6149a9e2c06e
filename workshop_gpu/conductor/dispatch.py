"""The next order, if any: pure decisions over the records.

`next_order` looks at the idle devices and finds the first that applies:

1. a slot that was told to leave leaves;
2. a hold or preload that has waited longer than the patience gets its model loaded;
3. a job runs where its model is ready, or its model is loaded, after evictions if need be:
   a. jobs are taken in their order; the first whose model is ready on an idle device runs,
      so a warm job overtakes a cold one, but never one of a better class and none whose
      patience is over (such a job is first in the order, see `fairness.py`);
   b. if none can run, the first cold job that can be given room gets its model loaded; where
      room needs evictions they come first, one at a time, and are decided anew each time;
   c. a cold job that waits only until a protection runs out reserves the device: jobs behind
      it may run there and load into free room, but nothing leaves for them;
4. models that are held, preloaded or pinned are loaded where that disturbs no waiting job;
5. a slot that nobody needs leaves: its keep-warm time is over, or it is no longer offered.

It changes nothing and is asked again after each order, until it has none.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from workshop_gpu.conductor.eviction import Candidate, Standing, choose
from workshop_gpu.conductor.fetching import awaits_download
from workshop_gpu.conductor.placement import Option, best
from workshop_gpu.conductor.records import Device, Job, Slot, State
from workshop_gpu.conductor.states import DeviceState, JobState, SlotState

_HERE_OR_COMING = (SlotState.LOADING, SlotState.READY)


@dataclass(frozen=True, slots=True)
class Run:
    """Run the job; `overtaken` are the cold jobs ahead of it."""

    device: str
    job: Job
    overtaken: tuple[Job, ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """Load the model; it fits."""

    device: str
    model: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Make the model leave; `room_for` names the model that needs the room, if any does."""

    device: str
    model: str
    because: str
    room_for: str = ""


Order = Run | Load | Evict


@dataclass(slots=True)
class Decision:
    """The next order, and the jobs for which no idle device has room."""

    order: Order | None = None
    without_room: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Claim:
    """Somebody who wants room for a model: a job, or (rank None) a hold or a pin."""

    model: str
    participant: str | None
    rank: int | None
    due: bool


@dataclass(frozen=True, slots=True)
class _Cold:
    """A job whose model could be loaded now."""

    claim: _Claim
    option: Option
    copy: bool
    """Whether the model is on another device already."""


@dataclass(slots=True)
class _Walk:
    """What was met so far on the way along the waiting jobs."""

    colds: list[_Cold] = field(default_factory=list)
    reserved: set[str] = field(default_factory=set)
    """Devices on which nothing may leave for jobs further behind."""
    passed: list[Job] = field(default_factory=list)
    """Jobs that are overtaken if one further behind runs."""


def next_order(state: State, now: float) -> Decision:
    """The first order of the list above that applies."""
    return _Look(state, now).decide()


class _Look:
    """One look at the state at one moment."""

    def __init__(self, state: State, now: float) -> None:
        self._state = state
        self._now = now
        self._idle = [device for device in state.devices.values() if device.idle]

    def decide(self) -> Decision:
        decision, walk = Decision(), _Walk()
        if self._idle:
            decision.order = (
                self._told_to_leave()
                or self._for_wanted(overdue=True, reserved=set())
                or self._for_jobs(decision, walk)
                or self._for_wanted(overdue=False, reserved=walk.reserved)
                or self._unneeded()
            )
        return decision

    # 1

    def _told_to_leave(self) -> Order | None:
        for device in self._idle:
            for slot in device.slots.values():
                told = slot.state is SlotState.READY and slot.leaves_because
                if told and not self._state.holds_on(slot.model):
                    return Evict(device.name, slot.model, slot.leaves_because)
        return None

    # 2 and 4

    def _for_wanted(self, overdue: bool, reserved: set[str]) -> Order | None:
        for claim in self._wanted():
            if claim.due is not overdue:
                continue
            needed = self._state.weights_bytes(claim.model)
            needed += self._state.working_bytes_of(claim.model)
            options = [
                self._room(device, claim, needed)
                for device in self._open(claim.model)
                if device.name not in reserved
            ]
            option = best(each for each in options if each is not None)
            if option is not None:
                return self._make_room_or_load(option, claim.model)
        return None

    def _wanted(self) -> Iterator[_Claim]:
        """Models that should be ready and are not, those first that have waited longest."""
        waiting: list[tuple[float, _Claim]] = []
        for name, model in self._state.models.items():
            holds = self._state.holds_on(name)
            since = [hold.taken_s for hold in holds]
            if model.wanted_s is not None:
                since.append(model.wanted_s)
            if not (since or model.pinned) or model.facts.problem or not model.listed:
                continue
            if not model.facts.on_disk:
                continue
            if self._state.has_slot(name, *_HERE_OR_COMING, SlotState.LEAVING):
                continue
            if any(device.prepares == name for device in self._state.devices.values()):
                continue
            first_s = min(since, default=self._now)
            due = self._now - first_s >= self._state.settings.patience_s and bool(since)
            participant = holds[0].participant if holds else None
            waiting.append((first_s, _Claim(name, participant, None, due)))
        return (claim for _, claim in sorted(waiting, key=lambda each: each[0]))

    # 3

    def _for_jobs(self, decision: Decision, walk: _Walk) -> Order | None:
        coming = Counter(device.prepares for device in self._state.devices.values())
        for job in self._state.order(self._now):
            if awaits_download(self._state, job.model):
                continue
            claim = self._claim(job)
            copy = self._state.has_slot(job.model, *_HERE_OR_COMING)
            warm = [device for device in self._idle if device.has(job.model, SlotState.READY)]
            if warm:
                order = self._warm(job, claim, warm, walk)
                if order is not None:
                    return order
                # Where its model is, others hold the room for good: then it is as good as cold.
                copy = self._stays(job, claim, warm, walk)
            elif coming[job.model]:
                coming[job.model] -= 1
                continue
            option = self._cold(job, claim, copy, walk)
            if option is not None:
                walk.colds.append(_Cold(claim, option, copy))
            elif warm or not copy:
                decision.without_room.add(job.id)
            if warm or not copy:
                walk.passed.append(job)
        if not walk.colds:
            return None
        first = min(walk.colds, key=lambda cold: cold.copy)
        return self._make_room_or_load(first.option, first.claim.model)

    def _warm(self, job: Job, claim: _Claim, warm: list[Device], walk: _Walk) -> Order | None:
        """3a: run it, or make room for its working memory."""
        closed = {cold.option.device for cold in walk.colds if _goes_before(cold.claim, claim)}
        needed = self._state.working_bytes(job)
        options = [
            self._room(device, claim, needed, walk.reserved)
            for device in warm
            if device.name not in closed
        ]
        option = best(each for each in options if each is not None)
        if option is None:
            return None
        if option.victims:
            return self._make_room(option, job.model)
        return Run(option.device, job, tuple(walk.passed))

    def _stays(self, job: Job, claim: _Claim, warm: list[Device], walk: _Walk) -> bool:
        """Whether the job can get room where its model is, now or once protections ran out."""
        needed = self._state.working_bytes(job)
        later = [each.name for each in warm if self._room_later(each, claim, needed)]
        walk.reserved.update(later)
        return bool(later)

    def _cold(self, job: Job, claim: _Claim, copy: bool, walk: _Walk) -> Option | None:
        """3b and 3c: where the model can be loaded, or what it must wait for."""
        needed = self._state.weights_bytes(job.model) + self._state.working_bytes(job)
        options = []
        for device in self._open(job.model):
            option = self._room(device, claim, needed, walk.reserved)
            if option is not None and not (copy and option.victims):
                options.append(option)
            if option is None and not copy and self._room_later(device, claim, needed):
                walk.reserved.add(device.name)
        return best(options)

    def _claim(self, job: Job) -> _Claim:
        rank, due = self._state.rank(job, self._now), self._state.is_due(job, self._now)
        return _Claim(job.model, job.participant, rank, due)

    # 5

    def _unneeded(self) -> Order | None:
        for device in self._idle:
            for slot in device.slots.values():
                because = self._why_unneeded(slot)
                if because:
                    return Evict(device.name, slot.model, because)
        return None

    def _why_unneeded(self, slot: Slot) -> str:
        model = self._state.models[slot.model]
        if slot.state is not SlotState.READY or slot.running is not None or model.pinned:
            return ""
        if self._state.queue.awaits(slot.model) or self._state.holds_on(slot.model):
            return ""
        if not model.listed:
            return "no longer in the catalogue"
        if not model.facts.enabled:
            return "switched off by the instructor"
        keep_s = model.facts.keep_warm_s
        if keep_s < 0:
            return ""
        if not slot.uses:
            keep_s = max(keep_s, self._state.settings.min_residency_s)
        return f"not used for {keep_s:.0f} s" if self._now - slot.used_s >= keep_s else ""

    # room

    def _open(self, model: str) -> list[Device]:
        """Idle devices where the model could be loaded: it is not there, and did not fail there."""
        if not self._state.models[model].facts.on_disk:
            return []
        return [device for device in self._idle if model not in device.slots]

    def _room(
        self, device: Device, claim: _Claim, needed: int, reserved: set[str] | None = None
    ) -> Option | None:
        """How the device gets room for so many bytes now; None where it cannot."""
        free = device.ledger.free_bytes
        victims = choose(self._candidates(device, claim), needed - free, Standing.AWAITED)
        if victims is None or (victims and reserved and device.name in reserved):
            return None
        names = tuple(victim.model for victim in victims)
        return Option(device.name, free, names, sum(victim.bytes for victim in victims))

    def _room_later(self, device: Device, claim: _Claim, needed: int) -> bool:
        """Whether it would have room if protections that run out by themselves had run out."""
        candidates = self._candidates(device, claim)
        return choose(candidates, needed - device.ledger.free_bytes, Standing.NOT_YET) is not None

    def _candidates(self, device: Device, claim: _Claim) -> list[Candidate]:
        return [
            Candidate(
                slot.model,
                device.ledger.weights_bytes(slot.model),
                slot.used_s,
                self._standing(slot, claim),
            )
            for slot in device.slots.values()
        ]

    def _standing(self, slot: Slot, claim: _Claim) -> Standing:
        """How freely the slot may be made to leave for this claim."""
        state, settings = self._state, self._state.settings
        if slot.state is not SlotState.READY or slot.running is not None:
            return Standing.NEVER
        if slot.model == claim.model or state.holds_on(slot.model):
            return Standing.NEVER
        if state.models[slot.model].pinned:
            return Standing.NEVER
        age_s = self._now - slot.since_s
        awaiting = state.queue.of_model(slot.model)
        if awaiting:
            if not slot.uses and age_s < settings.patience_s:
                return Standing.NOT_YET
            best_rank = min(state.rank(job, self._now) for job in awaiting)
            better = claim.rank is not None and claim.rank < best_rank
            return Standing.AWAITED if claim.due or better else Standing.NOT_YET
        if age_s >= settings.min_residency_s or claim.due:
            return Standing.IDLE
        return Standing.NOT_YET if self._swapped_back(slot, claim) else Standing.YOUNG

    def _swapped_back(self, slot: Slot, claim: _Claim) -> bool:
        """Whether two models would only take turns: the one that wants in was pushed out a
        moment ago, and somebody else works with the one that is here."""
        pushed_out_s = self._state.models[claim.model].pushed_out_s
        if pushed_out_s is None:
            return False
        recent = self._now - pushed_out_s < 2 * self._state.settings.min_residency_s
        return recent and bool(slot.users - {claim.participant})

    def _make_room_or_load(self, option: Option, model: str) -> Order:
        return self._make_room(option, model) if option.victims else Load(option.device, model)

    def _make_room(self, option: Option, model: str) -> Order:
        return Evict(option.device, option.victims[0], f"to make room for {model}", model)


def _goes_before(cold: _Claim, warm: _Claim) -> bool:
    """Whether a cold job that is ahead must not be overtaken by this warm one."""
    if cold.rank is None or warm.rank is None:
        return False
    return cold.due or cold.rank < warm.rank


def waiting_for(state: State, job: Job) -> str:
    """In a word, what a job waits for: "" (its turn, or nothing), "download", "load", "room",
    "device"."""
    if job.state is not JobState.QUEUED:
        return ""
    if awaits_download(state, job.model):
        return "download"
    if not any(device.state is DeviceState.READY for device in state.devices.values()):
        return "device"
    if job.lacks_room:
        return "room"
    if state.has_slot(job.model, SlotState.READY):
        return ""
    return "load" if state.has_slot(job.model, SlotState.LOADING) else ""
