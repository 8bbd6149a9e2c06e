"""plan: how a model would be placed for a picture of some size, rung by rung, and why."""

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from workshop_gpu.api.generation import complete
from workshop_gpu.api.handler import WorkshopHandler
from workshop_gpu.api.schemas import GenerateRequest
from workshop_gpu.conductor.errors import InvalidRequest
from workshop_gpu.conductor.planning import Size


class PlanHandler(WorkshopHandler):
    """What is not given takes the model's defaults, as a request to generate does."""

    @authenticated
    @authorized
    async def get(self, model: str) -> None:
        spec = self.runtime.catalogue.get(model)
        request = GenerateRequest(
            model=model,
            prompt="a plan",
            width=self._number("width"),
            height=self._number("height"),
            steps=self._number("steps"),
        )
        params = complete(request, spec)
        device = self.get_query_argument("device", None)
        given = self._number("batch")
        batch = 1 if given is None else given
        if not 1 <= batch <= spec.limits.max_images:
            raise InvalidRequest("batch", f"must be 1 to {spec.limits.max_images}", value=batch)
        size = Size(params.width * params.height, batch, params.steps)
        self.answer(self.runtime.plan(model, size, device))

    def _number(self, name: str) -> int | None:
        """A whole number of the query. Raises InvalidRequest."""
        text = self.get_query_argument(name, "")
        if not text:
            return None
        if not text.isascii() or not text.isdecimal() or len(text) > 9:
            raise InvalidRequest(name, "must be a whole number", value=text[:40])
        return int(text)
