"""reservations: GPU memory set aside for somebody's own code.

Everybody sees who reserved what, as it explains the waiting. Only the owner renews one; the owner
and the instructor give one back.
"""

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from workshop_gpu.api.handler import WorkshopHandler
from workshop_gpu.api.holds import checked_ttl, owns
from workshop_gpu.api.schemas import RenewRequest, ReservationList, ReservationRequest
from workshop_gpu.conductor.effects import ReservationView
from workshop_gpu.conductor.errors import ReservationUnknown
from workshop_gpu.host.reserving import Reservations


class ReservingHandler(WorkshopHandler):
    """The base of both."""

    @property
    def reservations(self) -> Reservations:
        return self.runtime.reservations


class ReservationsHandler(ReservingHandler):
    """Everybody's reservations; a new one."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer(ReservationList((await self.views()).reservations()))

    @authenticated
    @authorized
    async def post(self) -> None:
        request = self.body(ReservationRequest)
        view = self.reservations.reserve(
            self.participant, request.size_bytes, request.device, checked_ttl(request.ttl_s)
        )
        self.set_header(
            "Location", f"{self.base_url}workshop-gpu/api/reservations/{view.reservation}"
        )
        self.answer((await self.views()).reservation(view), status=201)


class ReservationHandler(ReservingHandler):
    """One reservation: look, renew, give back."""

    @authenticated
    @authorized
    async def get(self, reservation: str) -> None:
        view = self.reservations.get(reservation)
        self.answer((await self.views()).reservation(view))

    @authenticated
    @authorized
    async def put(self, reservation: str) -> None:
        ttl_s = checked_ttl(self.body(RenewRequest).ttl_s)
        self._check_mine(self.reservations.get(reservation))
        self.reservations.renew(reservation, self.participant, ttl_s)
        view = self.reservations.get(reservation)
        self.answer((await self.views()).reservation(view))

    @authenticated
    @authorized
    async def delete(self, reservation: str) -> None:
        view = self.reservations.get(reservation)
        others = not owns(self.participant, view.participant, view.kernel)
        if others and not await self.is_admin():
            raise ReservationUnknown(reservation)
        if others:
            self.reservations.take_away(reservation)
        else:
            self.reservations.drop(reservation)
        await self.runtime.clearing.keep()
        if others:
            await self.note("ended a reservation", reservation, {"of": view.participant})
        self.set_status(204)
        self.finish()

    def _check_mine(self, view: ReservationView) -> None:
        if not owns(self.participant, view.participant, view.kernel):
            raise ReservationUnknown(view.reservation)
