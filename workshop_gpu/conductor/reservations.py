"""Room on a GPU for somebody's own code: asked for, renewed, ended. `granting.py` says when."""

import math

import msgspec

from workshop_gpu.conductor.admission import check_ttl, usable_devices, why_no_device
from workshop_gpu.conductor.changes import Changes
from workshop_gpu.conductor.effects import AnnounceReservation, ReservationView
from workshop_gpu.conductor.errors import (
    DeviceUnknown,
    InvalidRequest,
    NoDevice,
    ReservationEnded,
    ReservationTooLarge,
    ReservationUnknown,
    TooManyReservations,
)
from workshop_gpu.conductor.events import (
    ReservationAsked,
    ReservationDropped,
    ReservationRenewed,
)
from workshop_gpu.conductor.names import check_names
from workshop_gpu.conductor.offering import class_of
from workshop_gpu.conductor.placement import never_fits
from workshop_gpu.conductor.records import Device, Reservation, State
from workshop_gpu.conductor.reservation_views import reservation_view
from workshop_gpu.conductor.states import Priority, ReservationState

ReservationRequest = ReservationAsked | ReservationRenewed | ReservationDropped
TIME_OVER = "its time was over"


class Reservations:
    """Checks and applies what is asked; ends what is over; tells what changed."""

    def __init__(self, state: State, changes: Changes) -> None:
        self._state = state
        self._changes = changes
        self._asked = 0
        self._told: dict[str, ReservationView] = {}

    def apply(self, event: ReservationRequest, now: float) -> None:
        match event:
            case ReservationAsked():
                self._ask(event, now)
            case ReservationRenewed():
                self._renew(event, now)
            case ReservationDropped():
                self.end(living(self._state, event.reservation, now), event.why, now)

    def _ask(self, event: ReservationAsked, now: float) -> None:
        check(self._state, event)
        self._asked += 1
        self._state.shares.enter(event.participant)
        self._changes.ordering.pay(event.participant)
        self._state.reservations[event.reservation] = Reservation(
            id=event.reservation,
            participant=event.participant,
            kernel=event.kernel,
            size_bytes=event.size_bytes,
            wanted_device=event.device,
            sequence=self._asked,
            priority=class_of(self._state.policy, event.participant, Priority.NORMAL),
            asked_s=now,
            start_s=self._state.shares.starts_s(event.participant),
            in_line=self._changes.ordering.next_in_line(),
            expires_s=math.inf if event.ttl_s is None else now + event.ttl_s,
        )

    def _renew(self, event: ReservationRenewed, now: float) -> None:
        reservation = living(self._state, event.reservation, now)
        if reservation.kernel != event.kernel:
            raise ReservationUnknown(event.reservation)
        check_ttl(event.ttl_s)
        reservation.expires_s = now + event.ttl_s
        self._changes.effects.append(
            AnnounceReservation(reservation_view(self._state, reservation, now))
        )

    def grant(self, reservation: Reservation, device: Device, now: float) -> None:
        """The room on the device is theirs from here on."""
        self._leave_queue(reservation)
        reservation.state, reservation.device = ReservationState.GRANTED, device.name
        device.ledger.reserve(reservation.id, reservation.kernel, reservation.size_bytes)
        if reservation.size_bytes is None:
            self._state.closed[device.name] = reservation.id
        self._changes.touch(device)

    def end(self, reservation: Reservation, why: str, now: float) -> None:
        """It is over, whether it was granted or waited."""
        state = self._state
        view = reservation_view(self._state, reservation, now)
        del state.reservations[reservation.id]
        self._told.pop(reservation.id, None)
        state.ended_reservations[reservation.id] = why
        while len(state.ended_reservations) > state.settings.remembered_holds:
            state.ended_reservations.popitem(last=False)
        if reservation.device is None:
            self._leave_queue(reservation)
        else:
            device = state.devices[reservation.device]
            device.ledger.unreserve(reservation.id)
            self._changes.touch(device)
        for name in [name for name, each in state.closed.items() if each == reservation.id]:
            del state.closed[name]
        self._changes.effects.append(AnnounceReservation(view, why))

    def _leave_queue(self, reservation: Reservation) -> None:
        self._state.shares.leave(reservation.participant)
        self._changes.ordering.pay(reservation.participant)

    # what ends them

    def kernel_gone(self, kernel: str, now: float) -> None:
        for each in [each for each in self._all() if each.kernel == kernel]:
            self.end(each, "the kernel ended", now)

    def device_gone(self, device: str, reason: str, now: float) -> None:
        """Who waits for a device that is tried again waits on."""
        devices = self._state.devices
        for each in self._all():
            wanted = each.wanted_device == device and devices[device].is_gone
            if each.device == device or wanted:
                self.end(each, f"the GPU is gone ({reason})", now)
            elif each.device is None and all(one.is_gone for one in devices.values()):
                self.end(each, f"no GPU is left ({reason})", now)

    def time_passed(self, now: float) -> None:
        for each in [each for each in self._all() if each.expires_s <= now]:
            self.end(each, TIME_OVER, now)

    def end_hopeless(self, now: float) -> None:
        """A device whose size was not known when it was asked for is too small for it."""
        for each in self._all():
            usable = usable_devices(self._state, each.wanted_device)
            if each.device is None and _too_large(each.size_bytes, usable):
                self.end(each, "no GPU here has so much memory", now)

    def _all(self) -> list[Reservation]:
        return list(self._state.reservations.values())

    def announce(self, now: float) -> None:
        """Tells what changed; that time runs out is no change."""
        for each in self._state.reservations.values():
            told = self._told.get(each.id)
            if told is not None and told.state is each.state is ReservationState.GRANTED:
                continue
            view = reservation_view(self._state, each, now)
            if told is None or _timeless(told) != _timeless(view):
                self._told[each.id] = view
                self._changes.effects.append(AnnounceReservation(view))


# checks


def check(state: State, event: ReservationAsked) -> None:
    """Raises InvalidRequest, DeviceUnknown, NoDevice, ReservationTooLarge or
    TooManyReservations."""
    check_names(
        reservation=event.reservation,
        participant=event.participant,
        kernel=event.kernel,
        device=event.device,
    )
    if event.reservation in state.reservations or event.reservation in state.ended_reservations:
        raise InvalidRequest("reservation", "this id was given already; make a new one")
    if event.size_bytes is not None and event.size_bytes <= 0:
        raise InvalidRequest("size_bytes", "must be above 0", value=event.size_bytes)
    if event.ttl_s is not None:
        check_ttl(event.ttl_s)
    if event.device is not None and event.device not in state.devices:
        raise DeviceUnknown(event.device, list(state.devices))
    usable = usable_devices(state, event.device)
    if not usable:
        raise NoDevice(why_no_device(state))
    if _too_large(event.size_bytes, usable):
        most_bytes = max(device.ledger.most_bytes for device in usable)
        where = event.device or "any GPU here"
        raise ReservationTooLarge(where, event.size_bytes or 0, most_bytes)
    own = sum(each.participant == event.participant for each in state.reservations.values())
    instructors = event.size_bytes is None and event.kernel is None and event.ttl_s is None
    if own >= state.settings.reservation_limit and not instructors:
        raise TooManyReservations(own, state.settings.reservation_limit)


def living(state: State, reservation: str, now: float) -> Reservation:
    """The reservation, if it is not over. Raises ReservationUnknown or ReservationEnded."""
    if reservation in state.ended_reservations:
        raise ReservationEnded(reservation, state.ended_reservations[reservation])
    each = state.reservations.get(reservation)
    if each is None:
        raise ReservationUnknown(reservation)
    if each.expires_s <= now:
        raise ReservationEnded(reservation, TIME_OVER)
    return each


def _too_large(size_bytes: int | None, usable: list[Device]) -> bool:
    return size_bytes is not None and never_fits(
        size_bytes, [device.ledger.most_bytes for device in usable]
    )


def _timeless(view: ReservationView) -> ReservationView:
    return msgspec.structs.replace(view, expires_in_s=None)
