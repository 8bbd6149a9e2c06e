"""Requests to the REST API: typed bodies in, typed answers or our errors out."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from getpass import getuser
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

import httpx
import msgspec

from workshop_gpu.client.connection import Server
from workshop_gpu.client.errors import (
    ClientClosed,
    ClientError,
    ConnectionLost,
    Fact,
    NotAllowed,
    refusal,
)

T = TypeVar("T")

PARTICIPANT_HEADER = "X-Workshop-GPU-Participant"
"""Says who asks where the token does not: a kernel's own token says it, the server's does not."""

ANSWER_TIMEOUT_S = 30.0
PICTURES_BYTES = 2**18
"""A job's pictures that are not larger than this together come with the news of its end."""
SILENCE_TIMEOUT_S = 45.0
"""The stream pings about every 15 s; three missed pings mean that it is dead."""


class Http:
    """One server's REST API. May be used from several threads.

    `transport` stands in for the network in tests. `find` looks for the server once more where
    nobody named it: started again, it may have another port and another token.
    """

    def __init__(
        self,
        server: Server,
        transport: httpx.BaseTransport | None = None,
        find: Callable[[], Server] | None = None,
    ) -> None:
        self.server = server
        self._find = find
        self._looking = threading.Lock()
        self.heard = False
        """Whether the server has ever answered."""
        # A proxy from the environment must not come between a kernel and its own server.
        self._http = httpx.Client(
            headers={"Authorization": _authorization(server), PARTICIPANT_HEADER: _my_name()},
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=5.0),
            transport=transport,
            trust_env=not (server.is_own or _is_local(server.url)),
        )

    def get(self, path: str, answer: type[T]) -> T:
        return self._decode(self._request("GET", path), answer)

    def post(self, path: str, answer: type[T], body: msgspec.Struct | None = None) -> T:
        return self._decode(self._request("POST", path, body), answer)

    def upload(self, path: str, answer: type[T], content: bytes) -> T:
        """POST a file as it is."""
        response = self._send("POST", path, content, "application/octet-stream")
        return self._decode(response, answer)

    def put(self, path: str, answer: type[T], body: msgspec.Struct) -> T:
        return self._decode(self._request("PUT", path, body), answer)

    def patch(self, path: str, answer: type[T], body: msgspec.Struct) -> T:
        return self._decode(self._request("PATCH", path, body), answer)

    def delete(self, path: str) -> bytes:
        return self._request("DELETE", path).content

    def download(self, url: str) -> bytes:
        """The bytes at a URL as the server gives it, or relative to the REST API's."""
        return self._request("GET", url).content

    def save(self, path: str, target: Path) -> Path:
        """Writes an answer of any length to a file, which appears when it is whole."""
        unfinished = target.with_name(f".{target.name}.part")
        self._check_open()
        try:
            with self._http.stream("GET", urljoin(self.server.api, path)) as response:
                if not response.is_success:
                    response.read()
                    raise _error(response)
                with open(unfinished, "wb") as file:
                    for piece in response.iter_bytes():
                        file.write(piece)
            unfinished.replace(target)
        except httpx.HTTPError as problem:
            raise self._lost(problem) from problem
        finally:
            unfinished.unlink(missing_ok=True)
        return target

    @contextmanager
    def events(self, after: str) -> Iterator[Iterator[bytes]]:
        """The event stream as raw bytes, resumed after the id `after` unless that is ""."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if after:
            headers["Last-Event-ID"] = after
        timeout = httpx.Timeout(SILENCE_TIMEOUT_S, connect=5.0)
        url = f"{self.server.api}events?pictures={PICTURES_BYTES}"
        self._check_open()
        try:
            with self._http.stream("GET", url, headers=headers, timeout=timeout) as response:
                if response.is_error:
                    response.read()
                    raise _error(response)
                yield response.iter_raw()
        except httpx.HTTPError as problem:
            raise self._lost(problem) from problem

    @property
    def may_move(self) -> bool:
        """Whether the server was found, so that it can be found at another address."""
        return self._find is not None

    def look_again(self, left: Server) -> bool:
        """Looks for the server where `left` is of no use any more. Says whether it is another one
        now, in another thread's opinion too: then a request may be sent there."""
        if self._find is None:
            return False
        with self._looking:
            if self.server == left:
                with suppress(ClientError):
                    self.server = self._find()
                    self._http.headers["Authorization"] = _authorization(self.server)
            return self.server != left

    @property
    def closed(self) -> bool:
        return self._http.is_closed

    def close(self) -> None:
        self._http.close()

    def _request(
        self, method: str, path: str, body: msgspec.Struct | None = None
    ) -> httpx.Response:
        content = None if body is None else msgspec.json.encode(body)
        return self._send(method, path, content, "application/json")

    def _send(
        self, method: str, path: str, content: bytes | None, media_type: str
    ) -> httpx.Response:
        """Once more where the server is another one meanwhile: what the old one had begun ended
        with it, and jobs have their ids."""
        server = self.server
        try:
            return self._send_once(method, path, content, media_type)
        except (ConnectionLost, NotAllowed):
            if self.closed or not self.look_again(server):
                raise
            return self._send_once(method, path, content, media_type)

    def _send_once(
        self, method: str, path: str, content: bytes | None, media_type: str
    ) -> httpx.Response:
        url = urljoin(self.server.api, path)
        headers = {} if content is None else {"Content-Type": media_type}
        self._check_open()
        try:
            try:
                response = self._http.request(method, url, content=content, headers=headers)
            except httpx.RemoteProtocolError:
                # The server closed a kept connection while we sent: a GET may be sent again.
                if method != "GET":
                    raise
                response = self._http.request(method, url)
        except httpx.HTTPError as problem:
            raise self._lost(problem) from problem
        self.heard = True
        if not response.is_success:
            raise _error(response)
        return response

    def _check_open(self) -> None:
        if self.closed:
            raise ClientClosed

    def _decode(self, response: httpx.Response, answer: type[T]) -> T:
        try:
            return msgspec.json.decode(response.content, type=answer)
        except (msgspec.ValidationError, msgspec.DecodeError) as problem:
            raise ConnectionLost(
                f"{response.url} answered something that this version does not understand "
                f"({problem}). Install the same version of Workshop GPU here and there."
            ) from problem

    def _lost(self, problem: httpx.HTTPError) -> ConnectionLost:
        reason = str(problem) or type(problem).__name__
        return ConnectionLost(
            f"{self.server.url} does not answer ({reason}). "
            "Is the Jupyter server still running? Try again in a moment."
        )


def _error(response: httpx.Response) -> ClientError:
    """The error that an answer with a status of 300 or more stands for."""
    try:
        error = msgspec.json.decode(response.content)["error"]
        kind, message = str(error["kind"]), str(error["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return _unexplained(response)
    request = error.pop("request_id", "")
    if response.status_code >= 500 and request:  # the instructor finds the cause by it
        message = f"{message} (In the server's log: request {request}.)"
    facts: dict[str, Fact] = {k: v for k, v in error.items() if k not in ("kind", "message")}
    fallback = NotAllowed if response.status_code in (401, 403) else refusal("", "").__class__
    return refusal(kind, message, facts, fallback)


def _unexplained(response: httpx.Response) -> ClientError:
    status = response.status_code
    if status in (301, 302, 401, 403):  # a server without a token's owner redirects to its login
        return NotAllowed(
            "forbidden",
            "the server does not accept this token. Restart the kernel, so that it gets a new "
            "one, or give the right one with wg.connect(url, token=...).",
        )
    if status == 404:
        return refusal("not_found", f"{response.url} has no Workshop GPU (or an older one).")
    return refusal(
        f"http_{status}",
        f"the server failed with status {status}. Its log says why; tell the instructor.",
    )


def _authorization(server: Server) -> str:
    return f"token {server.token}"


_MOST_OF_USER = 60
"""Characters of the user's name: the server refuses a long header."""


def _my_name() -> str:
    """The same for all requests of this process, and another one for every other process."""
    try:
        user = getuser()
    except (OSError, KeyError):
        user = "somebody"
    return f"{user[:_MOST_OF_USER]}-{os.getpid()}".encode("ascii", "replace").decode("ascii")


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
