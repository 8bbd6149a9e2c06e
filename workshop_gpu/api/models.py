"""models: what is offered and where it lies; for the instructor: offer, pin, load, evict."""

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from workshop_gpu.api import rules
from workshop_gpu.api.handler import WorkshopHandler, administered
from workshop_gpu.api.policy import checked_reason
from workshop_gpu.api.schemas import ModelList
from workshop_gpu.api.schemas_instructor import ModelPolicyRequest
from workshop_gpu.conductor.errors import InvalidRequest

WITHDRAWN = "The instructor does not offer it at present."


class ModelsHandler(WorkshopHandler):
    """The catalogue with the state of each model."""

    @authenticated
    @authorized
    async def get(self) -> None:
        views = await self.views()
        self.answer(ModelList(views.models(), views.problems()))


class ModelHandler(WorkshopHandler):
    """One model, and the rules for it: offered, pinned, how long it stays warm."""

    @authenticated
    @authorized
    async def get(self, model: str) -> None:
        self.answer((await self.views()).model(model))

    @authenticated
    @administered
    async def patch(self, model: str) -> None:
        request = self.body(ModelPolicyRequest)
        spec = self.runtime.catalogue.get(model)
        if request.offered is True and not spec.enabled:
            raise InvalidRequest(
                "offered", f"models.toml switches {spec.id} off; change it there", model=spec.id
            )
        reason = checked_reason(request.reason, WITHDRAWN)
        policy = rules.with_model(self.runtime.policy, spec.id, request, reason)
        await self.runtime.change_policy(policy)
        await self.note("changed a model's rules", spec.id, rules.sent(request))
        self.answer((await self.views()).model(spec.id))


class LoadHandler(WorkshopHandler):
    """Has a model loaded before anybody asks for it."""

    @authenticated
    @administered
    async def post(self, model: str) -> None:
        self.runtime.load(model)
        await self.note("asked for a model", model)
        self.answer((await self.views()).model(model), status=202)


class EvictHandler(WorkshopHandler):
    """Takes a model that nobody uses off its GPUs."""

    @authenticated
    @administered
    async def post(self, model: str) -> None:
        self.runtime.evict(model)
        await self.note("evicted a model", model)
        self.answer((await self.views()).model(model), status=202)
