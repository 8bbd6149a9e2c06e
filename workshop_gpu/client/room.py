"""`wg.room`: what people in the room say to each other, and what happened there."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from workshop_gpu.api import schemas, schemas_room
from workshop_gpu.client.errors import ServerRefused
from workshop_gpu.client.http import Http
from workshop_gpu.client.listing import Listing
from workshop_gpu.client.tables import Row


class NewsTable(Listing[schemas_room.News]):
    """What happened last, newest first."""

    head = ("When", "What")
    nothing = "Nothing has happened yet."

    def row(self, item: schemas_room.News) -> Row:
        return (datetime.fromtimestamp(item.at).strftime("%H:%M:%S"), item.text)


class Room:
    """`http` gives the server's API when something is asked of it."""

    def __init__(self, http: Callable[[], Http]) -> None:
        self._http = http

    def help(self, text: str = "") -> str:
        """Raise a hand: the instructor sees it with the name of this notebook."""
        call = self._http().post("help", schemas_room.HelpCall, schemas_room.HelpRequest(text))
        return f"Your hand is up since {datetime.fromtimestamp(call.at):%H:%M}: help will come."

    def no_help(self) -> str:
        """Take the hand down again."""
        try:
            self._http().delete("help")
        except ServerRefused as problem:
            if problem.kind != "no_help_asked":
                raise
            return "Your hand was down already."
        return "Your hand is down."

    def message(self) -> str:
        """What the instructor tells everybody; "" where that is nothing."""
        message = self._http().get("status", schemas.Status).message
        return message.text if message else ""

    def news(self) -> NewsTable:
        """What happened last: loads, evictions and why, pauses, reservations."""
        return NewsTable(self._http().get("status", schemas.Status).news)

    def history(self, after: float = 0.0) -> schemas_room.History:
        """The last half hour, a point each ten seconds; `after`: later than this (in seconds
        since 1970)."""
        return self._http().get(f"history?after={after!r}", schemas_room.History)

    def export(self, path: str | Path = "my-pictures.zip") -> Path:
        """All my pictures, with how each was made, as a zip file at `path`."""
        return self._http().save("export?mine=1", Path(path))

    def __repr__(self) -> str:
        return "<Room: help, no_help, message, news, history, export: see help(wg.room)>"
