"""participants: who is in the room, and rules for one of them."""

from tornado.web import authenticated

from workshop_gpu.api import rules
from workshop_gpu.api.errors import ParticipantUnknown
from workshop_gpu.api.handler import WorkshopHandler, administered
from workshop_gpu.api.people import participants, people
from workshop_gpu.api.schemas_instructor import ParticipantList, ParticipantRequest


class ParticipantsHandler(WorkshopHandler):
    """Everybody who runs a kernel, has jobs or reservations, or rules of their own."""

    @authenticated
    @administered
    async def get(self) -> None:
        self.answer(ParticipantList(participants(self.runtime, self.tokens)))


class ParticipantHandler(WorkshopHandler):
    """One participant's limit and priority."""

    @authenticated
    @administered
    async def patch(self, participant: str) -> None:
        request = self.body(ParticipantRequest)
        known = people(self.runtime, self.tokens).get(participant)
        if known is None:
            raise ParticipantUnknown(participant)
        await self.runtime.change_policy(
            rules.with_participant(self.runtime.policy, known, request)
        )
        await self.note("changed a participant's rules", participant, rules.sent(request))
        self.answer(rules.answer(self.runtime.policy))
