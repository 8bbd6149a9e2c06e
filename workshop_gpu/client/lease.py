"""What a kernel has on the server for a while: renewed by a thread, given back, or lost."""

import threading
import weakref
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import msgspec

from workshop_gpu.api import schemas
from workshop_gpu.client import heartbeat
from workshop_gpu.client.errors import Lost
from workshop_gpu.client.http import Http

TTL_S = 120.0


class Lease(ABC):
    """Lives until dropped, or until this kernel ends.

    Use it in a `with` statement, or keep it and call `drop()`. A daemon thread renews it; if it
    is lost all the same, `check()` and the end of the `with` block say so.
    """

    def __init__(self, http: Http, address: str, ttl_s: float, name: str) -> None:
        self._http = http
        self._address = address
        self._ttl_s = ttl_s
        self._over = threading.Event()
        self._lost: Lost | None = None
        # The thread must not keep alive what nobody refers to any more.
        self._finalizer = weakref.finalize(self, self._over.set)
        self._thread = heartbeat.start(self, self._over, ttl_s, name)

    @property
    def state(self) -> str:
        """ "dropped", "lost", or what it is while it lives."""
        if self._lost is not None:
            return "lost"
        return "dropped" if self._over.is_set() else self._living()

    def check(self) -> None:
        """Raise Lost (its own kind of it) if the server ended it."""
        if self._lost is not None:
            raise self._lost

    def drop(self) -> None:
        """Give it back. A second time does nothing."""
        if self._over.is_set():
            return
        self._over.set()
        try:
            self._http.delete(self._address)
        except Lost as problem:
            self._lost = problem

    def renew(self) -> None:
        """Renew now; the thread does this by itself. Raises Lost."""
        try:
            self._http.put(self._address, msgspec.Raw, schemas.RenewRequest(self._ttl_s))
        except Lost as problem:
            self._lose(problem)
            raise

    def give_up(self) -> None:
        """The server was silent for longer than it lives: count it as lost."""
        self._lose(self._ran_out(f"the server was silent for {self._ttl_s:.0f} s"))

    def _lose(self, problem: Lost) -> None:
        self._lost = problem
        self._over.set()

    @abstractmethod
    def _living(self) -> str:
        """Its state while it lives."""

    @abstractmethod
    def _ran_out(self, why: str) -> Lost:
        """The error for one that the server has ended by now."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.drop()
        if error is None:
            self.check()
