"""The one client that `wg.generate` and its kin share, made on first use."""

import threading
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Concatenate, ParamSpec, TypeVar

from workshop_gpu.client.client import Client
from workshop_gpu.client.errors import ClientError
from workshop_gpu.client.http import Http
from workshop_gpu.client.instructor import Instructor
from workshop_gpu.client.room import Room

P = ParamSpec("P")
T = TypeVar("T")


class _Shared:
    """Holds the client; two threads that need it first get the same."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.lock = threading.Lock()


_shared = _Shared()


def current() -> Client:
    """The shared client; raises NoServer where no server is found."""
    with _shared.lock:
        if _shared.client is None or _shared.client.closed:
            _shared.client = Client()
        return _shared.client


def _current_http() -> Http:
    return current().admin.http()


admin = Instructor(_current_http)
"""What an instructor does, with whichever client is the shared one then."""

room = Room(_current_http)
"""What people in the room say to each other, and what happened there."""


def connect(url: str = "", token: str = "") -> Client:
    """Use this server from now on; without arguments, look for it anew. Returns the client.

    What an earlier client made (a studio, a hold) stays with its own server.
    """
    client = Client(url, token)
    try:
        client.me()  # a wrong address or token must show here, not at the first picture
    except ClientError:
        client.close()
        raise
    with _shared.lock:
        known = _shared.client
        if known is not None and not known.closed and known.server == client.server:
            client.close()
            return known
        _shared.client = client
        return client


def _with_shared(method: Callable[Concatenate[Client, P], T]) -> Callable[P, T]:
    """A method of `Client` as a function that uses whichever client is the shared one then."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        return method(current(), *args, **kwargs)

    whole = signature(method)
    shown = [each for name, each in whole.parameters.items() if name != "self"]
    called.__signature__ = whole.replace(parameters=shown)  # type: ignore[attr-defined]
    called.__qualname__ = method.__name__
    called.__module__ = __name__
    return called


generate = _with_shared(Client.generate)
agenerate = _with_shared(Client.agenerate)
again = _with_shared(Client.again)
submit = _with_shared(Client.submit)
grid = _with_shared(Client.grid)
hold = _with_shared(Client.hold)
reserve = _with_shared(Client.reserve)
reserve_all = _with_shared(Client.reserve_all)
models = _with_shared(Client.models)
status = _with_shared(Client.status)
explain = _with_shared(Client.explain)
jobs = _with_shared(Client.jobs)
job = _with_shared(Client.job)
