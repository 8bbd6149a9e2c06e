"""The event stream, read by a daemon thread that reconnects and resumes by itself."""

import contextlib
import random
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from workshop_gpu.api import schemas
from workshop_gpu.client import sse
from workshop_gpu.client.errors import ClientError, NotAllowed
from workshop_gpu.client.faults import Faults
from workshop_gpu.client.http import Http
from workshop_gpu.client.mirror import Mirror

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0

Subscriber = Callable[[schemas.StreamEvent], None]


@dataclass(frozen=True)
class View:
    """What is known of one job at one moment."""

    job: schemas.Job | None
    model: schemas.Model | None
    preview: schemas.PreviewEvent | None
    doubtful: bool


class EventStream:
    """What the server announces, kept as a mirror and handed on to subscribers.

    The thread starts with the first call of `start`. Everybody may read from any thread.
    """

    def __init__(self, http: Http) -> None:
        self._http = http
        self._decoder = msgspec.json.Decoder(schemas.StreamEvent)
        self._changed = threading.Condition()
        self._mirror = Mirror()
        self._version = 0
        self._live = False
        self._heard_at = float("-inf")
        self._after = ""
        self._subscribers: list[Subscriber] = []
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self.restarts = 0
        """How often the server was found to have started anew."""
        self.problem: ClientError | None = None
        """Why the stream is not live at present; None while it is."""

    def start(self) -> None:
        with self._changed:
            if self._thread is not None or self._closed.is_set():
                return
            self._thread = threading.Thread(target=self._run, name="workshop-gpu-events")
            self._thread.daemon = True
            self._thread.start()

    def close(self) -> None:
        """End the thread (at the next event or ping) and wake everybody who waits."""
        self._closed.set()
        with self._changed:
            self._live = False
            self._wake()

    @property
    def live(self) -> bool:
        """Whether the stream is open, so that changes arrive by themselves."""
        return self._live

    @property
    def age_s(self) -> float:
        """Seconds since the server was last heard on the stream (pings count)."""
        return time.monotonic() - self._heard_at

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` in the stream's thread for each event, after the mirror took it in.

        Returns what ends the subscription.
        """
        with self._changed:
            self._subscribers.append(subscriber)
        self.start()

        def unsubscribe() -> None:
            with self._changed, contextlib.suppress(ValueError):
                self._subscribers.remove(subscriber)

        return unsubscribe

    def wait(self, seen: int, timeout_s: float) -> int:
        """Wait until there is something newer than version `seen`; returns the version."""
        with self._changed:
            self._changed.wait_for(lambda: self._version > seen, timeout_s)
            return self._version

    def look(self, job_id: str) -> View:
        with self._changed:
            job = self._mirror.jobs.get(job_id)
            model = self._mirror.models.get(job.model) if job else None
            preview = self._mirror.previews.get(job_id)
            return View(job, model, preview, job_id in self._mirror.doubtful)

    def take_pictures(self, job_id: str) -> list[bytes]:
        """The pictures that came with a job's end, once; empty where they did not come along."""
        with self._changed:
            return self._mirror.pictures.pop(job_id, [])

    def models(self) -> list[schemas.Model]:
        with self._changed:
            return list(self._mirror.models.values())

    def learn_job(self, job: schemas.Job) -> None:
        """Take in a job from an answer of the REST API."""
        with self._changed:
            self._mirror.learn_job(job)
            self._wake()

    def learn_models(self, models: list[schemas.Model]) -> None:
        """Take in the catalogue from an answer of the REST API."""
        with self._changed:
            self._mirror.learn_models(models)
            self._wake()

    def _wake(self) -> None:
        self._version += 1
        self._changed.notify_all()

    def _run(self) -> None:
        failures, faults = 0, Faults()
        while not self._closed.is_set():
            started, server = time.monotonic(), self._http.server
            try:
                self._read()
            except ClientError as problem:
                self.problem = problem
            except Exception as fault:
                if self._closed.is_set():
                    return  # `close` took the connection away while we read from it
                # Of ours. Without the stream nobody would ever hear of anything again, and it would
                # seem live: it goes on behind what it broke over.
                faults.say(fault)
            with self._changed:
                self._live = False
                self._wake()
            if self.problem is not None:
                self._http.look_again(server)
            if isinstance(self.problem, NotAllowed) and not self._http.may_move:
                return  # asking again with the same token would only fill the server's log
            failures = 0 if time.monotonic() - started > LONGEST_PAUSE_S else failures + 1
            self._closed.wait(pause_s(failures))

    def _read(self) -> None:
        """Read until the stream ends or breaks."""
        parser = sse.Parser()
        with self._http.events(self._after) as pieces:
            for piece in pieces:
                self._heard_at = time.monotonic()
                if not self._live:
                    self.problem = None
                    self._live = True
                for message in parser.feed(piece):
                    self._note_life(message.id)
                    self._take(message)
                if self._closed.is_set():
                    break

    def _note_life(self, event_id: str) -> None:
        """An event's id is that of the server's life, and a place in it."""
        life, before = event_id.rpartition("-")[0], self._after.rpartition("-")[0]
        if life and before and life != before:
            self.restarts += 1
        self._after = event_id or self._after

    def _take(self, message: sse.Message) -> None:
        try:
            event = self._decoder.decode(message.data)
        except (msgspec.ValidationError, msgspec.DecodeError):
            return  # an event that a newer server has and we do not know
        with self._changed:
            self._mirror.apply(event)
            subscribers = list(self._subscribers)
            self._wake()
        for subscriber in subscribers:
            try:
                subscriber(event)
            except Exception:  # a subscriber's mistake must not end the stream for the others
                traceback.print_exc()


def pause_s(failures: int) -> float:
    """How long to wait before the next try: longer after each failure, and not the same for all
    kernels of a room."""
    longest_s = min(FIRST_PAUSE_S * 2.0 ** min(max(0, failures - 1), 30), LONGEST_PAUSE_S)
    return longest_s * random.uniform(0.5, 1.0)  # noqa: S311
