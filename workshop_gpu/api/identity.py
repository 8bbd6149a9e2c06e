"""Who asks: a kernel that shows the token it got at its start, or a person known to Jupyter.

A kernel's token opens this extension's handlers and nothing else of the server, and never the
admin ones. On one UNIX account it says who a kernel is; it is no wall against that account's
other processes.
"""

import secrets
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from jupyter_server.auth.authorizer import Authorizer
from jupyter_server.auth.identity import IdentityProvider, User
from jupyter_server.utils import ensure_async
from tornado.web import RequestHandler

from workshop_gpu.conductor.errors import InvalidRequest
from workshop_gpu.host.records import Participant

RESOURCE = "workshop-gpu"
"""The authorizer's resource for everything that a participant does."""
ADMIN_RESOURCE = "workshop-gpu-admin"
"""The authorizer's resource for what an instructor does."""
MAX_NAME_CHARACTERS = 60
PARTICIPANT_HEADER = "X-Workshop-GPU-Participant"
"""With the server's own token: a name that stays the same from request to request."""
MAX_HEADER_CHARACTERS = 100


@dataclass
class KernelUser(User):
    """A kernel of this server, known by its token."""

    kernel_id: str = ""


class KernelTokens:
    """The tokens of the running kernels, and the names that participants go by."""

    def __init__(self) -> None:
        self._kernels: dict[str, str] = {}
        self._tokens: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._notebooks: dict[str, str] = {}

    def mint(self, kernel: str, name: str, notebook: str = "") -> str:
        """A new token for a kernel that starts now; an older one of it no longer counts.
        `notebook` is the path of its notebook."""
        self.revoke(kernel)
        # Names of files that are no text at all come as halves of letters, which no JSON takes.
        self._notebooks[kernel] = notebook.encode(errors="backslashreplace").decode()
        token = secrets.token_urlsafe(32)
        self._kernels[token] = kernel
        self._tokens[kernel] = token
        # A file may be called anything; what people see of it is short and can be shown.
        name = "".join(letter for letter in name if letter.isprintable())[:MAX_NAME_CHARACTERS]
        if name.strip():
            self._names.setdefault(kernel, name)
        return token

    def revoke(self, kernel: str) -> None:
        self._kernels.pop(self._tokens.pop(kernel, ""), None)

    def forget(self, kernel: str) -> None:
        """The kernel is gone for good; its name goes with it."""
        self.revoke(kernel)
        self._names.pop(kernel, None)
        self._notebooks.pop(kernel, None)

    def kernel(self, token: str) -> str | None:
        return self._kernels.get(token)

    def kernels(self) -> list[str]:
        """The kernels that run."""
        return list(self._tokens)

    def participant(self, kernel: str) -> Participant:
        """The participant that a kernel is."""
        name = self.name(kernel) or f"kernel {kernel[:8]}"
        return Participant(kernel, name, kernel, self._notebooks.get(kernel, ""))

    def latest_of(self, notebook: str) -> str | None:
        """The kernel of a notebook that runs; of several the one that started last."""
        found = (each for each in self._tokens if self._notebooks.get(each) == notebook)
        return next(reversed(list(found)), None) if notebook else None

    def name(self, participant: str) -> str | None:
        return self._names.get(participant)

    def rename(self, participant: str, name: str) -> None:
        self._names[participant] = name


class KernelAwareIdentityProvider:
    """Recognizes our kernels' tokens and leaves everybody else to the server's own provider."""

    def __init__(self, provider: IdentityProvider, tokens: KernelTokens) -> None:
        self._provider = provider
        self._tokens = tokens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def get_user(self, handler: RequestHandler) -> User | Awaitable[User | None] | None:
        known: User | None = getattr(handler, "_jupyter_current_user", None)
        if known:
            return known
        kernel = self._tokens.kernel(self._provider.get_token(handler) or "")
        if kernel is None:
            return self._provider.get_user(handler)
        # Tells Jupyter that no cookie was used, so that XSRF and origin checks are not needed.
        handler._token_authenticated = True  # type: ignore[attr-defined]
        return KernelUser(username=f"kernel-{kernel}", kernel_id=kernel)


class KernelAwareAuthorizer:
    """Lets a kernel do what participants do; asks the server's authorizer about people."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def is_authorized(self, handler: Any, user: User, action: str, resource: str) -> bool:
        if isinstance(user, KernelUser):
            return resource == RESOURCE
        return bool(
            await ensure_async(self._authorizer.is_authorized(handler, user, action, resource))
        )


def participant_of(user: User, tokens: KernelTokens, header: str) -> Participant:
    """The participant behind a request. `header` counts only where the server's token was shown.
    Raises InvalidRequest for one that cannot be a name: cut short, it might be somebody else's."""
    if isinstance(user, KernelUser):
        return tokens.participant(user.kernel_id)
    if header:
        _check_header(header)
        return Participant(f"client:{header}", tokens.name(f"client:{header}") or header[:40])
    person = f"user:{user.username}"
    return Participant(person, tokens.name(person) or user.display_name or user.username)


def _check_header(header: str) -> None:
    length, limit = len(header), MAX_HEADER_CHARACTERS
    if length > limit:
        problem = f"has {length:,} characters, and at most {limit} are allowed; send a shorter name"
        raise InvalidRequest(PARTICIPANT_HEADER, problem, length=length, limit=limit)
    if not header.isprintable():
        problem = f"not all of its {length} characters are printable; send {limit} at most that are"
        raise InvalidRequest(PARTICIPANT_HEADER, problem, length=length, limit=limit)
