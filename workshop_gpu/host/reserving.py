"""Reservations as the host asks for them: whose each is, and which of them clear a whole GPU."""

import uuid
from collections import OrderedDict
from collections.abc import Callable

from workshop_gpu.conductor import events
from workshop_gpu.conductor.effects import ReservationView
from workshop_gpu.conductor.errors import DeviceUnknown, WorkshopError
from workshop_gpu.host.records import Participant

_KEPT_ENDED = 1000


class NotCleared(WorkshopError):
    """The GPU is not cleared, so there is nothing to open."""

    kind = "not_cleared"

    def __init__(self, device: str) -> None:
        super().__init__(
            f"{device} is not cleared: it works for the room, so there is nothing to open.",
            device=device,
        )


class Reservations:
    """Asks the conductor; `look` gives a living reservation, or raises why there is none.

    Methods raise the refusals of the conductor, and then nothing has changed.
    """

    def __init__(
        self,
        ask: Callable[[events.Event], None],
        look: Callable[[str], ReservationView],
        devices: tuple[str, ...],
    ) -> None:
        self._ask = ask
        self._look = look
        self._devices = devices
        self._owners: dict[str, Participant] = {}
        self._ended: OrderedDict[str, Participant] = OrderedDict()
        self._cleared: dict[str, str] = {}

    def get(self, reservation: str) -> ReservationView:
        """A living reservation. Raises ReservationUnknown or ReservationEnded."""
        return self._look(reservation)

    def owner(self, reservation: str) -> Participant | None:
        """Who asked for it, also where it ended not long ago."""
        return self._owners.get(reservation) or self._ended.get(reservation)

    def owners(self) -> list[Participant]:
        """Those who have reservations."""
        return list(self._owners.values())

    def reserve(
        self, participant: Participant, size_bytes: int | None, device: str | None, ttl_s: float
    ) -> ReservationView:
        """Room for a participant's own code; None bytes are a whole GPU."""
        return self._get(participant, size_bytes, device, ttl_s, participant.kernel)

    def renew(self, reservation: str, participant: Participant, ttl_s: float) -> None:
        self._ask(events.ReservationRenewed(reservation, participant.kernel, ttl_s))

    def drop(self, reservation: str) -> None:
        """Its owner gives it back."""
        self._ask(events.ReservationDropped(reservation))

    def take_away(self, reservation: str) -> None:
        """The instructor ends somebody's."""
        self._ask(events.ReservationDropped(reservation, events.TAKEN_AWAY))

    def clear(self, participant: Participant, device: str) -> ReservationView:
        """A whole GPU for the instructor, until `open`. One that is cleared already stays so."""
        self._check_device(device)
        cleared = self._cleared.get(device)
        if cleared is None:
            view = self._get(participant, None, device, ttl_s=None, kernel=None)
            self._cleared[device] = view.reservation
            return view
        return self.get(cleared)

    def open(self, device: str) -> None:
        """Raises NotCleared."""
        self._check_device(device)
        cleared = self._cleared.get(device)
        if cleared is None:
            raise NotCleared(device)
        self.drop(cleared)

    def cleared(self) -> dict[str, Participant]:
        """Devices that are cleared, each with whoever did it."""
        return {device: self._owners[cleared] for device, cleared in self._cleared.items()}

    def ended(self, reservation: str) -> None:
        """The conductor says that it is over."""
        owner = self._owners.pop(reservation, None)
        if owner is not None:
            self._ended[reservation] = owner
        while len(self._ended) > _KEPT_ENDED:
            self._ended.popitem(last=False)
        self._cleared = {
            d: cleared for d, cleared in self._cleared.items() if cleared != reservation
        }

    def _get(
        self,
        participant: Participant,
        size_bytes: int | None,
        device: str | None,
        ttl_s: float | None,
        kernel: str | None,
    ) -> ReservationView:
        reservation = uuid.uuid4().hex
        # Known before it is asked for, since it is announced while it is being granted.
        self._owners[reservation] = participant
        try:
            self._ask(
                events.ReservationAsked(
                    reservation=reservation,
                    participant=participant.id,
                    kernel=kernel,
                    size_bytes=size_bytes,
                    device=device,
                    ttl_s=ttl_s,
                )
            )
        except WorkshopError:
            del self._owners[reservation]
            raise
        return self.get(reservation)

    def _check_device(self, device: str) -> None:
        if device not in self._devices:
            raise DeviceUnknown(device, list(self._devices))
