"""In words: what a job waits for, and who keeps the room that it needs. People are named by their
ids (see `people.py`)."""

from collections.abc import Callable

from workshop_gpu.conductor.errors import gigabytes
from workshop_gpu.conductor.fetching import awaits_download
from workshop_gpu.conductor.lending import guests
from workshop_gpu.conductor.people import person
from workshop_gpu.conductor.placement import never_fits
from workshop_gpu.conductor.planning import (
    TYPICAL,
    kept_free_bytes,
    least_bytes,
    missing_elsewhere_bytes,
)
from workshop_gpu.conductor.records import Device, Job, Reservation, State
from workshop_gpu.conductor.rungs import HOST
from workshop_gpu.conductor.states import DeviceState, JobState, ReservationState, SlotState

_THERE = (SlotState.LOADING, SlotState.READY, SlotState.LEAVING)
_MOST_NAMED = 6
_MOST_DEVICES = 4


def waiting_for(state: State, job: Job) -> str:
    """In a word, what a job waits for: "" (its turn, or nothing), "download", "pause", "device",
    "reservation", "foreign", "pin", "room", "load"."""
    return waits_for(state, job.model) if job.state is JobState.QUEUED else ""


def waits_for(state: State, model: str) -> str:
    """What all jobs that wait for the model wait for."""
    if kept_out_by := keeps_out(state, model):
        return kept_out_by
    if state.has_slot(model, SlotState.READY):
        return ""
    return "load" if state.has_slot(model, SlotState.LOADING) else ""


def keeps_out(state: State, model: str) -> str:
    """The same, where nobody knows how long it lasts; else ""."""
    if awaits_download(state, model):
        return "download"
    if state.policy.paused:
        return "pause"
    if not len(state.lanes) or _needs_another(state, model):
        return "device"
    if state.closed and all(device.name in state.closed for device in _ready(state)):
        return "reservation"
    if model in state.without_room:
        return _who_keeps_room(state, model)
    return "room" if _waits_elsewhere(state, model) else ""


def _needs_another(state: State, model: str) -> bool:
    """Whether the model fits only on a device that does not stand ready."""
    if len(state.lanes) == len(state.devices):
        return False
    there = [device.ledger.most_bytes for device in _ready(state)]
    return never_fits(least_bytes(state, model, TYPICAL), there)


def _waits_elsewhere(state: State, model: str) -> bool:
    """Whether the model is nowhere, and its swap device has too little for any of its rungs."""
    swap = state.models[model].facts.memory.swap_device
    if swap in HOST or state.has_slot(model, *_THERE):
        return False
    others = [each for each in _ready(state) if swap in each.neighbours]
    missing = [missing_elsewhere_bytes(state, model, TYPICAL, each) for each in others]
    return bool(missing) and all(missing)


def wait_reason(state: State, word: str) -> str:
    """The same in a sentence, where somebody else's doing is the reason; else ""."""
    match word:
        case "device":
            return _sentence(list(state.devices.values()), _why_not_ready)
        case "pause":
            return f"The queue is paused: {state.policy.paused}."
        case "reservation":
            return _sentence(_ready(state), lambda device: _reservations(state, device))
        case "foreign" | "pin" | "room":
            return _sentence(_ready(state), lambda device: keepers(state, device))
        case _:
            return ""


def tried_again(device: Device) -> str:
    """How often a lost device is tried, in words; "" for one that works or is gone for good."""
    if device.state is not DeviceState.LOST or device.retry_s is None:
        return ""
    return f"; it is tried again every {device.retry_s:.0f} s"


def _why_not_ready(device: Device) -> list[str]:
    """Nothing is said of a device that starts for the first time, nor of one that works."""
    if device.state is DeviceState.LOST:
        return [f"{device.name} cannot be used ({device.reason}){tried_again(device)}"]
    if device.state is DeviceState.STARTING and device.reason:
        return [f"{device.name} is being started again ({device.reason})"]
    return []


def keepers(state: State, device: Device) -> list[str]:
    """Those who keep room on the device that no claim can take from them."""
    kept = [
        f"{name} is held by {len(state.holds_on(name))} notebook(s)"
        for name, slot in device.slots.items()
        if state.holds.on(name) and not state.has_other_copy(slot)
    ]
    kept += [
        f"{name} is pinned"
        for name, slot in device.slots.items()
        if state.models[name].pinned and not state.has_other_copy(slot)
    ]
    kept += _kept_guests(state, device)
    kept += _reservations(state, device)
    kept += [
        f"{gigabytes(holder.bytes)} stay free beside {holder.name} (min_free_gb)"
        for holder in device.ledger.holders()
        if holder.kind == "kept_free" and state.is_kept(device.slots[holder.name])
    ]
    foreign = [holder for holder in device.ledger.holders() if holder.kind == "foreign"]
    kept += [f"{gigabytes(holder.bytes)} are taken by {holder.name}" for holder in foreign]
    return kept


def _kept_guests(state: State, device: Device) -> list[str]:
    """Models of other devices that have memory of this one, and stay."""
    said = []
    for slot in guests(state, device):
        size_bytes = device.ledger.lent_bytes(slot.device, slot.model)
        what = f"{slot.model} on {slot.device}, which has {gigabytes(size_bytes)} here"
        if not state.is_kept(slot):
            continue
        if holds := len(state.holds_on(slot.model)):
            said.append(f"{what}, is held by {holds} notebook(s)")
        else:
            said.append(f"{what}, is pinned")
    return said


def _ready(state: State) -> list[Device]:
    return [device for device in state.devices.values() if device.state is DeviceState.READY]


def _who_keeps_room(state: State, model: str) -> str:
    """Who alone, or with those named before, keeps so much that the model cannot fit beside it:
    reservations, other programs, pins; else it is those who use the GPU at the moment."""
    needed = least_bytes(state, model, TYPICAL)
    for device in _ready(state)[:_MOST_DEVICES]:
        ledger = device.ledger
        left_bytes = ledger.most_bytes - ledger.reserved_bytes
        if ledger.reserved_bytes and needed > left_bytes:
            return "reservation"
        left_bytes -= ledger.foreign_bytes
        if ledger.foreign_bytes and needed > left_bytes:
            return "foreign"
        pinned = [
            name
            for name, slot in device.slots.items()
            if state.models[name].pinned and name != model and not state.has_other_copy(slot)
        ]
        others = [name for name in device.slots if name not in pinned]
        kept_bytes = ledger.kept_beyond(kept_free_bytes(state, model), others)
        if needed > left_bytes - kept_bytes - sum(map(ledger.weights_bytes, pinned)):
            return "pin"
    return "room"


def _reservations(state: State, device: Device) -> list[str]:
    """Those who have room on the device, and the one for whom it is closed."""
    return [
        _reserved(each, device)
        for each in state.reservations.values()
        if each.device == device.name or state.closed.get(device.name) == each.id
    ]


def _reserved(reservation: Reservation, device: Device) -> str:
    size_bytes, who = reservation.size_bytes, person(reservation.participant)
    what = "all" if size_bytes is None else gigabytes(size_bytes)
    if reservation.state is ReservationState.GRANTED:
        return f"{who} has {what} of {device.name}"
    return f"{who} waits for {what} of {device.name}"


def _sentence(devices: list[Device], of: Callable[[Device], list[str]]) -> str:
    """What is to be said of a few devices: of dozens nobody wants to read."""
    named: dict[str, None] = {}
    for device in devices[:_MOST_DEVICES]:
        named.update(dict.fromkeys(of(device)))
    more = " and others" if len(named) > _MOST_NAMED or len(devices) > _MOST_DEVICES else ""
    return f"{'; '.join(list(named)[:_MOST_NAMED])}{more}." if named else ""
