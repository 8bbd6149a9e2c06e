"""When a model's blocks are compiled.

Nobody ever waits for the compiler: it has its turn on a device where nothing goes on, while nobody
waits for anything. It runs beside the worker's lanes, and the worker halts it while somebody draws.
"""

from collections.abc import Iterable
from enum import Enum

from workshop_gpu.conductor.errors_placement import NotRepeatable
from workshop_gpu.conductor.events import JobSubmitted
from workshop_gpu.conductor.orders import Compile
from workshop_gpu.conductor.records import Device, Job, Slot, State
from workshop_gpu.conductor.states import DeviceState, SlotState

NOT_AS_ASKED = (
    "was drawn without compiled blocks, which are not ready for it here: its last bits may differ"
)


def to_compile(state: State, devices: Iterable[Device]) -> Compile | None:
    """The next model to compile: of those that were used and would be faster, the one that was
    used most."""
    if len(state.queue):
        return None
    room_bytes = state.settings.compile_room_bytes
    for device in devices:
        rests = device.can_transfer and not (device.running or device.in_safe_mode)
        if not rests or device.compiling or device.ledger.free_bytes < room_bytes:
            continue
        slots = [slot for slot in device.slots.values() if _is_worth_it(state, device, slot)]
        if slots:
            return Compile(device.name, max(slots, key=lambda slot: slot.uses).model)
    return None


def _is_worth_it(state: State, device: Device, slot: Slot) -> bool:
    return slot.state is SlotState.READY and slot.to_compile and may_compile(state, device, slot)


def may_compile(state: State, device: Device, slot: Slot) -> bool:
    """Whether the model's jobs may be drawn with compiled blocks there."""
    return device.compiles and state.models[slot.model].facts.compiles


class Blocks(str, Enum):
    """How a model's blocks are reckoned on a device. Where it has yet to come they are taken to be
    as they were when it drew last: what was compiled is kept."""

    COMPILED = "compiled"
    NOT_YET = "not compiled yet"
    NEVER = "not compiled"
    """The model or the device has none that are."""


def blocks_of(state: State, model: str, device: Device | None) -> Blocks:
    """On that device; without one, wherever the model is ready, or may come to."""
    if device is None:
        places = [state.devices[slot.device] for slot in state.slots(model, SlotState.READY)]
        device = next(iter(places or state.devices.values()), None)
    facts = state.models[model].facts
    if device is None or not (device.compiles and facts.compiles):
        return Blocks.NEVER
    slot = device.slots.get(model)
    if slot is not None and slot.state is SlotState.READY:
        are = slot.compiled
    else:
        are = state.estimates.drew_compiled(model)
    return Blocks.COMPILED if are else Blocks.NOT_YET


def reckons_compiled(state: State, model: str, device: Device | None) -> bool:
    """Whether seconds of the model's jobs are those with compiled blocks."""
    return blocks_of(state, model, device) is Blocks.COMPILED


def check_compiled(state: State, wanted: JobSubmitted) -> None:
    """Whether a picture that was drawn with compiled blocks can be repeated so. Raises
    NotRepeatable. While no device is ready nobody knows."""
    if not wanted.compiled:
        return
    if not state.models[wanted.model].facts.compiles:
        problem = 'the model has compile = "off" on this server'
        raise NotRepeatable(wanted.model, "with compiled blocks", problem)
    ready = [each for each in state.devices.values() if each.state is DeviceState.READY]
    if ready and not any(device.compiles for device in ready):
        problem = "nothing is compiled on this server (`workshop-gpu doctor` says why)"
        raise NotRepeatable(wanted.model, "with compiled blocks", problem)


def not_as_asked(job: Job, compiled: bool) -> str:
    """What a picture that was to be repeated is told that differs in this; "" where it does not."""
    return NOT_AS_ASKED if job.request.compiled and not compiled else ""
