"""events: one stream of all that changes, as server-sent events that a `fetch` can read.

An event's id is "LIFE-POSITION": the server's life and the place in its log. A reader that
comes back with its last id (header `Last-Event-ID`, or `?after=`) reads on from there. If the
server has been restarted, or the log no longer reaches back so far, it gets a new snapshot.
A reader that is slow holds nothing up: it has no queue, only its own place in the log.
"""

import asyncio
import contextlib
import re

import msgspec
from jupyter_server.auth.decorator import authorized
from tornado.iostream import StreamClosedError
from tornado.web import authenticated

from workshop_gpu.api.handler import WorkshopHandler
from workshop_gpu.api.schemas import StreamEvent
from workshop_gpu.host.event_log import FellBehind

PING_S = 15.0
_POSITION = re.compile(r"[0-9]{1,18}")


class EventsHandler(WorkshopHandler):
    """The stream; it lasts until the reader goes or the server stops."""

    _gone = False

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
        with self._counted, contextlib.suppress(StreamClosedError):
            self._counted.enter_context(self.visitors.stream(self.participant.id))
            await self._stream(self._position(after))

    def on_connection_close(self) -> None:
        self._gone = True
        self._counted.close()  # now, not when it would be written to next

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

    def _write(self, event: StreamEvent, position: int) -> None:
        kind = event.__struct_config__.tag
        data = msgspec.json.encode(event).decode()
        self.write(f"id: {self.runtime.life}-{position}\nevent: {kind}\ndata: {data}\n\n")
