"""A reservation: GPU memory for this kernel's own code, which no model takes meanwhile."""

import math
import queue
import threading
import time
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from workshop_gpu.api import schemas
from workshop_gpu.client import heartbeat
from workshop_gpu.client.errors import BadRequest, ClientError, ConnectionLost, ReservationLost
from workshop_gpu.client.events import EventStream
from workshop_gpu.client.http import Http
from workshop_gpu.client.progress import Say
from workshop_gpu.client.words import Words, describe_reservation

TTL_S = 120.0
ASK_ANYWAY_S = 10.0
"""How often to ask while the stream is open: it should never be needed."""
ASK_S = 0.5
"""How often to ask while the stream is closed."""
GIVE_UP_S = 60.0
"""How long a silent server is waited for."""
_MOST_GB = 1_000_000


class Reserved:
    """GPU memory set aside for this kernel, until it is given back or the kernel ends.

    Use it in a `with` statement, or keep it and call `drop()`. A daemon thread renews it; if it
    is lost all the same, `check()` and the end of the `with` block raise ReservationLost.
    """

    def __init__(
        self, http: Http, size_bytes: int | None, device: str | None, ttl_s: float = TTL_S
    ) -> None:
        self._http = http
        self._ttl_s = ttl_s
        body = schemas.ReservationRequest(size_bytes=size_bytes, device=device, ttl_s=ttl_s)
        self._last = http.post("reservations", schemas.Reservation, body)
        self._over = threading.Event()
        self._lost: ClientError | None = None
        # The thread must not keep alive what nobody refers to any more.
        self._finalizer = weakref.finalize(self, self._over.set)
        self._thread = heartbeat.start(self, self._over, ttl_s, "workshop-gpu-reservation")

    @property
    def id(self) -> str:
        return self._last.id

    @property
    def device(self) -> str | None:
        """The GPU; None while none is chosen."""
        return self._last.device

    @property
    def size_bytes(self) -> int | None:
        """The bytes set aside; None for a whole GPU."""
        return self._last.size_bytes

    @property
    def state(self) -> str:
        """waiting, granted, dropped or lost."""
        if self._lost is not None:
            return "lost"
        return "dropped" if self._over.is_set() else self._last.state

    def wait(self, stream: EventStream, say: Say, timeout_s: float | None = None) -> None:
        """Return once the memory is set aside. `say` is told what is waited for.

        Raises ReservationLost where it ended meanwhile, TimeoutError, or ConnectionLost when the
        server has been silent for a minute.
        """
        news: queue.SimpleQueue[schemas.Reservation] = queue.SimpleQueue()

        def take(event: schemas.StreamEvent) -> None:
            if isinstance(event, schemas.ReservationEvent) and event.reservation.id == self.id:
                news.put(event.reservation)

        unsubscribe = stream.subscribe(take)
        try:
            self._follow(stream, news, say, timeout_s)
        finally:
            unsubscribe()

    def _follow(
        self,
        stream: EventStream,
        news: "queue.SimpleQueue[schemas.Reservation]",
        say: Say,
        timeout_s: float | None,
    ) -> None:
        started = told_at = heard_at = time.monotonic()
        asked_at = -math.inf  # what happened before the subscription is not in `news`
        told: Words | None = None
        while True:
            now = time.monotonic()
            if now - asked_at >= (ASK_ANYWAY_S if stream.live else ASK_S):
                asked_at = now
                heard_at = self._ask(heard_at, now)
            if self._last.state == "ended":
                self._lose("it was ended while it waited.")
                self.check()
            words = describe_reservation(self._last, int(now - told_at))
            if words != told:
                told = words
                say(words)
            if self._last.state == "granted":
                return
            if timeout_s is not None and now - started >= timeout_s:
                raise TimeoutError("The GPU memory was not free in time.")
            try:
                self._last, told_at = news.get(timeout=ASK_S), time.monotonic()
            except queue.Empty:
                continue

    def _ask(self, heard_at: float, now: float) -> float:
        """Ask how it stands; returns when the server was last heard."""
        try:
            path = f"reservations/{self.id}"
            self._last = self._http.get(path, schemas.Reservation)
        except ReservationLost as problem:
            self._lost = problem
            self._over.set()
            raise
        except ConnectionLost:
            if now - heard_at > GIVE_UP_S:
                raise
            return heard_at
        return now

    def check(self) -> None:
        """Raise ReservationLost if the server ended it."""
        if self._lost is not None:
            raise self._lost

    def drop(self) -> None:
        """Give the memory back. A second time does nothing."""
        if self._over.is_set():
            return
        self._over.set()
        try:
            self._http.delete(f"reservations/{self.id}")
        except ReservationLost as problem:
            self._lost = problem

    def renew(self) -> None:
        """Renew now; the thread does this by itself."""
        try:
            body = schemas.RenewRequest(self._ttl_s)
            self._http.put(f"reservations/{self.id}", schemas.Reservation, body)
        except ReservationLost as problem:
            self._lost = problem
            self._over.set()
            raise

    def give_up(self) -> None:
        """The server was silent for longer than the reservation lives: count it as lost."""
        self._lose(f"the server was silent for {self._ttl_s:.0f} s, so it ran out.")

    def _lose(self, why: str) -> None:
        self._lost = ReservationLost("reservation_ended", f"{why} Ask anew with wg.reserve().")
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
        words = describe_reservation(self._last).text
        return f"<{words}: {self.state}>"


def parse_gb(gb: object) -> int:
    """Bytes of a number of GB. Raises BadRequest."""
    if isinstance(gb, (int, float)) and not isinstance(gb, bool) and 0 < gb <= _MOST_GB:
        return max(1, round(gb * 1e9))
    raise BadRequest(
        "invalid_request",
        f"gb={gb!r:.60}: write how many GB of GPU memory you need, such as gb=8 or gb=0.5.",
        {"field": "gb"},
    )


def find_device(gpu: object, devices: Sequence[schemas.Device]) -> str | None:
    """The id of the GPU that a number or an id names; None: whichever is best.

    Raises BadRequest.
    """
    if gpu is None:
        return None
    for device in devices:
        if device.id == gpu:
            return device.id
    if isinstance(gpu, int) and not isinstance(gpu, bool):
        for device in devices:
            if device.id.rpartition(":")[2] == str(gpu):
                return device.id
    there = ", ".join(device.id for device in devices) or "none"
    raise BadRequest(
        "invalid_request", f"gpu={gpu!r:.60}: this server has {there}.", {"field": "gpu"}
    )
