"""openapi.json: the description of this API, made from the same structs that check requests."""

from functools import cache
from typing import Any

import msgspec
from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from workshop_gpu import __version__
from workshop_gpu.api import openai, schemas
from workshop_gpu.api import schemas_instructor as instructor
from workshop_gpu.api import schemas_room as room
from workshop_gpu.api.handler import REQUEST_HEADER, WorkshopHandler
from workshop_gpu.conductor.explaining import PlanView


class Operation(msgspec.Struct, frozen=True):
    """One verb at one address. `answer` is a struct, a media type, or None for an empty body."""

    path: str
    verb: str
    summary: str
    answer: Any
    body: Any = None
    status: int = 200
    errors: tuple[int, ...] = ()


_JOB, _MODEL, _HOLD = "api/jobs/{job}", "api/models/{model}", "api/holds/{hold}"
_RESERVATION, _CLEAR = "api/reservations/{reservation}", "api/devices/{device}/clear"

_PICTURE, _FORM = "application/octet-stream", "multipart/form-data"

_REQUEST_ID = {
    "description": "The request's own header, or a new id; the log has it beside what failed.",
    "schema": {"type": "string"},
}

_MAY_BE_EMPTY = ("api/queue/pause", "api/help")
"""Addresses to which a body may be sent, and need not be."""

OPERATIONS = (
    Operation("api/me", "get", "Who asks", schemas.Me),
    Operation("api/me", "put", "Take a name", schemas.Me, schemas.NameRequest, errors=(400, 413)),
    Operation("api/status", "get", "GPUs, who holds them, the queue", schemas.Status),
    Operation("api/models", "get", "The catalogue", schemas.ModelList),
    Operation(_MODEL, "get", "One model", schemas.Model, errors=(404,)),
    Operation(
        _MODEL, "patch", "Offer, withdraw, pin, keep warm (instructor)", schemas.Model,
        instructor.ModelPolicyRequest, errors=(400, 404, 413),
    ),
    Operation(
        f"{_MODEL}/plan", "get", "How it would be placed; ?width=&height=&steps=&batch=&device=",
        PlanView, errors=(400, 404, 409, 422, 503),
    ),
    Operation(
        f"{_MODEL}/load", "post", "Preload (instructor)", schemas.Model,
        status=202, errors=(404, 409, 422, 503),
    ),
    Operation(
        f"{_MODEL}/evict", "post", "Evict (instructor)", schemas.Model,
        status=202, errors=(404, 409),
    ),
    Operation(
        "api/inputs", "post", "Send a picture that jobs begin with", schemas.Input, _PICTURE,
        status=201, errors=(400, 413, 507),
    ),
    Operation("api/inputs/{input}", "get", "One's own, as it was sent", "image/*", errors=(404,)),
    Operation("api/jobs", "get", "Own jobs, newest first; ?all=1 for admins", schemas.JobList),
    Operation(
        "api/jobs", "post", "Submit", schemas.Job, schemas.GenerateRequest,
        status=201, errors=(400, 404, 409, 413, 422, 429, 503, 507),
    ),
    Operation(_JOB, "get", "One job", schemas.Job, errors=(404,)),
    Operation(_JOB, "delete", "Cancel", schemas.Job, errors=(404, 409, 503)),
    Operation(f"{_JOB}/images/{{index}}", "get", "An image", "image/png", errors=(404,)),
    Operation("api/holds", "get", "Own holds", schemas.HoldList),
    Operation(
        "api/holds", "post", "Hold a model", schemas.Hold, schemas.HoldRequest,
        status=201, errors=(400, 404, 409, 413, 422, 503),
    ),
    Operation(
        _HOLD, "put", "Renew", schemas.Hold, schemas.RenewRequest, errors=(400, 404, 410, 413)
    ),
    Operation(_HOLD, "delete", "Drop", None, status=204, errors=(404, 410)),
    Operation("api/reservations", "get", "Everybody's reservations", schemas.ReservationList),
    Operation(
        "api/reservations", "post", "Reserve GPU memory", schemas.Reservation,
        schemas.ReservationRequest, status=201, errors=(400, 404, 413, 422, 503),
    ),
    Operation(_RESERVATION, "get", "One reservation", schemas.Reservation, errors=(404, 410)),
    Operation(
        _RESERVATION, "put", "Renew", schemas.Reservation, schemas.RenewRequest,
        errors=(400, 404, 410, 413),
    ),
    Operation(_RESERVATION, "delete", "Give back", None, status=204, errors=(404, 410)),
    Operation(
        _CLEAR, "post", "Clear a GPU for training (instructor)", schemas.Reservation,
        status=202, errors=(404, 409, 503),
    ),
    Operation(_CLEAR, "delete", "Open it again (instructor)", None, status=204, errors=(404, 409)),
    Operation("api/policy", "get", "The rules (instructor)", instructor.Policy),
    Operation(
        "api/policy", "patch", "Change the rules for the room (instructor)", instructor.Policy,
        instructor.PolicyRequest, errors=(400, 413),
    ),
    Operation(
        "api/queue/pause", "post", "Start no waiting job (instructor)", instructor.Policy,
        instructor.PauseRequest, errors=(400, 413),
    ),
    Operation("api/queue/resume", "post", "Start them again (instructor)", instructor.Policy),
    Operation(
        "api/participants", "get", "Who is in the room (instructor)", instructor.ParticipantList
    ),
    Operation(
        "api/participants/{participant}", "patch", "Limit and priority of one (instructor)",
        instructor.Policy, instructor.ParticipantRequest, errors=(400, 404, 413),
    ),
    Operation("api/audit", "get", "What instructors did (instructor)", instructor.AuditList),
    Operation(
        "api/history", "get", "The last half hour, for charts; ?after=", room.History,
        errors=(400,),
    ),
    Operation(
        "api/message", "post", "A message to all (instructor)", room.Message,
        room.MessageRequest, status=201, errors=(400, 413),
    ),
    Operation("api/message", "delete", "Take it back (instructor)", None, status=204),
    Operation("api/help", "get", "One's own raised hand; all for instructors", room.HelpList),
    Operation(
        "api/help", "post", "Raise a hand", room.HelpCall, room.HelpRequest,
        status=201, errors=(400, 413),
    ),
    Operation("api/help", "delete", "Take it down", None, status=204, errors=(404,)),
    Operation(
        "api/help/{participant}", "delete", "Somebody was helped (instructor)", None,
        status=204, errors=(404,),
    ),
    Operation(
        "api/export", "get",
        "Pictures as a zip (instructor), ?participant=ID of one; ?mine=1 needs no right",
        "application/zip", errors=(404,),
    ),
    Operation(
        "api/kernels", "get", "Kernels and what they hold (instructor)", instructor.KernelList
    ),
    Operation(
        "api/kernels/{kernel}/restart", "post", "Restart a kernel (instructor)",
        instructor.Kernel, errors=(404, 500),
    ),
    Operation(
        "api/events", "get", "All changes, as server-sent events; ?after=, ?pictures=",
        "text/event-stream", errors=(400,),
    ),
    Operation("api/openapi.json", "get", "This description", dict[str, Any]),
    Operation("v1/models", "get", "The models, in OpenAI's form", openai.ModelEntries),
    Operation(
        "v1/images/generations", "post", "Generate, in OpenAI's form", openai.ImagesAnswer,
        openai.ImagesRequest, errors=(400, 404, 409, 413, 422, 429, 503, 507),
    ),
    Operation(
        "v1/images/edits", "post", "Begin with a picture, in OpenAI's form", openai.ImagesAnswer,
        _FORM, errors=(400, 404, 409, 413, 422, 429, 503, 507),
    ),
)  # fmt: skip
"""Every operation; a test compares them with the routes and with real answers."""


@cache
def description() -> dict[str, Any]:
    """The OpenAPI 3.1 description. Paths are below the server's base URL."""
    structs = [kind for op in OPERATIONS for kind in (op.answer, op.body) if _is_struct(kind)]
    structs += [schemas.ErrorBody, schemas.StreamEvent]
    _, components = msgspec.json.schema_components(
        structs, ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(f"/workshop-gpu/{operation.path}", {})[operation.verb] = _described(
            operation
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Workshop GPU", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "headers": {"RequestID": _REQUEST_ID},
            "securitySchemes": {
                "token": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "The word \"token\" and a kernel's or the server's token.",
                }
            },
        },
        "security": [{"token": []}],
    }


class OpenAPIHandler(WorkshopHandler):
    """Serves the description."""

    @authenticated
    @authorized
    async def get(self) -> None:
        self.answer(description())


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _described(operation: Operation) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": operation.summary}
    if operation.answer is not None:
        answer["content"] = _content(operation.answer)
    answers = {str(operation.status): answer}
    for status in dict.fromkeys((*operation.errors, 403, 429)):
        answers[str(status)] = {"description": "Refused", "content": _content(schemas.ErrorBody)}
    for each in answers.values():
        each["headers"] = {REQUEST_HEADER: {"$ref": "#/components/headers/RequestID"}}
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": f"{operation.verb} {operation.path}",
        "responses": answers,
    }
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    if names:
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    if operation.body is not None:
        required = operation.path not in _MAY_BE_EMPTY
        described["requestBody"] = {"required": required, "content": _content(operation.body)}
    return described


def _content(kind: Any) -> dict[str, Any]:
    if isinstance(kind, str):
        return {kind: {}}
    if _is_struct(kind):
        return {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
    return {"application/json": {"schema": {"type": "object"}}}
