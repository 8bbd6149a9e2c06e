"""The next order, if any: pure decisions over the records.

Each device has two lanes: one loads and evicts, one thing at a time; the other computes, one job
or batch at a time. `next_order` looks at the lanes that are free and finds the first that applies:

1. a slot that was told to leave leaves;
2. a hold or preload that has waited longer than the patience gets its model loaded;
3. the models for which jobs wait are taken in the order of the first job of each:
   a. it runs where its model is ready on a device that computes nothing, with others of its
      group where that is faster; so a warm job overtakes a cold one, but never one of a better
      class and none whose patience is over;
   b. else its model is loaded where there is room, also beside what runs; where room needs
      evictions they come first, one at a time, and are decided anew each time. One more device
      loads a model that others have if that is quicker than waiting for these;
   c. a job that waits only until a protection or a run ends reserves the device: nothing leaves
      there for those behind it, unless they are due. If it is due, or of a better class, nothing
      that it would have to wait for begins there either;
4. models that are held, preloaded or pinned are loaded where that disturbs no waiting job;
5. a slot that nobody needs leaves: its keep-warm time is over, or it is no longer offered.

Devices that are closed for a reservation (see `granting.py`) are left out, and nothing is done
for jobs while the instructor pauses the queue.

It changes nothing and is asked again after each order, until it has none.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from workshop_gpu.conductor.batching import best_size
from workshop_gpu.conductor.eviction import Standing
from workshop_gpu.conductor.fetching import awaits_download
from workshop_gpu.conductor.placement import Option, another_is_worth_it, best
from workshop_gpu.conductor.queue import Key
from workshop_gpu.conductor.records import Activity, Device, Job, Slot, State
from workshop_gpu.conductor.room import Claim, Room
from workshop_gpu.conductor.states import SlotState

_HERE_OR_COMING = (SlotState.LOADING, SlotState.READY)

_SIZES_TRIED = 8
"""Where the first job of a model has no room, so many behind it are asked whether they are
smaller."""


@dataclass(frozen=True, slots=True)
class Run:
    """Run the jobs as one batch; `overtaken` are the models whose jobs ahead of it wait."""

    device: str
    jobs: tuple[Job, ...]
    overtaken: tuple[str, ...] = ()


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
    """The next order, and the models for whose jobs no device that was looked at has room."""

    order: Order | None = None
    without_room: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Closed:
    """A device that is kept for a job: whoever would not be done in `ready_s` seconds does not
    begin there if it is due and before him, or of a better class."""

    rank: int
    due_key: Key | None
    ready_s: float

    def keeps_out(self, job: Job, run_s: float) -> bool:
        due = self.due_key is not None and self.due_key < job.key
        return (due or self.rank < job.rank) and run_s > self.ready_s


def next_order(state: State, now: float, devices: Sequence[Device]) -> Decision:
    """The first order of the list above that applies; loads and evictions are looked for on these
    devices only."""
    return _Look(state, now, devices).decide()


class _Look:
    """One look at the state at one moment."""

    def __init__(self, state: State, now: float, devices: Sequence[Device]) -> None:
        self._state = state
        self._now = now
        self._devices = [device for device in devices if device.name not in state.closed]
        self._free = [device for device in self._devices if device.can_transfer]
        self._resting = set(state.lanes.idle()) - state.closed.keys()
        self._making_room = Counter(
            device.room_for for device in state.devices.values() if device.room_for
        )
        self._room = Room(state, now)
        self._closed: dict[str, _Closed] = {}
        self._reserved: set[str] = set()
        self._useless: set[tuple[str, str]] = set()
        """Devices and models that are ready there, but have no room to run."""
        self._passed: list[str] = []
        self._decision = Decision()

    def decide(self) -> Decision:
        if self._free or self._resting:
            wanted = list(self._wanted())
            self._decision.order = (
                self._told_to_leave()
                or self._for_wanted(claim for claim in wanted if claim.due)
                or self._for_jobs()
                or self._for_wanted(claim for claim in wanted if not claim.due)
                or self._unneeded()
            )
        return self._decision

    # 1

    def _told_to_leave(self) -> Order | None:
        for device in self._free:
            for slot in device.slots.values():
                told = slot.state is SlotState.READY and slot.leaves_because and not slot.running
                if told and not self._state.holds.on(slot.model):
                    return Evict(device.name, slot.model, slot.leaves_because)
        return None

    # 2 and 4

    def _for_wanted(self, claims: Iterable[Claim]) -> Order | None:
        for claim in claims:
            working_bytes = self._state.working_bytes_of(claim.model)
            options = [
                self._option(device, claim, self._to_load(device, claim.model) + working_bytes)
                for device in self._open(claim.model)
                if device.name not in self._closed
            ]
            option = best(each for each in options if each is not None)
            if option is not None:
                return _make_room_or_load(option, claim.model)
        return None

    def _wanted(self) -> Iterator[Claim]:
        """Models that should be ready and are not, those first that have waited longest."""
        state = self._state
        waiting: list[tuple[float, Claim]] = []
        for name, model in state.models.items():
            if not (state.holds.on(name) or model.wanted_s is not None or model.pinned):
                continue
            if model.facts.problem or not model.listed or not model.facts.on_disk:
                continue
            if state.has_slot(name, *_HERE_OR_COMING, SlotState.LEAVING):
                continue
            if self._making_room[name]:
                continue
            holds = state.holds_on(name)
            since = [hold.taken_s for hold in holds]
            if model.wanted_s is not None:
                since.append(model.wanted_s)
            first_s = min(since, default=self._now)
            due = self._now - first_s >= state.settings.patience_s and bool(since)
            participant = holds[0].participant if holds else None
            waiting.append((first_s, Claim(name, participant, None, overdue=due)))
        return (claim for _, claim in sorted(waiting, key=lambda each: each[0]))

    # 3

    def _for_jobs(self) -> Order | None:
        queue = self._state.queue
        if self._state.policy.paused:
            return None
        for model in queue.models():
            if awaits_download(self._state, model):
                continue
            first = queue.first(model)
            assert first is not None
            order = self._run(model) or self._load(first)
            if order is not None:
                return order
            self._passed.append(model)
        return None

    # 3a

    def _run(self, model: str) -> Order | None:
        """Runs the first for which there is room, or makes room for its working memory."""
        if not self._resting:
            return None
        places = [slot.device for slot in self._state.slots(model, SlotState.READY)]
        places = [device for device in places if device in self._resting]
        if not places:
            return None
        tried: set[int] = set()
        for job in self._state.queue.of_model(model, _SIZES_TRIED):
            needed = self._state.working_bytes(job)
            if needed in tried:
                continue
            tried.add(needed)
            order = self._run_one(job, needed, places)
            if order is not None:
                return order
        return None

    def _run_one(self, job: Job, needed: int, places: list[str]) -> Order | None:
        claim = self._claim(job)
        run_s = self._state.cost_s(job)
        devices = []
        for name in places:
            closed = self._closed.get(name)
            if closed is None or not closed.keeps_out(job, run_s):
                devices.append(self._state.devices[name])
        options = [self._option(device, claim, needed) for device in devices]
        option = best(each for each in options if each is not None)
        if option is None:
            self._wait_where_it_is(devices, claim, needed)
            return None
        if option.victims:
            return _make_room(option, job.model)
        device = self._state.devices[option.device]
        jobs = (job,) if option.device in self._closed else self._batch(job, device)
        return Run(option.device, jobs, (*self._passed, job.model))

    def _wait_where_it_is(self, devices: Sequence[Device], claim: Claim, needed: int) -> None:
        """It can get room later, or others hold it for good: then it is as good as not there."""
        later = {each.name for each in devices if self._room.later(each, claim, needed)}
        self._reserved.update(later)
        self._useless.update((each.name, claim.model) for each in devices if each.name not in later)
        if devices and not later:
            self._decision.without_room.add(claim.model)

    def _batch(self, job: Job, device: Device) -> tuple[Job, ...]:
        """Those that are drawn together. A batch takes longer than a job: so there is none while
        somebody is due or of a better class, and nobody who is due is overtaken by it. Whoever
        ended a worker is drawn alone: the next to die with it would be blamed too."""
        state, request = self._state, job.request
        limit = state.settings.batch_limit
        if limit < 2 or not request.group or job.deaths or device.in_safe_mode:
            return (job,)
        if state.queue.line.first.rank < job.rank:
            return (job,)
        if any(model != job.model for model in state.due):
            return (job,)
        others = [
            each
            for each in state.queue.of_group(job.model, request.group, 2 * limit)
            if each is not job and each.rank == job.rank and _alike(each, job) and not each.deaths
        ]
        near = state.queue.of_model(job.model, 2 * limit)
        due = next(
            (each for each in near if each.due and each.request.group != request.group), None
        )
        if due is not None:
            others = [each for each in others if each.key < due.key]
        free = self._room.free_bytes(device)
        size = best_size(min(limit, len(others) + 1), lambda size: self._each_s(job, size))
        while size > 1 and state.working_bytes(job, size) > free:
            size -= 1
        return (job, *others[: size - 1])

    def _each_s(self, job: Job, size: int) -> float | None:
        together_s = self._state.run_s(job, size)
        return None if together_s is None else together_s / size

    # 3b and 3c

    def _load(self, job: Job) -> Order | None:
        """Where the model of the first who waits for it can be loaded, or what it waits for."""
        state, claim = self._state, self._claim(job)
        ready = [
            slot
            for slot in state.slots(job.model, SlotState.READY)
            if (slot.device, slot.model) not in self._useless
        ]
        if ready and not self._resting and not claim.due:
            return None
        loading = list(state.slots(job.model, SlotState.LOADING))
        coming = len(loading) + self._making_room[job.model]
        if (ready or coming) and not self._another_is_worth_it(job, claim.due_key, ready, coming):
            self._keep_for(claim, loading)
            return None
        working_bytes = state.working_bytes(job)
        devices = self._open(job.model)
        worst = Standing.AWAITED if claim.due or not (ready or coming) else Standing.IDLE
        if (ready or coming) and not claim.due:
            devices = [device for device in devices if device.name in self._resting]
        options = [
            self._option(device, claim, self._to_load(device, job.model) + working_bytes, worst)
            for device in devices
        ]
        option = best(each for each in options if each is not None)
        if option is not None:
            return _make_room_or_load(option, job.model)
        if not coming and (claim.due or not ready):
            self._wait_for_room(claim, working_bytes, alone=not ready)
        return None

    def _another_is_worth_it(
        self, job: Job, due_key: Key | None, ready: Sequence[Slot], coming: int
    ) -> bool:
        state, queue = self._state, self._state.queue
        devices = [state.devices[slot.device] for slot in ready]
        free_in_s = min((self._free_in_s(device) for device in devices), default=0.0)
        load_s = state.estimates.load_guess_s(job.model, state.weights_bytes(job.model))
        if due_key is not None and not coming:
            # It is overtaken on other devices for as long as it waits for the one that has it.
            is_next = any(self._is_next(due_key, device) for device in devices)
            return not (is_next and free_in_s <= load_s)
        return another_is_worth_it(
            queue.waiting(job.model),
            queue.work_s(job.model),
            len(ready),
            coming,
            free_in_s,
            load_s,
        )

    def _is_next(self, key: Key, device: Device) -> bool:
        """Whether nobody who could begin on the device is before the key."""
        ready = [slot.model for slot in device.slots.values() if slot.state is SlotState.READY]
        firsts = [self._state.queue.first(model) for model in ready]
        return all(first is None or first.key >= key for first in firsts)

    def _free_in_s(self, device: Device) -> float:
        if not device.running:
            return 0.0
        return float("inf") if device.until_s is None else max(0.0, device.until_s - self._now)

    def _keep_for(self, claim: Claim, loading: Sequence[Slot]) -> None:
        """The devices that prepare the claim's model are kept for it."""
        making = [device for device in self._state.devices.values() if device.room_for]
        names = [device.name for device in making if device.room_for == claim.model]
        for name in [*names, *(slot.device for slot in loading)]:
            self._close(name, claim, self._ready_s(self._state.devices[name], claim.model))

    def _ready_s(self, device: Device, model: str) -> float:
        """Seconds until the model that the device prepares should be ready."""
        estimates = self._state.estimates
        load_s = estimates.load_guess_s(model, self._state.weights_bytes(model))
        if device.activity is not Activity.LOADING:
            return load_s
        return max(0.0, load_s - (self._now - device.since_s))

    def _close(self, device: str, claim: Claim, ready_s: float) -> None:
        if device not in self._closed and claim.rank is not None:
            self._closed[device] = _Closed(claim.rank, claim.due_key, ready_s)

    def _wait_for_room(self, claim: Claim, working_bytes: int, alone: bool) -> None:
        """3c: what will be free is reserved, and the device where it is free first is kept. What
        is reserved for others already is not looked at again."""

        def later(device: Device, worst: Standing) -> bool:
            needed = self._to_load(device, claim.model) + working_bytes
            return self._room.later(device, claim, needed, worst)

        devices = [device for device in self._devices if claim.model not in device.slots]
        unreserved = [device for device in devices if device.name not in self._reserved]
        able = [device for device in unreserved if later(device, Standing.NOT_YET)]
        self._reserved.update(device.name for device in able)
        if alone and devices and not able and len(unreserved) == len(devices):
            self._decision.without_room.add(claim.model)
        ends = [device for device in able if later(device, Standing.RUNS)]
        soonest = min(ends, key=self._free_in_s, default=None)
        if soonest is not None:
            self._close(soonest.name, claim, 0.0)

    # 5

    def _unneeded(self) -> Order | None:
        for device in self._free:
            for slot in device.slots.values():
                because = self._why_unneeded(slot)
                if because:
                    return Evict(device.name, slot.model, because)
        return None

    def _why_unneeded(self, slot: Slot) -> str:
        model = self._state.models[slot.model]
        if slot.state is not SlotState.READY or slot.running or model.pinned:
            return ""
        if self._state.queue.awaits(slot.model) or self._state.holds.on(slot.model):
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
        """Devices where the model could be loaded: it is not there, and did not fail there."""
        if not self._state.models[model].facts.on_disk:
            return []
        return [device for device in self._free if model not in device.slots]

    def _claim(self, job: Job) -> Claim:
        due = self._state.due.get(job.model)
        due_key = min(each.key for each in due.values()) if due else None
        return Claim(job.model, job.participant, job.key, due_key)

    def _to_load(self, device: Device, model: str) -> int:
        """Bytes that a load of the model would bring: what is there already is shared."""
        state = self._state
        parts = state.estimates.parts(state.models[model].facts)
        here_bytes = device.ledger.present_bytes(parts) if parts else 0
        return state.weights_bytes(model) - here_bytes

    def _option(
        self, device: Device, claim: Claim, needed: int, worst: Standing = Standing.AWAITED
    ) -> Option | None:
        reserved = device.name in self._reserved and claim.due_key is None
        if reserved or not device.can_transfer:
            worst = Standing.NOBODY
        return self._room.option(device, claim, needed, worst)


def _alike(one: Job, other: Job) -> bool:
    """Whether two jobs of a group are of the same size."""
    this, that = one.request, other.request
    return (this.pixels, this.steps, this.batch) == (that.pixels, that.steps, that.batch)


def _make_room_or_load(option: Option, model: str) -> Order:
    return _make_room(option, model) if option.victims else Load(option.device, model)


def _make_room(option: Option, model: str) -> Order:
    return Evict(option.device, option.victims[0], f"to make room for {model}", model)
