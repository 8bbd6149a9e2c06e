"""models: what is offered and where it lies; load and evict, for the instructor."""

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from workshop_gpu.api.handler import WorkshopHandler, administered
from workshop_gpu.api.schemas import ModelList


class ModelsHandler(WorkshopHandler):
    """The catalogue with the state of each model."""

    @authenticated
    @authorized
    async def get(self) -> None:
        views = await self.views()
        self.answer(ModelList(views.models(), list(self.runtime.catalogue.problems)))


class LoadHandler(WorkshopHandler):
    """Has a model loaded before anybody asks for it."""

    @authenticated
    @administered
    async def post(self, model: str) -> None:
        self.runtime.load(model)
        self.answer((await self.views()).model(model), status=202)


class EvictHandler(WorkshopHandler):
    """Takes a model that nobody uses off its GPUs."""

    @authenticated
    @administered
    async def post(self, model: str) -> None:
        self.runtime.evict(model)
        self.answer((await self.views()).model(model), status=202)
