"""images/generations and models in the form of OpenAI's API, for programs written for that.

Fields of theirs that mean nothing here are ignored; ours (`seed`, `steps`, `guidance`,
`negative_prompt`) may be sent along. The request waits for its turn and for the images; if the
caller goes away, the job is cancelled.
"""

import re
from base64 import b64encode
from contextlib import suppress
from typing import Literal

import anyio
import msgspec
from jupyter_server.auth.decorator import authorized
from tornado.web import HTTPError, authenticated

from workshop_gpu.api.generation import complete
from workshop_gpu.api.handler import WorkshopHandler
from workshop_gpu.api.schemas import GenerateRequest
from workshop_gpu.catalogue.spec import ModelSpec
from workshop_gpu.conductor.errors import (
    ErrorReport,
    InvalidRequest,
    NoDevice,
    ReportedError,
    WorkshopError,
)
from workshop_gpu.conductor.states import JobState
from workshop_gpu.host.records import JobRecord
from workshop_gpu.worker.protocol import GenerateParams

_SIZE = re.compile(r"([0-9]{1,6})x([0-9]{1,6})")
_TYPES = {400: "invalid_request_error", 403: "permission_error", 404: "invalid_request_error"}
_TYPES |= {409: "invalid_request_error", 422: "invalid_request_error", 429: "rate_limit_error"}


class ImagesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Their request with our extras; what else is sent is ignored."""

    prompt: str
    model: str | None = None
    n: int | None = 1
    size: str | None = None
    response_format: Literal["url", "b64_json"] | None = None
    seed: int | None = None
    steps: int | None = None
    guidance: float | None = None
    negative_prompt: str = ""


class ImageData(msgspec.Struct, frozen=True, omit_defaults=True):
    """One image, as data or as an address on this server (which asks for the same token)."""

    b64_json: str = ""
    url: str = ""


class ImagesAnswer(msgspec.Struct, frozen=True):
    """Their answer."""

    created: int
    data: list[ImageData]


class ModelEntry(msgspec.Struct, frozen=True):
    """One model in their list."""

    id: str
    created: int
    owned_by: str = "workshop-gpu"
    object: str = "model"


class ModelEntries(msgspec.Struct, frozen=True):
    """Their list of models."""

    data: list[ModelEntry]
    object: str = "list"


class OpenAIHandler(WorkshopHandler):
    """The base: errors in OpenAI's shape."""

    def offered(self) -> list[ModelSpec]:
        """The models that may be used now, in the order of the catalogue."""
        withdrawn = self.runtime.policy.withdrawn
        specs = self.runtime.catalogue.specs
        return [spec for spec in specs if spec.enabled and spec.id not in withdrawn]

    def error_body(self, report: ErrorReport) -> bytes:
        kind = _TYPES.get(self.get_status(), "server_error")
        error = {
            "message": report.message,
            "type": kind,
            "param": report.facts.get("field"),
            "code": report.kind,
        }
        return msgspec.json.encode({"error": error})


class OpenAINotFound(OpenAIHandler):
    """The parts of their API that this server does not have."""

    async def prepare(self) -> None:  # type: ignore[override]  # as jupyter_server's own
        await super().prepare()
        raise HTTPError(404, f"This server does not have {self.request.path}")


class OpenAIModelsHandler(OpenAIHandler):
    """The models that may be used now."""

    @authenticated
    @authorized
    async def get(self) -> None:
        created = int(self.runtime.started_at)
        offered = self.offered()
        self.answer(ModelEntries([ModelEntry(spec.id, created) for spec in offered]))


def asked_for(request: ImagesRequest, model: str) -> GenerateRequest:
    """Their request in our words. Raises InvalidRequest."""
    width, height = _size(request.size)
    return GenerateRequest(
        model=model,
        prompt=request.prompt,
        negative_prompt=request.negative_prompt,
        seed=request.seed,
        steps=request.steps,
        guidance=request.guidance,
        width=width,
        height=height,
        images=1 if request.n is None else request.n,
    )


class OpenAIDrawingHandler(OpenAIHandler):
    """The base of those that draw images and answer with them."""

    _record: JobRecord | None = None
    _gone = False

    async def draw(self, model: str, params: GenerateParams, response_format: str | None) -> None:
        """Submits the job, waits for its images, and ends the request with them."""
        record = self._record = await self.runtime.submit(self.participant, model, params)
        if self._gone:
            self.on_connection_close()
        await self.runtime.finished(record.id)
        _raise_unless_done(record)
        images = [
            await self._image(record, index, response_format == "b64_json")
            for index in range(record.saved_images)
        ]
        self.answer(ImagesAnswer(int(record.ended_at or record.submitted_at), images))

    def on_connection_close(self) -> None:
        """Nobody waits for the images any more."""
        self._gone = True
        if self._record is not None and not self._record.ended:
            with suppress(WorkshopError):
                self.runtime.cancel(self._record.id)

    def spec(self, model: str | None, needed: str = "text") -> ModelSpec:
        """The model that is named, or else the first that makes pictures from what is `needed`.
        Raises ModelUnknown or InvalidRequest."""
        if model:
            return self.runtime.catalogue.get(model)
        for spec in self.offered():
            if needed in self.accepts(spec):
                return spec
        raise InvalidRequest(
            "model", f"no model that takes {needed} is offered at present; ask the instructor"
        )

    def accepts(self, spec: ModelSpec) -> tuple[str, ...]:
        """What the model makes pictures from."""
        return self.runtime.catalogue.local(spec.id).accepts

    async def _image(self, record: JobRecord, index: int, inline: bool) -> ImageData:
        if inline:
            path = self.runtime.images.path(record.id, index)
            content = await anyio.to_thread.run_sync(path.read_bytes)
            return ImageData(b64_json=b64encode(content).decode("ascii"))
        server = f"{self.request.protocol}://{self.request.host}{self.base_url}"
        return ImageData(url=f"{server}workshop-gpu/api/jobs/{record.id}/images/{index}")


class OpenAIImagesHandler(OpenAIDrawingHandler):
    """Draws images from a prompt."""

    @authenticated
    @authorized
    async def post(self) -> None:
        request = self.body(ImagesRequest)
        spec = self.spec(request.model)
        params = complete(asked_for(request, spec.id), spec)
        await self.draw(spec.id, params, request.response_format)


def _size(size: str | None) -> tuple[int | None, int | None]:
    if size is None or size == "auto":
        return None, None
    match = _SIZE.fullmatch(size)
    if match is None:
        raise InvalidRequest("size", f'"{size}" is no size; write it like "1024x1024"')
    return int(match[1]), int(match[2])


def _raise_unless_done(record: JobRecord) -> None:
    view = record.view
    if view is None or not view.state.ended:
        raise NoDevice("the server is shutting down.")
    if view.state is JobState.CANCELLED:
        raise ReportedError(ErrorReport("job_cancelled", "The job was cancelled."))
    if view.error is not None:
        raise ReportedError(view.error)
