"""In words: what a job waits for, and who keeps the room that it needs."""

from collections.abc import Callable, Iterable

from workshop_gpu.conductor.errors import gigabytes
from workshop_gpu.conductor.fetching import awaits_download
from workshop_gpu.conductor.records import Device, Job, State
from workshop_gpu.conductor.states import DeviceState, JobState, SlotState

_MOST_NAMED = 6


def waiting_for(state: State, job: Job) -> str:
    """In a word, what a job waits for: "" (its turn, or nothing), "download", "pause", "device",
    "reservation", "room", "load"."""
    if job.state is not JobState.QUEUED:
        return ""
    if awaits_download(state, job.model):
        return "download"
    if state.policy.paused:
        return "pause"
    if not len(state.lanes):
        return "device"
    if len(state.closed) >= len(state.lanes) and all(_closed(state)):
        return "reservation"
    if job.model in state.without_room:
        return "reservation" if _reserved(state, job) else "room"
    if state.has_slot(job.model, SlotState.READY):
        return ""
    return "load" if state.has_slot(job.model, SlotState.LOADING) else ""


def wait_reason(state: State, job: Job) -> str:
    """The same in a sentence, where somebody else's doing is the reason; else ""."""
    match waiting_for(state, job):
        case "pause":
            return f"The queue is paused: {state.policy.paused}."
        case "reservation":
            return _sentence(_ready(state), lambda device: _reservations(state, device))
        case "room":
            return _sentence(_ready(state), lambda device: keepers(state, device))
        case _:
            return ""


def keepers(state: State, device: Device) -> list[str]:
    """Those who keep room on the device that no claim can take from them."""
    kept = [
        f"{name} is held by {len(state.holds_on(name))} notebook(s)"
        for name in device.slots
        if state.holds.on(name)
    ]
    kept += [f"{name} is pinned" for name in device.slots if state.models[name].pinned]
    kept += _reservations(state, device)
    foreign = [holder for holder in device.ledger.holders() if holder.kind == "foreign"]
    kept += [f"{gigabytes(holder.bytes)} are taken by {holder.name}" for holder in foreign]
    return kept


def _ready(state: State) -> list[Device]:
    return [device for device in state.devices.values() if device.state is DeviceState.READY]


def _closed(state: State) -> Iterable[bool]:
    return (device.name in state.closed for device in _ready(state))


def _reserved(state: State, job: Job) -> bool:
    """Whether the job would have room on a device if nobody had reserved any there."""
    needed = state.weights_bytes(job.model) + state.working_bytes(job)
    return any(
        device.ledger.reserved_bytes
        and needed <= device.ledger.free_bytes + device.ledger.reserved_bytes
        for device in _ready(state)
        if job.model not in device.slots
    )


def _reservations(state: State, device: Device) -> list[str]:
    return [
        f"{device.name} is reserved as a whole"
        if each.size_bytes is None
        else f"{gigabytes(each.size_bytes)} are reserved on {device.name}"
        for each in state.reservations.values()
        if each.device == device.name or state.closed.get(device.name) == each.id
    ]


def _sentence(devices: list[Device], of: Callable[[Device], list[str]]) -> str:
    named = list(dict.fromkeys(text for device in devices for text in of(device)))
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return f"{'; '.join(named[:_MOST_NAMED])}{more}." if named else ""
