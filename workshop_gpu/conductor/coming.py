"""Whether a waiting job could begin at all once what runs and moves now has ended.

Where holds, pins, reservations, other programs or a download keep it out, nobody can say when it
will begin, and nothing that others do with the GPUs meanwhile makes it wait longer.
"""

from workshop_gpu.conductor.fetching import awaits_download
from workshop_gpu.conductor.placing import Placing
from workshop_gpu.conductor.records import Device, Job, State
from workshop_gpu.conductor.room import Claim, Room
from workshop_gpu.conductor.shapes import others
from workshop_gpu.conductor.states import DeviceState, SlotState

_MOVING = (SlotState.LOADING, SlotState.LEAVING)


def any_can_come(room: Room, state: State, now: float, model: str) -> bool:
    """Whether any of the jobs that wait for the model could."""
    jobs = (state.queue.first_of(model), *others(state.queue, model))
    return any(can_come(room, state, now, job) for job in jobs)


def can_come(room: Room, state: State, now: float, job: Job) -> bool:
    """Whether some device that stands ready would have room for the job."""
    return any(
        device.state is DeviceState.READY
        and device.name not in state.closed
        and can_come_to(room, state, now, job, device)
        for device in state.devices.values()
    )


def can_come_to(room: Room, state: State, now: float, job: Job, device: Device) -> bool:
    """Whether this device would have room for it. What it has lent comes back when it is called
    for, so that nothing is sure there."""
    if awaits_download(state, job.model) or device.has(job.model, SlotState.FAILED):
        return False
    if device.has(job.model, *_MOVING) or device.ledger.lends:
        return True
    claim = Claim(job.model, job.participant, job.key)
    needed = Placing.for_job(state, now, job).least_bytes(device)
    moving = [
        slot for slot in device.slots.values() if slot.state in _MOVING and not state.is_kept(slot)
    ]
    return room.later(device, claim, needed, moving=moving)
