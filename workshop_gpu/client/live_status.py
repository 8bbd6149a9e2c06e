"""The server's status, kept up to date: a fold over the events of the stream."""

from msgspec.structs import replace

from workshop_gpu.api import schemas, schemas_room
from workshop_gpu.conductor.states import JobState, SlotState

_KEPT_NEWS = 50


class LiveStatus:
    """Not locked: its owner does that. `status` None: nothing was heard yet."""

    def __init__(self) -> None:
        self.status: schemas.Status | None = None
        self._early: list[schemas.StreamEvent] = []

    def begin(self, status: schemas.Status) -> None:
        """Starts from an answer; what the stream said while it was on its way comes after it."""
        early, self._early = self._early, []
        if self.status is None:
            self.status = status
            for event in early:
                self.apply(event)

    def apply(self, event: schemas.StreamEvent) -> None:
        """Takes in what the stream says; a snapshot starts over."""
        if isinstance(event, schemas.SnapshotEvent):
            self.status, self._early = event.status, []
        elif self.status is None:
            self._early.append(event)
        else:
            self.status = _after(self.status, event)


def _after(status: schemas.Status, event: schemas.StreamEvent) -> schemas.Status:
    match event:
        case schemas.JobEvent(job):
            return _with_job(status, job)
        case schemas.DeviceEvent(device):
            known = [device if each.id == device.id else each for each in status.devices]
            if device.id not in {each.id for each in known}:
                known.append(device)
            return replace(status, devices=known)
        case schemas.SlotEvent(slot):
            devices = [
                _with_slot(each, slot) if each.id == slot.device else each
                for each in status.devices
            ]
            return replace(status, devices=devices)
        case schemas.ReservationEvent(reservation, ended):
            return _with_reservation(status, reservation, over=bool(ended))
        case schemas.PolicyEvent(paused):
            return replace(status, paused=paused)
        case schemas_room.NewsEvent(news):
            return replace(status, news=[news, *status.news][:_KEPT_NEWS])
        case schemas_room.MessageEvent(message):
            return replace(status, message=message)
        case schemas_room.HelpEvent(call, raised):
            others = [each for each in status.help if each.participant != call.participant]
            return replace(status, help=[*others, call] if raised else others)
        case _:
            return status


def _with_job(status: schemas.Status, job: schemas.Job) -> schemas.Status:
    waiting = [each for each in status.waiting if each.id != job.id]
    running = [each for each in status.running if each.id != job.id]
    if job.state is JobState.QUEUED:
        waiting = sorted([*waiting, job], key=lambda each: each.position)
    elif job.state is JobState.RUNNING:
        running.append(job)
    return replace(status, waiting=waiting, running=running)


def _with_slot(device: schemas.Device, slot: schemas.Slot) -> schemas.Device:
    slots = [each for each in device.slots if each.model != slot.model]
    if slot.state is not SlotState.ABSENT:
        slots.append(slot)
    return replace(device, slots=slots)


def _with_reservation(
    status: schemas.Status, reservation: schemas.Reservation, *, over: bool
) -> schemas.Status:
    known = {each.id: each for each in status.reservations}
    known[reservation.id] = reservation
    if over:
        del known[reservation.id]
    return replace(status, reservations=list(known.values()))
