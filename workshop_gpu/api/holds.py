"""holds: a kernel's references on models."""

import math

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from workshop_gpu.api.handler import WorkshopHandler
from workshop_gpu.api.schemas import HoldList, HoldRequest, RenewRequest
from workshop_gpu.api.views import hold_of
from workshop_gpu.conductor.errors import HoldUnknown, InvalidRequest
from workshop_gpu.host.records import Participant

MAX_TTL_S = 3600.0


def checked_ttl(ttl_s: float) -> float:
    """Raises InvalidRequest."""
    if not (math.isfinite(ttl_s) and 1.0 <= ttl_s <= MAX_TTL_S):
        raise InvalidRequest("ttl_s", f"{ttl_s} is not between 1 and {MAX_TTL_S:.0f} seconds")
    return ttl_s


def owns(asker: Participant, participant: str, kernel: str | None) -> bool:
    """Whether what this participant has with this kernel is the asker's: another kernel of the
    same participant has no say in it, the participant without a kernel (in the browser) has."""
    return asker.id == participant and asker.kernel in (None, kernel)


class HoldsHandler(WorkshopHandler):
    """One's holds."""

    @authenticated
    @authorized
    async def get(self) -> None:
        mine = [
            hold_of(hold)
            for hold in self.runtime.snapshot().holds
            if hold.participant == self.participant.id
        ]
        self.answer(HoldList(mine))

    @authenticated
    @authorized
    async def post(self) -> None:
        request = self.body(HoldRequest)
        model = self.runtime.catalogue.get(request.model).id
        hold = self.runtime.take_hold(self.participant, model, checked_ttl(request.ttl_s))
        self.set_header("Location", f"{self.base_url}workshop-gpu/api/holds/{hold.hold}")
        self.answer(hold_of(hold), status=201)


class HoldHandler(WorkshopHandler):
    """One hold: renew or drop it."""

    @authenticated
    @authorized
    async def put(self, hold: str) -> None:
        ttl_s = checked_ttl(self.body(RenewRequest).ttl_s)
        self._check_mine(hold)
        self.answer(hold_of(self.runtime.renew_hold(hold, self.participant, ttl_s)))

    @authenticated
    @authorized
    async def delete(self, hold: str) -> None:
        self._check_mine(hold)
        self.runtime.drop_hold(hold)
        self.set_status(204)
        self.finish()

    def _check_mine(self, hold: str) -> None:
        """Raises HoldUnknown, or HoldEnded for one that was this participant's."""
        view = self.runtime.hold(hold)
        if not owns(self.participant, view.participant, view.kernel):
            raise HoldUnknown(hold)
