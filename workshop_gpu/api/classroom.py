"""message: what the instructor tells everybody; help: raised hands."""

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from workshop_gpu.api.handler import WorkshopHandler, administered
from workshop_gpu.api.schemas_room import HelpList, HelpRequest, MessageRequest
from workshop_gpu.api.views import help_of, message_of
from workshop_gpu.conductor.errors import InvalidRequest

MAX_MESSAGE_CHARACTERS = 500
MAX_HELP_CHARACTERS = 200


class MessageHandler(WorkshopHandler):
    """The banner in everybody's notebook."""

    @authenticated
    @administered
    async def post(self) -> None:
        text = checked_text(self.body(MessageRequest).text, MAX_MESSAGE_CHARACTERS)
        if not text:
            raise InvalidRequest("text", "say something; DELETE takes a message back")
        message = self.runtime.classroom.post(text, self.participant.name)
        await self.note("told everybody", details={"text": text})
        self.answer(message_of(message), status=201)

    @authenticated
    @administered
    async def delete(self) -> None:
        self.runtime.classroom.take_back()
        await self.note("took the message back")
        self.set_status(204)
        self.finish()


class HelpHandler(WorkshopHandler):
    """One's own hand; an instructor sees all."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer(HelpList((await self.views()).help_calls()))

    @authenticated
    @authorized
    async def post(self) -> None:
        request = self.body(HelpRequest) if self.request.body else HelpRequest()
        text = checked_text(request.text, MAX_HELP_CHARACTERS)
        call = self.runtime.classroom.raise_hand(self.participant, text)
        self.answer(help_of(call, self.participant.id), status=201)

    @authenticated
    @authorized
    async def delete(self) -> None:
        self.runtime.classroom.lower(self.participant.id)
        self.set_status(204)
        self.finish()


class HelpCallHandler(WorkshopHandler):
    """Somebody's hand, which the instructor takes down once they were helped."""

    @authenticated
    @administered
    async def delete(self, participant: str) -> None:
        call = self.runtime.classroom.lower(participant)
        await self.note("helped", participant, {"name": call.participant.name})
        self.set_status(204)
        self.finish()


def checked_text(text: str, most: int) -> str:
    """A text for people: lines of printable characters. Raises InvalidRequest."""
    text = text.strip()
    if len(text) > most or not all(line.isprintable() for line in text.split("\n")):
        raise InvalidRequest("text", f"give at most {most} printable characters")
    return text
