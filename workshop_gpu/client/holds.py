"""A hold: while it lives, its model is not evicted."""

import threading
import weakref
from types import TracebackType
from typing import Self

from workshop_gpu.api import schemas
from workshop_gpu.client import heartbeat
from workshop_gpu.client.errors import ClientError, HoldLost
from workshop_gpu.client.http import Http

TTL_S = 120.0


class HeldModel:
    """Keeps a model on its GPU until dropped, or until this kernel ends.

    Use it in a `with` statement, or keep it and call `drop()`. A daemon thread renews it; if
    the hold is lost all the same, `check()` and the end of the `with` block raise HoldLost.
    """

    def __init__(self, http: Http, model: str, ttl_s: float = TTL_S) -> None:
        self._http = http
        self._ttl_s = ttl_s
        self._hold = http.post("holds", schemas.Hold, schemas.HoldRequest(model, ttl_s))
        self._over = threading.Event()
        self._lost: ClientError | None = None
        # The thread must not keep the hold alive that nobody refers to any more.
        self._finalizer = weakref.finalize(self, self._over.set)
        self._thread = heartbeat.start(self, self._over, ttl_s, f"workshop-gpu-hold-{model}")

    @property
    def id(self) -> str:
        return self._hold.id

    @property
    def model(self) -> str:
        return self._hold.model

    @property
    def state(self) -> str:
        """held, dropped or lost."""
        if self._lost is not None:
            return "lost"
        return "dropped" if self._over.is_set() else "held"

    def check(self) -> None:
        """Raise HoldLost if the server ended the hold."""
        if self._lost is not None:
            raise self._lost

    def drop(self) -> None:
        """Give the hold back. A second time does nothing."""
        if self._over.is_set():
            return
        self._over.set()
        try:
            self._http.delete(f"holds/{self.id}")
        except HoldLost as problem:
            self._lost = problem

    def renew(self) -> None:
        """Renew now; the thread does this by itself."""
        try:
            body = schemas.RenewRequest(self._ttl_s)
            self._hold = self._http.put(f"holds/{self.id}", schemas.Hold, body)
        except HoldLost as problem:
            self._lost = problem
            self._over.set()
            raise

    def give_up(self) -> None:
        """The server was silent for longer than the hold lives: count it as lost."""
        self._lost = HoldLost(
            "hold_ended",
            f'the server was silent for {self._ttl_s:.0f} s, so the hold on "{self.model}" ran '
            f'out. Take a new one with wg.hold("{self.model}").',
        )
        self._over.set()

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

    def __repr__(self) -> str:
        return f"<Hold on {self.model!r}: {self.state}>"
