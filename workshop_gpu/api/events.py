"""events: one stream of all that changes, as server-sent events that a `fetch` can read.

An event's id is "LIFE-POSITION": the server's life and the place in its log. A reader that
comes back with its last id (header `Last-Event-ID`, or `?after=`) reads on from there. If the
server has been restarted, or the log no longer reaches back so far, it gets a new snapshot.
A reader that is slow holds nothing up: it has no queue, only its own place in the log.

`?pictures=BYTES` has a job's finished pictures come along where they are not larger than that
together: for a small one the way there and back would take longer than all else.
"""

import asyncio
import contextlib
import re

import msgspec
from jupyter_server.auth.decorator import authorized
from tornado.iostream import StreamClosedError
from tornado.web import authenticated

from workshop_gpu.api.handler import WorkshopHandler
from workshop_gpu.api.schemas import JobEvent, StreamEvent
from workshop_gpu.api.views import Views
from workshop_gpu.conductor.errors import InvalidRequest
from workshop_gpu.host.event_log import FellBehind

PING_S = 15.0
MOST_PICTURES_BYTES = 2**20
_POSITION = re.compile(r"[0-9]{1,18}")
_SIZE = re.compile(r"[0-9]{1,7}")


class EventsHandler(WorkshopHandler):
    """The stream; it lasts until the reader goes or the server stops."""

    _gone = False
    _pictures_bytes = 0

    def initialize(self) -> None:
        self._counted = contextlib.ExitStack()

    @authenticated
    @authorized
    async def get(self) -> None:
        self.set_header("Content-Type", "text/event-stream")
        self.set_header("Cache-Control", "no-store")
        # Proxies such as nginx would otherwise hold the stream back until it is long enough.
        self.set_header("X-Accel-Buffering", "no")
        after = self.request.headers.get("Last-Event-ID") or self.get_query_argument("after", "")
        self._pictures_bytes = self._wanted_bytes()
        with self._counted, contextlib.suppress(StreamClosedError):
            self._counted.enter_context(self.visitors.stream(self.participant.id))
            await self._stream(self._position(after))

    def on_connection_close(self) -> None:
        self._gone = True
        self._counted.close()  # now, not when it would be written to next

    def _wanted_bytes(self) -> int:
        """Raises InvalidRequest."""
        wanted = self.get_query_argument("pictures", "0")
        if not _SIZE.fullmatch(wanted) or int(wanted) > MOST_PICTURES_BYTES:
            raise InvalidRequest("pictures", f"give a number of bytes up to {MOST_PICTURES_BYTES}")
        return int(wanted)

    def _position(self, event_id: str) -> int | None:
        """The place in the log that an id names; None where it is not of this server's life."""
        life, _, position = event_id.rpartition("-")
        if life != self.runtime.life or not _POSITION.fullmatch(position):
            return None
        return int(position)

    async def _stream(self, position: int | None) -> None:
        log = self.runtime.events
        views = await self.views()
        while not (self._gone or log.closed):
            if position is None:
                await self.runtime.settled()
                position = log.position
                self._write(views.snapshot(), position)
            try:
                news = log.after(position)
            except FellBehind:
                position = None
                continue
            if news:
                await self.runtime.settled()  # nobody hears what the journal does not know
            for place, entry in news:
                position = place
                event = views.event(entry)
                if event is not None:
                    self._write_pictures(views, event)
                    self._write(event, place)
            # Waits until the reader has taken what was written, so that a slow one
            # falls behind in the log instead of filling this server's memory.
            await self.flush()
            await self._grown(position)

    async def _grown(self, position: int) -> None:
        """Returns when there is something to write: an event, or a ping."""
        try:
            async with asyncio.timeout(PING_S):
                await self.runtime.events.grown(position)
        except TimeoutError:
            self.write(": ping\n\n")

    def _write_pictures(self, views: Views, event: StreamEvent) -> None:
        """They have no id: who reads on from the last one gets the job's end all the same."""
        if self._pictures_bytes and isinstance(event, JobEvent):
            for picture in views.pictures(event.job, self._pictures_bytes):
                self.write(_message(picture))

    def _write(self, event: StreamEvent, position: int) -> None:
        self.write(f"id: {self.runtime.life}-{position}\n{_message(event)}")


def _message(event: StreamEvent) -> str:
    kind = event.__struct_config__.tag
    return f"event: {kind}\ndata: {msgspec.json.encode(event).decode()}\n\n"
