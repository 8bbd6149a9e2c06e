"""Memory of one device for models of another: promised with a load, given back with the slot.

Only models whose settings name a swap device have any. Whoever works on that device comes first:
what idle models elsewhere have there is called back as soon as somebody waits for room.
"""

from string import digits
from typing import TYPE_CHECKING

from workshop_gpu.conductor.planner import elsewhere_bytes
from workshop_gpu.conductor.planning import encoders_of, roles_of
from workshop_gpu.conductor.records import Device, Slot, State
from workshop_gpu.conductor.rungs import ENCODERS
from workshop_gpu.conductor.states import SlotState

if TYPE_CHECKING:
    from workshop_gpu.conductor.look import Look
    from workshop_gpu.conductor.orders import Evict


def kind_of(device: str) -> str:
    """Of "cuda:1" "cuda:": only devices of one kind lend to each other."""
    return device.rstrip(digits)


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


def call_back(look: "Look") -> "Evict | None":
    """Where somebody waits for room that an idle model of another device takes, that one leaves.
    One for which jobs wait stays, unless others were overtaken for too long."""
    from workshop_gpu.conductor.orders import Evict

    state = look.state
    if not (look.without_room or look.reserved):
        return None
    due = state.queue.due_models()
    for device in look.devices:
        if not (look.without_room or device.name in look.reserved):
            continue
        for slot in guests(state, device):
            awaited = state.queue.awaits(slot.model) and (not due or slot.model in due)
            idle = slot.state is SlotState.READY and not slot.running
            if (
                idle
                and not state.is_kept(slot)
                and not awaited
                and state.devices[slot.device].can_transfer
            ):
                return Evict(slot.device, slot.model, f"{device.name} needs its memory")
    return None
