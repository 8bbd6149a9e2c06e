"""Memory of one device for models of another: promised with a load, given back with the slot.

Only models whose settings name a swap device have any. Whoever works on that device comes first:
what models elsewhere have there is called back, between two of their jobs, as soon as somebody
waits for room. They go on with weights from host memory where they can, also those that are held or
pinned; else they leave.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from workshop_gpu.conductor.orders import Evict, Load, Order
from workshop_gpu.conductor.placement import Option
from workshop_gpu.conductor.placing import Placing
from workshop_gpu.conductor.planner import elsewhere_bytes
from workshop_gpu.conductor.planning import (
    TYPICAL,
    Size,
    encoders_of,
    kept_free_bytes,
    kind_of,
    missing_elsewhere_bytes,
    roles_of,
    size_of,
    wanted_models,
)
from workshop_gpu.conductor.records import Device, Slot, State
from workshop_gpu.conductor.room import Claim
from workshop_gpu.conductor.rungs import ENCODERS
from workshop_gpu.conductor.states import SlotState

if TYPE_CHECKING:
    from workshop_gpu.conductor.look import Look


def unseen(state: State, device: Device) -> frozenset[str]:
    """Devices that models name as their swap device, and this one's worker does not see."""
    named = {each.facts.memory.swap_device for each in state.models.values() if each.listed}
    return frozenset(
        name
        for name in named & state.devices.keys()
        if name != device.name and kind_of(name) == kind_of(device.name)
    ) - {*device.neighbours}


def replace_workers(state: State) -> None:
    """A worker sees what was named when it was started: for what is new it is replaced, once."""
    for device in state.devices.values():
        wanted = unseen(state, device)
        if device.takes_orders and wanted - device.to_see:
            device.to_see |= wanted
            names = ", ".join(sorted(wanted))
            device.retires = f"a planned restart: models may use memory of {names}"
            state.touch(device.name)


def lend(state: State, slot: Slot, *, moves: bool) -> None:
    """What the slot's placement takes of another device counts there. While a model `moves` from
    one placement to the next, so does what it has there until it has arrived."""
    model, placement = slot.model, slot.placement
    parts = encoders_of(state, model) if ENCODERS in placement.elsewhere else ()
    for device in state.devices.values():
        before = device.ledger.lent_bytes(slot.device, model)
        if device.name == placement.source:
            size_bytes = elsewhere_bytes(roles_of(state, model), placement)
            if not (moves and size_bytes < before):
                device.ledger.lend(slot.device, model, size_bytes, parts)
                state.touch(device.name)
        elif before and not moves:
            device.ledger.lend(slot.device, model, 0)
            state.touch(device.name)


def take_back(state: State, slot: Slot) -> None:
    """The slot has nothing on other devices any more."""
    for device in state.devices.values():
        if device.ledger.lent_bytes(slot.device, slot.model):
            device.ledger.lend(slot.device, slot.model, 0)
            state.touch(device.name)


def worker_ended(state: State, device: Device) -> None:
    """With a worker goes all that it held of other devices."""
    for each in state.devices.values():
        if each.ledger.neighbour_ended(device.name):
            state.touch(each.name)


def worker_holds(state: State, device: Device, elsewhere: dict[str, int]) -> None:
    """What the device's worker says that it holds of others."""
    for each in state.devices.values():
        if each is not device and each.ledger.neighbour_holds(
            device.name, elsewhere.get(each.name, 0)
        ):
            state.touch(each.name)


def guests(state: State, device: Device) -> list[Slot]:
    """Slots of other devices that have, or are getting, memory of this one."""
    if not device.ledger.lends:
        return []
    return [
        slot
        for other in state.devices.values()
        for slot in other.slots.values()
        if device.ledger.lent_bytes(other.name, slot.model)
    ]


def tell_guests_to_leave(state: State, device: Device, because: str) -> None:
    """They leave as soon as their devices are idle."""
    for slot in guests(state, device):
        if slot.state is SlotState.READY:
            slot.leaves_because = because
            state.touch(slot.device)


def given_back_bytes(state: State, device: Device, slots: Iterable[Slot]) -> int:
    """What comes free on the device once these models of others have nothing there any more."""
    models: dict[str, list[str]] = {}
    for slot in slots:
        models.setdefault(slot.device, []).append(slot.model)
    return sum(device.ledger.called_back_bytes(name, *each) for name, each in models.items())


def way_out(state: State, slot: Slot, now: float) -> Load | None:
    """How the model is placed so that it has nothing on other devices, in what room its own has
    now. None where there is no such rung, or no room for one."""
    device = state.devices[slot.device]
    size = TYPICAL if slot.drawn is None else Size(*slot.drawn)
    free_bytes = device.ledger.free_for(slot.model, kept_free_bytes(state, slot.model))

    def ask(needed: int) -> Option | None:
        return Option(device.name, free_bytes) if needed <= free_bytes else None

    option = Placing(state, now, slot.model, size).alone(device, ask)
    if option is None:
        return None
    return Load(device.name, slot.model, option.placement, option.weights_bytes)


def give_back(
    state: State, slot: Slot, now: float, because: str, *, kept: bool
) -> Load | Evict | None:
    """The model of another device gives its memory here back, between two of its jobs: it goes
    to a rung without, or it leaves unless it is `kept`. None: not now, or not at all."""
    idle = slot.state is SlotState.READY and not slot.running
    if not idle or not state.devices[slot.device].can_transfer:
        return None
    way = way_out(state, slot, now)
    if way is None and not kept:
        return Evict(slot.device, slot.model, because)
    return way


def call_back(look: "Look") -> Order | None:
    """Where somebody waits for room that models of other devices take, they give it back, those
    first that were not used for longest. One for which jobs wait stays as it is, unless others
    were overtaken for too long."""
    state = look.state
    due = state.queue.due_models()
    for device in look.devices:
        lent = sorted(guests(state, device), key=lambda slot: slot.used_s)
        if not lent or not _calls_back(look, device, lent):
            continue
        for slot in lent:
            if state.queue.awaits(slot.model) and (not due or slot.model in due):
                continue
            because = f"{device.name} needs its memory"
            order = give_back(state, slot, look.now, because, kept=state.is_kept(slot))
            if order is not None:
                return order
    return _room_elsewhere(look)


def _room_elsewhere(look: "Look") -> Evict | None:
    """Where all rungs that a waiting job may take need memory of another device, idle models leave
    that one for it."""
    state = look.state
    for model in state.queue.models():
        swap = state.devices.get(state.models[model].facts.memory.swap_device)
        if swap is None or swap not in look.devices:
            continue
        if state.has_slot(model, SlotState.LOADING, SlotState.LEAVING):
            continue
        job = state.queue.first_of(model)
        ready = [state.devices[slot.device] for slot in state.slots(model, SlotState.READY)]
        if not all(missing_elsewhere_bytes(state, model, size_of(job), each) for each in ready):
            continue
        claim, placing = look.claim(job), look.placing(job)
        for device in (*ready, *look.open(model)):
            missing = missing_elsewhere_bytes(state, model, size_of(job), device)
            if not missing or not look.room.later(device, claim, placing.least_bytes(device)):
                continue
            # What stays free beside the model itself does so on its own device.
            same_bytes = look.room.free_bytes(swap, claim) - swap.ledger.free_bytes
            needed = max(0, swap.ledger.free_bytes) + missing + same_bytes
            option = look.room.option(swap, claim, needed)
            if option is not None and option.victims and swap.can_transfer:
                because = f"{model} on {device.name} needs its memory"
                return Evict(swap.name, option.victims[0], because)
    return None


def _calls_back(look: "Look", device: Device, lent: Sequence[Slot]) -> bool:
    """Whether somebody gets room on the device by that, sooner than otherwise."""
    if device.name in look.reserved:
        return True
    state, back_bytes = look.state, given_back_bytes(look.state, device, lent)

    def later(each: Device, placing: Placing, claim: Claim, more_bytes: int) -> bool:
        return look.room.later(each, claim, placing.least_bytes(each) - more_bytes)

    for model in dict.fromkeys([*sorted(look.without_room), *wanted_models(state)]):
        able = [
            each
            for each in look.devices
            if model not in each.slots or each.has(model, SlotState.READY)
        ]
        if device not in able:
            continue
        if state.queue.awaits(model):
            job = state.queue.first_of(model)
            placing, claim = look.placing(job), look.claim(job)
        else:
            placing, claim = Placing(state, look.now, model, TYPICAL), Claim(model, None, None)
        if later(device, placing, claim, back_bytes) and not any(
            later(each, placing, claim, 0) for each in able
        ):
            return True
    return False
