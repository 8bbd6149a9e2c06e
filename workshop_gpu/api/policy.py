"""policy: the rules for the room, changed while it works; queue: pause and resume."""

from tornado.web import authenticated

from workshop_gpu.api import rules
from workshop_gpu.api.handler import WorkshopHandler, administered
from workshop_gpu.api.schemas_instructor import PauseRequest, PolicyRequest
from workshop_gpu.conductor.errors import InvalidRequest

MAX_REASON_CHARACTERS = 200


def checked_reason(reason: str, default: str) -> str:
    """A reason for everybody to read. Raises InvalidRequest."""
    reason = reason.strip() or default
    if len(reason) > MAX_REASON_CHARACTERS or not reason.isprintable():
        raise InvalidRequest("reason", f"give at most {MAX_REASON_CHARACTERS} printable characters")
    return reason


class PolicyHandler(WorkshopHandler):
    """All rules; those for the whole room are changed here."""

    @authenticated
    @administered
    async def get(self) -> None:
        self.answer(rules.answer(self.runtime.policy))

    @authenticated
    @administered
    async def patch(self) -> None:
        request = self.body(PolicyRequest)
        runtime = self.runtime
        await runtime.change_policy(
            rules.with_room(runtime.policy, request, runtime.configured_policy)
        )
        await self.note("changed the rules", details=rules.sent(request))
        self.answer(rules.answer(runtime.policy))


class PauseHandler(WorkshopHandler):
    """No waiting job starts until the queue is resumed; running ones finish."""

    @authenticated
    @administered
    async def post(self) -> None:
        request = self.body(PauseRequest) if self.request.body else PauseRequest()
        reason = checked_reason(request.reason, PauseRequest().reason).removesuffix(".")
        await self.runtime.change_policy(rules.paused(self.runtime.policy, reason))
        await self.note("paused the queue", details={"reason": reason})
        self.answer(rules.answer(self.runtime.policy))


class ResumeHandler(WorkshopHandler):
    """Waiting jobs start again."""

    @authenticated
    @administered
    async def post(self) -> None:
        await self.runtime.change_policy(rules.paused(self.runtime.policy, ""))
        await self.note("resumed the queue")
        self.answer(rules.answer(self.runtime.policy))
