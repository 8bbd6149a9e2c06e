"""The next order, if any: pure decisions over the records.

Each device has two lanes: one loads and evicts, one thing at a time; the other computes, one job
or batch at a time. `next_order` looks at the lanes that are free and finds the first that applies:

1. a slot that was told to leave leaves;
2. a hold or preload that has waited longer than the patience gets its model loaded;
3. the models for which jobs wait are taken in the order of the first job of each; where that one
   has no room, others of the model are tried at their own places in the order (see `shapes.py`):
   a. it runs where its model is ready on a device that computes nothing, with others of its
      group where that is faster; so a warm job overtakes a cold one, but never one of a better
      class and none whose patience is over;
   b. else its model is loaded where there is room, also beside what runs; where room needs
      evictions they come first, one at a time, and are decided anew each time. One more device
      loads a model that others have if that is quicker than waiting for these;
   c. a job that waits only until a protection or a run ends reserves the device: nothing leaves
      there for those behind it, unless they are due. If it is due, or of a better class, nothing
      that it would have to wait for begins there either;
   d. a model that is ready where none of its jobs has room, whatever else may leave there, is as
      good as one for which nobody waits: others may be loaded in its place;
4. models that are held, preloaded or pinned are loaded where that disturbs no waiting job;
5. a slot that nobody needs leaves: its keep-warm time is over, or it is no longer offered;
6. an idle model that is not wholly on its device is placed better, where that disturbs nobody;
7. an idle model that keeps memory of another device leaves, where somebody waits for room there;
8. where nobody waits, a model's blocks are compiled beside all else (see `compiled.py`).

Devices that are closed for a reservation (see `granting.py`) are left out, and nothing is done
for jobs while the instructor pauses the queue. A suspect, which is a job or load that was at work
when a worker ended, begins on a device where nothing runs and nothing is moved, and nothing begins
beside it; where its turn has come, nothing begins there for those behind it either.

It changes nothing and is asked again after each order, until it has none. 3a is in `starting.py`,
3b and 3c are in `loading.py`, 6 is in `climbing.py`. Who is due is said by `ordering.py`, and by
`lag.py` where several devices serve a model.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

from workshop_gpu.conductor.climbing import climb
from workshop_gpu.conductor.compiled import to_compile
from workshop_gpu.conductor.fetching import awaits_download
from workshop_gpu.conductor.lending import call_back
from workshop_gpu.conductor.loading import load
from workshop_gpu.conductor.look import Look
from workshop_gpu.conductor.orders import Decision, Evict, Order
from workshop_gpu.conductor.placement import best
from workshop_gpu.conductor.placing import Placing
from workshop_gpu.conductor.planning import TYPICAL
from workshop_gpu.conductor.records import Device, Slot, State
from workshop_gpu.conductor.room import Claim
from workshop_gpu.conductor.shapes import others
from workshop_gpu.conductor.starting import resting_with, start
from workshop_gpu.conductor.states import SlotState

_PRESENT = (SlotState.LOADING, SlotState.READY, SlotState.LEAVING)


def next_order(state: State, now: float, devices: Sequence[Device]) -> Decision:
    """The first order of the list above that applies; loads and evictions are looked for on these
    devices only."""
    look = Look(state, now, devices)
    if not (look.free or look.resting):
        return Decision()
    wanted = list(_wanted(look))
    order = (
        _told_to_leave(look)
        or _for_wanted(look, (claim for claim in wanted if claim.due))
        or _for_jobs(look)
        or _instead_of_stuck(look)
        or _for_wanted(look, (claim for claim in wanted if not claim.due))
        or _unneeded(look)
        or climb(look)
        or call_back(look)
        or to_compile(state, look.devices)
    )
    return Decision(order, look.without_room)


# 1


def _told_to_leave(look: Look) -> Order | None:
    for slot in look.idle_slots:
        if slot.leaves_because and not look.state.holds.on(slot.model):
            return Evict(slot.device, slot.model, slot.leaves_because)
    return None


# 2 and 4


def _for_wanted(look: Look, claims: Iterable[Claim]) -> Order | None:
    for claim in claims:
        placing = Placing(look.state, look.now, claim.model, TYPICAL)
        options = [
            placing.load(device, look.ask(device, claim))
            for device in look.open(claim.model)
            if device.name not in look.closed
        ]
        option = best(each for each in options if each is not None)
        order = None if option is None else look.make_room_or_load(option, claim.model)
        if order is not None:
            return order
    return None


def _wanted(look: Look) -> Iterator[Claim]:
    """Models that should be ready and are not, those first that have waited longest."""
    state = look.state
    waiting: list[tuple[float, Claim]] = []
    for name, model in state.models.items():
        if not (state.holds.on(name) or model.wanted_s is not None or model.pinned):
            continue
        if model.facts.problem or not model.listed or not model.facts.on_disk:
            continue
        if state.has_slot(name, *_PRESENT) or look.making_room(name):
            continue
        holds = state.holds_on(name)
        since = [hold.taken_s for hold in holds]
        if model.wanted_s is not None:
            since.append(model.wanted_s)
        first_s = min(since, default=look.now)
        due = look.now - first_s >= state.settings.patience_s and bool(since)
        participant = holds[0].participant if holds else None
        waiting.append((first_s, Claim(name, participant, None, overdue=due)))
    return (claim for _, claim in sorted(waiting, key=lambda each: each[0]))


# 3


def _for_jobs(look: Look) -> Order | None:
    state = look.state
    if state.policy.paused:
        return None
    passed: list[str] = []
    due = state.queue.due_models()
    turns = [(job.key, job) for job in map(state.queue.first_of, state.queue.models())]
    while turns:
        _, job = heappop(turns)
        model, first = job.model, job.model not in passed
        if awaits_download(state, model):
            continue
        due_here = model in due or look.lag.falls_behind(model)
        if look.resting or due_here or not state.has_slot(model, SlotState.READY):
            order = start(look, job, passed)
            if order is None and (first or model in look.without_room):
                order = load(look, job)
            if order is not None:
                return order
            if first and (model in look.without_room or resting_with(look, model)):
                for each in others(state.queue, model):
                    heappush(turns, (each.key, each))
        # Else it is ready, and waits for a device that computes nothing.
        if first:
            passed.append(model)
    return None


def _instead_of_stuck(look: Look) -> Order | None:
    stuck = look.stuck
    return _for_jobs(Look(look.state, look.now, look.devices, stuck)) if stuck else None


# 5


def _unneeded(look: Look) -> Order | None:
    for slot in look.idle_slots:
        because = _why_unneeded(look, slot)
        if because:
            return Evict(slot.device, slot.model, because)
    return None


def _why_unneeded(look: Look, slot: Slot) -> str:
    state = look.state
    if state.queue.awaits(slot.model) or state.is_kept(slot):
        return ""
    model = state.models[slot.model]
    if not model.listed:
        return "no longer in the catalogue"
    if not model.facts.enabled:
        return "switched off by the instructor"
    keep_s = model.facts.keep_warm_s
    if keep_s < 0:
        return ""
    if not slot.uses:
        keep_s = max(keep_s, state.settings.min_residency_s)
    return f"not used for {keep_s:.0f} s" if look.now - slot.used_s >= keep_s else ""
