"""3b and 3c: where the model of a waiting job is loaded, or which device is kept for it."""

from collections.abc import Sequence
from itertools import islice

from workshop_gpu.conductor.eviction import Standing
from workshop_gpu.conductor.look import Look
from workshop_gpu.conductor.orders import Order
from workshop_gpu.conductor.placement import another_is_worth_it, best
from workshop_gpu.conductor.placing import Placing
from workshop_gpu.conductor.records import Activity, Device, Job, Slot
from workshop_gpu.conductor.room import Claim
from workshop_gpu.conductor.states import SlotState


def load(look: Look, job: Job) -> Order | None:
    """Where the model of the first who waits for it can be loaded, or what it waits for."""
    state, model, claim = look.state, job.model, look.claim(job)
    loading = list(state.slots(model, SlotState.LOADING))
    coming = len(loading) + len(look.making_room(model))
    ready = [
        slot
        for slot in state.slots(model, SlotState.READY)
        if not look.useless or (slot.device, model) not in look.useless
    ]
    if ready and not look.resting and not claim.due:
        return None
    placing = look.placing(job)
    giving = None
    at_once = bool(ready) and not claim.due
    if not coming and (at_once or look.is_reserved_for_others(model)):
        # Where no device would give room, nor be kept or reserved for the claim, it need not be
        # asked whether one more is worth it.
        giving = _giving(look, job, placing)
        if not (_resting(look, giving) if at_once else giving):
            return None
    if (ready or coming) and not another_is_worth_it_for(look, claim, ready, coming):
        _keep_for(look, claim, placing, loading)
        return None
    if giving is None:
        giving = _giving(look, job, placing)
    order = _make_it_ready(look, claim, placing, giving, anew=not (ready or coming))
    if order is None and coming:
        # One more would be worth it and cannot be had: what prepares the model is all there is.
        _keep_for(look, claim, placing, loading)
    elif order is None and (claim.due or not ready):
        _wait_for_room(look, claim, placing, alone=not ready)
    return order


def _giving(look: Look, job: Job, placing: Placing) -> list[Device]:
    """Devices that may load the model for the job, beside what runs there too: but what is kept for
    one who waits for the end of a run is not loaded full meanwhile."""
    giving = look.giving(look.claim(job), placing.fewest_bytes)
    if not look.closed:
        return giving
    state = look.state
    load_s = state.estimates.load_guess_s(job.model, state.weights_bytes(job.model))
    return [
        device
        for device in giving
        if device.name not in look.closed or not look.closed[device.name].keeps_out(job, load_s)
    ]


def _resting(look: Look, devices: Sequence[Device]) -> list[Device]:
    return [device for device in devices if device.name in look.resting]


def _make_it_ready(
    look: Look, claim: Claim, placing: Placing, devices: Sequence[Device], anew: bool
) -> Order | None:
    """Loads the model on one of these devices, or makes room for it. Not `anew`: one more device
    loads it, and for those who are not due only one that could begin with it at once, and takes it
    from nobody."""
    if not anew and not claim.due:
        devices = _resting(look, devices)
    worst = Standing.AWAITED if anew or claim.due else Standing.IDLE
    options = [placing.load(device, look.ask(device, claim, worst)) for device in devices]
    option = best(each for each in options if each is not None)
    return None if option is None else look.make_room_or_load(option, claim.model)


def another_is_worth_it_for(look: Look, claim: Claim, ready: Sequence[Slot], coming: int) -> bool:
    """Whether one more device should load the claim's model, which these slots have ready and
    `coming` devices prepare."""
    state, queue, model = look.state, look.state.queue, claim.model
    if not coming and look.lag.falls_behind(model):
        return True
    due_key = None if coming else claim.due_key
    due = queue.due_of(model) if due_key is not None else 0
    if due > len(ready):
        return True
    load_s = state.estimates.load_guess_s(model, state.weights_bytes(model))
    devices = [state.devices[slot.device] for slot in ready]
    if due_key is not None:
        # They are overtaken on other devices for as long as they wait for those that have it.
        soon = (
            device
            for device in devices
            if look.free_in_s(device) <= load_s and look.first_key_on(device) >= due_key
        )
        return due > len(list(islice(soon, due)))

    def worth(free_in_s: float) -> bool:
        waiting, work_s = queue.waiting(model), queue.work_s(model)
        return another_is_worth_it(waiting, work_s, len(ready), coming, free_in_s, load_s)

    # With a long queue it is even if one of them were free at once: then nobody need look.
    return worth(0.0) or worth(min(map(look.free_in_s, devices), default=0.0))


def _keep_for(look: Look, claim: Claim, placing: Placing, loading: Sequence[Slot]) -> None:
    """The devices that prepare the claim's model are kept for it."""
    for name in [*look.making_room(claim.model), *(slot.device for slot in loading)]:
        look.close(name, claim, _ready_s(look, look.state.devices[name], claim, placing))


def _ready_s(look: Look, device: Device, claim: Claim, placing: Placing) -> float:
    """Seconds until the model that the device prepares should be ready. None at all where more than
    what is leaving must leave: what began there would be in the way of it."""
    state, model = look.state, claim.model
    load_s = state.estimates.load_guess_s(model, state.weights_bytes(model))
    if device.activity is Activity.LOADING:
        return max(0.0, load_s - (look.now - device.since_s))
    leaving = [slot for slot in device.slots.values() if slot.state is SlotState.LEAVING]
    needed = placing.least_bytes(device)
    enough = look.room.later(device, claim, needed, Standing.NOBODY, leaving)
    return load_s if enough else 0.0


def _wait_for_room(look: Look, claim: Claim, placing: Placing, alone: bool) -> None:
    """What will be free is reserved, and the device where it is free first is kept: one whose
    worker has yet to start only where no other will do, for nobody knows when that is. What is
    reserved for others already is not looked at again."""

    devices = [device for device in look.devices if claim.model not in device.slots]
    unreserved = [device for device in devices if device.name not in look.reserved]
    needed = {device.name: placing.least_bytes(device) for device in unreserved}
    able = [each for each in unreserved if look.room.later(each, claim, needed[each.name])]
    look.reserved.update(device.name for device in able)
    if alone and devices and not able and len(unreserved) == len(devices):
        look.without_room.add(claim.model)
    for device in sorted(able, key=lambda each: (not each.takes_orders, look.free_in_s(each))):
        if look.room.later(device, claim, needed[device.name], Standing.UNTRIED):
            look.close(device.name, claim, 0.0)
            break
