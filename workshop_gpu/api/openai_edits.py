"""images/edits in the form of OpenAI's API: a form with a picture, and a mask if only a part of it
is drawn anew.

As there, what is transparent in the mask is drawn anew; without a mask, what is transparent in the
picture; and all of a picture in which nothing is.
"""

import msgspec
from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from workshop_gpu.api.errors import RequestTooLarge
from workshop_gpu.api.generation import Beginning, complete
from workshop_gpu.api.handler import MAX_BODY_BYTES
from workshop_gpu.api.inputs import answer_of
from workshop_gpu.api.openai import ImagesRequest, OpenAIDrawingHandler, asked_for
from workshop_gpu.api.schemas import Input
from workshop_gpu.conductor.errors import InvalidRequest
from workshop_gpu.host.picture_header import MOST_BYTES

_MOST_FORM_BYTES = 2 * MOST_BYTES + MAX_BODY_BYTES


class EditRequest(ImagesRequest, frozen=True, kw_only=True):
    """The fields of the form beside its files `image` and `mask`. `strength` is ours."""

    strength: float | None = None


class OpenAIEditsHandler(OpenAIDrawingHandler):
    """Draws images that begin with one."""

    @authenticated
    @authorized
    async def post(self) -> None:
        if len(self.request.body) > _MOST_FORM_BYTES:
            raise RequestTooLarge(len(self.request.body), _MOST_FORM_BYTES)
        request = self._fields()
        image, mask = self._file("image"), self._file("mask")
        if image is None:
            raise InvalidRequest("image", "send a form (multipart/form-data) with a picture in it")
        beginning = Beginning(await self._kept(image, "image"), await self._mask(image, mask))
        spec = self.spec(request.model, "mask" if beginning.mask else "image")
        wanted = msgspec.structs.replace(asked_for(request, spec.id), strength=request.strength)
        params = complete(wanted, spec, beginning, self.accepts(spec))
        await self.draw(spec.id, params, request.response_format)

    def _fields(self) -> EditRequest:
        names = EditRequest.__struct_fields__
        sent = {name: self.get_body_argument(name, None, strip=False) for name in names}
        given = {name: value for name, value in sent.items() if value is not None}
        try:
            return msgspec.convert(given, EditRequest, strict=False)
        except msgspec.ValidationError as error:
            problem, _, place = str(error).partition(" - at `$.")
            raise InvalidRequest(place.rstrip("`") or "prompt", problem) from None

    def _file(self, field: str) -> bytes | None:
        files = [*self.request.files.get(field, ()), *self.request.files.get(f"{field}[]", ())]
        if len(files) > 1:
            raise InvalidRequest(field, f"{len(files)} pictures were sent; send one")
        content: bytes | None = files[0].body if files else None
        return content

    async def _kept(self, content: bytes, field: str) -> Input:
        return answer_of(await self.runtime.inputs.take(self.participant.id, content, field))

    async def _mask(self, image: bytes, mask: bytes | None) -> Input | None:
        """What is transparent, as a mask of ours."""
        looked_at = (image, "image") if mask is None else (mask, "mask")
        content = await self.runtime.inputs.transparent(*looked_at)
        if content is not None:
            return await self._kept(content, "mask")
        if mask is not None:
            raise InvalidRequest(
                "mask", "nothing in it is transparent; make transparent what is to be drawn anew"
            )
        return None
