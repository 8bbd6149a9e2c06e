"""devices: clear a GPU for training, and open it again."""

from tornado.web import authenticated

from workshop_gpu.api.handler import WorkshopHandler, administered


class ClearHandler(WorkshopHandler):
    """Takes a whole GPU out of the room's use, until it is deleted.

    Jobs that run there finish, its models leave, and new jobs run on other GPUs or wait.
    """

    @authenticated
    @administered
    async def post(self, device: str) -> None:
        view = await self.runtime.clearing.clear(self.participant, device)
        await self.note("cleared a GPU", device)
        self.answer((await self.views()).reservation(view), status=202)

    @authenticated
    @administered
    async def delete(self, device: str) -> None:
        await self.runtime.clearing.open(device)
        await self.note("opened a GPU", device)
        self.set_status(204)
        self.finish()
