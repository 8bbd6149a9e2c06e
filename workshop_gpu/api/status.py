"""status: what the server has and does; me: who asks, and under which name."""

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from workshop_gpu.api.handler import WorkshopHandler
from workshop_gpu.api.identity import MAX_NAME_CHARACTERS
from workshop_gpu.api.schemas import NameRequest
from workshop_gpu.conductor.errors import InvalidRequest


class StatusHandler(WorkshopHandler):
    """GPUs and who holds them, the queue, the mistakes of the catalogue."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer((await self.views()).status())


class MeHandler(WorkshopHandler):
    """The one who asks."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer((await self.views()).me())

    @authenticated
    @authorized
    async def put(self) -> None:
        name = self.body(NameRequest).name.strip()
        if not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable():
            raise InvalidRequest("name", f"give 1 to {MAX_NAME_CHARACTERS} printable characters")
        self.tokens.rename(self.participant.id, name)
        self.answer((await self.views()).me())
