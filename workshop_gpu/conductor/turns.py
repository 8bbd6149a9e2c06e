"""On which devices it is a reservation's turn: where no job that stands before it in the order
could use the room.

A job could not where its model finds no room beside pins and other programs, where the model failed
to load, or where the job will be drawn elsewhere: its model is ready or on its way there, and one
more copy would not be worth it. Where it could, it goes first.
"""

from collections.abc import Iterator, Sequence

from workshop_gpu.conductor.coming import can_come_to
from workshop_gpu.conductor.fairness import Reason, rank
from workshop_gpu.conductor.fetching import awaits_download
from workshop_gpu.conductor.loading import another_is_worth_it_for
from workshop_gpu.conductor.look import Look
from workshop_gpu.conductor.planning import (
    has_rung_on,
    kept_free_bytes,
    least_bytes,
    must_borrow,
    size_of,
)
from workshop_gpu.conductor.queue import Key
from workshop_gpu.conductor.records import Device, Job, Reservation, Slot, State
from workshop_gpu.conductor.shapes import others
from workshop_gpu.conductor.states import DeviceState, SlotState


def key_of(state: State, reservation: Reservation, now: float) -> Key:
    """Its place among the jobs: that of a job which its participant asked for at that time."""
    waited_s = now - reservation.asked_s
    rises = rank(reservation.priority, waited_s, state.settings.rise_s)
    return rises, Reason.SHARE, reservation.start_s, reservation.in_line, reservation.sequence


def in_turn_on(state: State, reservation: Reservation, now: float) -> set[str]:
    """The devices that stand ready and that no job before it could use. It keeps its turn on one
    that is closed for it."""
    ready = {each.name for each in state.devices.values() if each.state is DeviceState.READY}
    if reservation.clears or state.policy.paused:
        return ready
    kept = {name for name in ready if state.closed.get(name) == reservation.id}
    left = {name for name in ready - kept if reservation.wanted_device in (None, name)}
    look = Look(state, now, list(state.devices.values()))
    for job in _before(state, key_of(state, reservation, now)):
        if not left:
            break
        left -= _usable(look, job, left)
    return left | kept


def _before(state: State, key: Key) -> Iterator[Job]:
    """The jobs before this place in the order that wait for more than a download: of each model
    one of each shape."""
    queue = state.queue
    for model in queue.models():
        first = queue.first_of(model)
        if first.key >= key:
            return
        if not awaits_download(state, model):
            yield first
            yield from (job for job in others(queue, model) if job.key < key)


def _usable(look: Look, job: Job, names: set[str]) -> set[str]:
    """Which of the devices the job could use: to be drawn there, or for the part of its model that
    must lie on another than its own."""
    state, model, size = look.state, job.model, size_of(job)
    coming = {*look.making_room(model)}
    coming |= {slot.device for slot in state.slots(model, SlotState.LOADING)}
    ready = [
        slot
        for slot in state.slots(model, SlotState.READY)
        if can_come_to(look.room, state, look.now, job, state.devices[slot.device])
    ]
    there = coming | {slot.device for slot in ready}
    drawn_on = names & there if _is_enough(look, job, ready, coming) else names
    needed = least_bytes(state, model, size)
    stays = there if model not in state.without_room else set[str]()

    def has_room(device: Device) -> bool:
        may_come = not device.has(model, SlotState.FAILED) and has_rung_on(
            state, model, size, device
        )
        return may_come and needed <= _left_bytes(state, device, model)

    usable = {name for name in drawn_on if name in stays or has_room(state.devices[name])}
    swap = state.models[model].facts.memory.swap_device
    if swap in names - usable and any(
        must_borrow(state, model, size, device) and has_room(device) for device in look.devices
    ):
        usable.add(swap)
    return usable


def _left_bytes(state: State, device: Device, model: str) -> int:
    """What pins and other programs leave the model there. What reservations keep does not count:
    one after the other, they would keep it out for ever."""
    pinned = [
        slot.model
        for slot in device.slots.values()
        if slot.model != model and state.models[slot.model].pinned and state.is_kept(slot)
    ]
    ledger, others = device.ledger, device.slots.keys() - {*pinned}
    kept_bytes = ledger.kept_beyond(kept_free_bytes(state, model), others)
    taken_bytes = sum(map(ledger.weights_bytes, pinned)) + kept_bytes
    return ledger.most_bytes - ledger.foreign_bytes - taken_bytes


def _is_enough(look: Look, job: Job, ready: Sequence[Slot], coming: set[str]) -> bool:
    """Whether devices have the job's model so that it can run, or prepare it, and one more copy is
    not worth it."""
    usable = {device.name for device in look.devices}
    ready = [slot for slot in ready if slot.device in usable]
    coming = coming & usable
    if not (ready or coming):
        return False
    return not another_is_worth_it_for(look, look.claim(job), ready, len(coming))
