"""inputs: pictures that jobs begin with are sent before them, and named in them by their id."""

import anyio
from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from workshop_gpu.api import schemas
from workshop_gpu.api.errors import RequestTooLarge
from workshop_gpu.api.generation import Beginning
from workshop_gpu.api.handler import WorkshopHandler
from workshop_gpu.conductor.errors import InputUnknown
from workshop_gpu.host.input_store import Input, InputStore
from workshop_gpu.host.picture_header import MOST_BYTES, media_type


def beginning_of(
    store: InputStore, participant: str, request: schemas.GenerateRequest
) -> Beginning:
    """What the job begins with. Raises InputUnknown."""

    def found(field: str, input_id: str) -> schemas.Input | None:
        return answer_of(store.get(participant, input_id, field)) if input_id else None

    return Beginning(found("start_image", request.start_image), found("mask", request.mask))


def answer_of(known: Input) -> schemas.Input:
    """A picture that was sent, for who sent it."""
    return schemas.Input(known.id, known.width, known.height, known.size_bytes)


class InputsHandler(WorkshopHandler):
    """Takes a PNG, JPEG or WebP file, which is the body as it is."""

    @authenticated
    @authorized
    async def post(self) -> None:
        content = self.request.body
        if len(content) > MOST_BYTES:
            raise RequestTooLarge(len(content), MOST_BYTES)
        known = await self.runtime.inputs.take(self.participant.id, content)
        self.answer(answer_of(known), status=201)


class InputHandler(WorkshopHandler):
    """One of one's own pictures, as it was sent."""

    @authenticated
    @authorized
    async def get(self, input_id: str) -> None:
        store = self.runtime.inputs
        store.get(self.participant.id, input_id, "input")
        try:
            content = await anyio.to_thread.run_sync(store.path(input_id).read_bytes)
        except OSError:
            raise InputUnknown("input", input_id) from None
        # The id is that of the content.
        self.set_header("Cache-Control", "private, max-age=31536000, immutable")
        self.finish(content, set_content_type=media_type(content))
