"""6: an idle model is brought to a better rung as soon as there is room for it.

It takes nothing from anybody, and disturbs nobody: only while no job and no reservation waits, on a
device that computes nothing, and only where its jobs would then be clearly faster. Each model does
so a few times at most until it draws again; going down is an affair of jobs. So it never flaps.
"""

from collections.abc import Iterator

from workshop_gpu.conductor.eviction import Standing
from workshop_gpu.conductor.look import Look
from workshop_gpu.conductor.orders import Order
from workshop_gpu.conductor.placing import MOST_MOVES, REST_S, Placing
from workshop_gpu.conductor.planning import TYPICAL, Size
from workshop_gpu.conductor.records import Slot
from workshop_gpu.conductor.room import Claim
from workshop_gpu.conductor.rungs import RESIDENT
from workshop_gpu.conductor.states import ReservationState, SlotState


def climb(look: Look) -> Order | None:
    """The way up of the first that has one."""
    state = look.state
    if len(state.queue) or _reservation_waits(look):
        return None
    for slot in _low_and_idle(look):
        device = state.devices[slot.device]
        size = TYPICAL if slot.drawn is None else Size(*slot.drawn)
        placing = Placing(state, look.now, slot.model, size)
        claim = Claim(slot.model, None, None)
        option = placing.climb(device, look.ask(device, claim, Standing.NOBODY))
        if option is not None:
            return look.make_room_or_load(option, slot.model)
    return None


def _reservation_waits(look: Look) -> bool:
    waits = ReservationState.WAITING
    return any(each.state is waits for each in look.state.reservations.values())


def _low_and_idle(look: Look) -> Iterator[Slot]:
    for device in look.free:
        if device.running or device.in_safe_mode:
            continue
        for slot in device.slots.values():
            rested = look.now - max(slot.since_s, slot.used_s) >= REST_S
            low = slot.state is SlotState.READY and slot.placement != RESIDENT
            model = look.state.models[slot.model]
            offered = model.listed and model.facts.enabled
            if low and rested and offered and slot.moves < MOST_MOVES:
                yield slot
