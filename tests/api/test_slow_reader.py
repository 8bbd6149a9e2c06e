"""A reader of the event stream that takes nothing for a while, as a laptop does that sleeps."""

import asyncio
from types import SimpleNamespace

from workshop_gpu.api.events import EventsHandler
from workshop_gpu.api.schemas import NoticeEvent
from workshop_gpu.host.event_log import EventLog

CAPACITY = 20


class Sleeper(EventsHandler):
    """The handler without a connection: `flush` returns once the reader takes what was written."""

    runtime = None

    def __init__(self) -> None:
        self.runtime = SimpleNamespace(events=EventLog(CAPACITY), life="life", settled=_settled)
        self.written: list[str] = []
        self.wrote = asyncio.Event()
        self.awake = asyncio.Event()

    async def views(self):
        return SimpleNamespace(
            snapshot=lambda: NoticeEvent("a snapshot", 0.0),
            event=lambda text: NoticeEvent(text, 0.0),
        )

    def write(self, chunk):
        self.written.append(chunk)

    async def flush(self, include_footers=False):
        self.wrote.set()
        await self.awake.wait()


async def _settled():
    pass


def test_a_reader_that_slept_gets_a_snapshot_and_what_follows_but_no_backlog():
    async def scenario():
        reader = Sleeper()
        log = reader.runtime.events
        stream = asyncio.create_task(reader._stream(None))
        await reader.wrote.wait()
        for number in range(50 * CAPACITY):
            log.append(f"event {number}")
            await asyncio.sleep(0)
        waiting = list(reader.written)
        reader.wrote.clear()
        reader.awake.set()
        await reader.wrote.wait()
        reader.wrote.clear()
        log.append("the next one")
        await reader.wrote.wait()
        log.close()
        await stream
        return waiting, reader.written

    waiting, written = asyncio.run(scenario())
    assert len(waiting) == 1, "nothing is kept for one who takes nothing"
    assert ["a snapshot" in each for each in written] == [True, True, False]
    assert written[1].startswith(f"id: life-{50 * CAPACITY}\n")
