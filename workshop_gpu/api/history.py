"""history: the last half hour, for charts."""

import math

import msgspec
from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from workshop_gpu.api import schemas_room as schemas
from workshop_gpu.api.handler import WorkshopHandler
from workshop_gpu.conductor.errors import InvalidRequest


class HistoryHandler(WorkshopHandler):
    """All points, or with `?after=SECONDS` those that are later."""

    @authenticated
    @authorized
    async def get(self) -> None:
        after = _seconds(self.get_query_argument("after", "0"))
        now, history = self.runtime.now(), self.runtime.chronicle.history
        points = msgspec.to_builtins(history.points(now, after))
        self.answer(
            schemas.History(
                now, history.every_s, msgspec.convert(points, list[schemas.HistoryPoint])
            )
        )


def _seconds(text: str) -> float:
    """Raises InvalidRequest."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise InvalidRequest("after", "give the `at` of a point that you have: seconds since 1970")
    return seconds
