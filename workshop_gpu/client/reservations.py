"""A reservation: GPU memory for this kernel's own code, which no model takes meanwhile."""

import math
import queue
import time
from collections.abc import Sequence

from workshop_gpu.api import schemas
from workshop_gpu.client.errors import BadRequest, ConnectionLost, Lost, ReservationLost, TimedOut
from workshop_gpu.client.events import EventStream
from workshop_gpu.client.http import Http
from workshop_gpu.client.lease import TTL_S, Lease
from workshop_gpu.client.progress import Say
from workshop_gpu.client.words import Words, describe_reservation

ASK_ANYWAY_S = 10.0
"""How often to ask while the stream is open: it should never be needed."""
ASK_S = 0.5
"""How often to ask while the stream is closed."""
GIVE_UP_S = 60.0
"""How long a silent server is waited for."""
_MOST_GB = 1_000_000


class Reserved(Lease):
    """GPU memory set aside for this kernel, until it is given back or the kernel ends.

    Use it in a `with` statement, or keep it and call `drop()`. A daemon thread renews it; if it
    is lost all the same, `check()` and the end of the `with` block raise ReservationLost.
    """

    def __init__(
        self, http: Http, size_bytes: int | None, device: str | None, ttl_s: float = TTL_S
    ) -> None:
        body = schemas.ReservationRequest(size_bytes=size_bytes, device=device, ttl_s=ttl_s)
        self._last = http.post("reservations", schemas.Reservation, body)
        super().__init__(http, f"reservations/{self._last.id}", ttl_s, "workshop-gpu-reservation")

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

    def _living(self) -> str:
        """waiting or granted."""
        return self._last.state

    def _ran_out(self, why: str) -> Lost:
        return ReservationLost(
            "reservation_ended", f"The reservation has ended: {why}. Ask anew with wg.reserve()."
        )

    def wait(self, stream: EventStream, say: Say, timeout_s: float | None = None) -> None:
        """Return once the memory is set aside. `say` is told what is waited for.

        Raises ReservationLost where it ended meanwhile, TimedOut, or ConnectionLost when the
        server has been silent for a minute.
        """
        news: queue.SimpleQueue[schemas.ReservationEvent] = queue.SimpleQueue()

        def take(event: schemas.StreamEvent) -> None:
            if isinstance(event, schemas.ReservationEvent) and event.reservation.id == self.id:
                news.put(event)

        unsubscribe = stream.subscribe(take)
        try:
            self._follow(stream, news, say, timeout_s)
        finally:
            unsubscribe()

    def _follow(
        self,
        stream: EventStream,
        news: "queue.SimpleQueue[schemas.ReservationEvent]",
        say: Say,
        timeout_s: float | None,
    ) -> None:
        started = told_at = heard_at = time.monotonic()
        asked_at = -math.inf  # what happened before the subscription is not in `news`
        told: Words | None = None
        ended = ""
        while True:
            now = time.monotonic()
            if now - asked_at >= (ASK_ANYWAY_S if stream.live else ASK_S):
                asked_at = now
                heard_at = self._ask(heard_at, now)
            if self._last.state == "ended":
                self._lose(self._ran_out(ended or "nobody said why"))
                self.check()
            words = describe_reservation(self._last, int(now - told_at))
            if words != told:
                told = words
                say(words)
            if self._last.state == "granted":
                return
            if timeout_s is not None and now - started >= timeout_s:
                raise TimedOut(
                    "the GPU memory was not free in time. Ask for less, or wait longer "
                    "(timeout_s=…)."
                )
            try:
                event = news.get(timeout=ASK_S)
            except queue.Empty:
                continue
            self._last, ended, told_at = event.reservation, event.ended, time.monotonic()

    def _ask(self, heard_at: float, now: float) -> float:
        """Ask how it stands; returns when the server was last heard."""
        try:
            self._last = self._http.get(self._address, schemas.Reservation)
        except ReservationLost as problem:
            self._lose(problem)
            raise
        except ConnectionLost:
            if now - heard_at > GIVE_UP_S:
                raise
            return heard_at
        return now

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
        "invalid_request",
        f"gpu={gpu!r:.60}: choose one that this server has: {there}.",
        {"field": "gpu"},
    )
