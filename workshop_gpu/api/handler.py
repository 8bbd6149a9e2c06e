"""What all handlers share: who asks, typed bodies, structured errors, JSON answers."""

import re
import secrets
from collections.abc import Callable
from functools import cached_property
from http.client import responses
from typing import Any, TypeVar

import msgspec
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado.web import HTTPError

from workshop_gpu.api import identity
from workshop_gpu.api.discretion import discreet
from workshop_gpu.api.errors import NotJSON, RequestTooLarge, body_of, status_of
from workshop_gpu.api.identity import (
    ADMIN_RESOURCE,
    PARTICIPANT_HEADER,
    RESOURCE,
    KernelAwareAuthorizer,
    KernelAwareIdentityProvider,
    KernelTokens,
)
from workshop_gpu.api.limits import Visitors
from workshop_gpu.api.views import Viewer, Views
from workshop_gpu.conductor.errors import ErrorReport, InvalidRequest, WorkshopError
from workshop_gpu.host.audit import AuditLine
from workshop_gpu.host.records import Participant
from workshop_gpu.host.runtime import Runtime

MAX_BODY_BYTES = 1_000_000
REQUEST_HEADER = "X-Request-ID"
_REQUEST_ID = re.compile(r"[!-~]{1,64}")
_KIND_OF_STATUS = {400: "invalid_request", 403: "not_allowed", 404: "not_found"}
_KIND_OF_STATUS |= {405: "method_not_allowed", 413: "request_too_large"}

T = TypeVar("T")
Verb = TypeVar("Verb", bound=Callable[..., Any])


def administered(method: Verb) -> Verb:
    """Marks a verb that only those may use whom the server's authorizer lets administer."""
    wrap: Callable[[Verb], Verb] = authorized("execute", ADMIN_RESOURCE)
    return wrap(method)


class WorkshopHandler(APIHandler):
    """The base of our handlers. Every verb carries `@authenticated` and `@authorized`."""

    auth_resource = RESOURCE
    # Widgets look at jobs all the time; that must not keep an idle server alive.
    _track_activity = False

    async def prepare(self) -> None:  # type: ignore[override]  # as jupyter_server's own
        await super().prepare()
        if self.current_user is not None:
            self.visitors.request(self.participant.id)
        # Before the first look at the catalogue every model would be unknown.
        await self.runtime.catalogue_read()

    @cached_property
    def request_id(self) -> str:
        """By which the log knows the request: the caller's own, where it is short and visible."""
        own = self.request.headers.get(REQUEST_HEADER, "")
        return own if _REQUEST_ID.fullmatch(own) else secrets.token_hex(8)

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header(REQUEST_HEADER, self.request_id)

    @property
    def runtime(self) -> Runtime:
        runtime: Runtime = self.settings["workshop_gpu"]
        runtime.start()
        return runtime

    @property
    def visitors(self) -> Visitors:
        visitors: Visitors = self.settings["workshop_gpu_visitors"]
        return visitors

    @property
    def tokens(self) -> KernelTokens:
        tokens: KernelTokens = self.settings["workshop_gpu_tokens"]
        return tokens

    @cached_property
    def identity_provider(self) -> Any:
        return KernelAwareIdentityProvider(super().identity_provider, self.tokens)

    @cached_property
    def authorizer(self) -> Any:
        return KernelAwareAuthorizer(super().authorizer)

    @property
    def participant(self) -> Participant:
        """Who asks. A name in the header counts only with the server's own token. Raises
        InvalidRequest for one that cannot be a name."""
        header = (
            self.request.headers.get(PARTICIPANT_HEADER, "") if self.token_authenticated else ""
        )
        return identity.participant_of(self.current_user, self.tokens, header)

    async def is_admin(self) -> bool:
        """Whether the server's authorizer lets this user administer; a kernel never may."""
        return bool(
            await self.authorizer.is_authorized(self, self.current_user, "execute", ADMIN_RESOURCE)
        )

    async def views(self) -> Views:
        """What this viewer may see."""
        viewer = Viewer(self.participant, await self.is_admin(), self.base_url)
        return Views(self.runtime, viewer)

    async def note(
        self,
        action: str,
        subject: str = "",
        details: dict[str, str | int | float | bool | None] | None = None,
    ) -> None:
        """Notes in the audit what an instructor just did."""
        who, now = self.participant, self.runtime.now()
        line = AuditLine(now, who.name, who.id, action, subject, details or {})
        await self.runtime.kept.audit.add(line)

    def body(self, kind: type[T]) -> T:
        """The request's body, checked. Raises NotJSON, InvalidRequest or RequestTooLarge."""
        if len(self.request.body) > MAX_BODY_BYTES:
            raise RequestTooLarge(len(self.request.body), MAX_BODY_BYTES)
        try:
            return msgspec.json.decode(self.request.body, type=kind)
        except msgspec.ValidationError as error:
            problem, _, place = str(error).partition(" - at `$.")
            raise InvalidRequest(place.rstrip("`") or "body", problem) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotJSON(f"The request's body is not JSON ({error}). Send JSON.") from None
        except RecursionError:
            raise NotJSON("The request's body is nested too deeply. Send it flatter.") from None

    def answer(self, value: object, status: int = 200) -> None:
        """Ends the request with a struct as JSON."""
        self.set_status(status)
        self.finish(msgspec.json.encode(value))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """All errors leave through here, in one form."""
        exception = kwargs.get("exc_info", (None, None, None))[1]
        report = _report_of(exception, status_code)
        if report.kind in _OF_FILES:
            report = discreet(report)
        status = status_of(report) if isinstance(exception, WorkshopError) else status_code
        if status >= 500:
            self.log.error("Request %s failed: %r", self.request_id, exception)
        self.clear()
        self.set_status(status)
        wait_s = report.facts.get("retry_after_s")
        if report.kind == "queue_full":
            wait_s = report.facts["expected_wait_s"]
        if wait_s is not None:
            self.set_header("Retry-After", str(int(float(str(wait_s))) + 1))
        self.finish(self.error_body(report))

    def error_body(self, report: ErrorReport) -> bytes:
        return msgspec.json.encode(body_of(report, self.request_id))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """A refusal is an answer, not an incident."""
        if not isinstance(value, WorkshopError):
            super().log_exception(typ, value, tb)


class NotFound(WorkshopHandler):
    """Addresses below ours that nobody serves, in our form of error."""

    async def prepare(self) -> None:  # type: ignore[override]  # as jupyter_server's own
        await super().prepare()
        raise HTTPError(404, f"There is nothing at {self.request.path}")


_OF_FILES = ("model_unavailable", "lora_unusable", "load_failed")
"""Errors that may name the server's folders; the list of models shows them to instructors whole."""


def _report_of(exception: BaseException | None, status: int) -> ErrorReport:
    if isinstance(exception, WorkshopError):
        return exception.report()
    message = "The server failed; its log says more."
    if status < 500:
        message = responses.get(status, "The request was refused") + "."
        if isinstance(exception, HTTPError) and exception.log_message:
            # Tornado keeps the text as a format, in which "%" is written twice.
            message = exception.log_message % exception.args
    return ErrorReport(_KIND_OF_STATUS.get(status, "server_error"), message)
