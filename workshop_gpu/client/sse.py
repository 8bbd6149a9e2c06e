"""Server-sent events: bytes in, messages out (the WHATWG HTML standard, section 9.2)."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """One event of the stream; `id` is where to resume, "" if none was ever sent."""

    id: str
    event: str
    data: str


class Parser:
    """Feed it the stream's bytes, in pieces of any size. Comments (keep-alives) are dropped."""

    def __init__(self) -> None:
        self._rest = b""
        self._id = ""
        self._event = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[Message]:
        lines = (self._rest + piece).splitlines(keepends=True)
        # A "\r" at the end of what we have may be half of "\r\n": it waits for the next piece.
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        for line in lines:
            message = self._line(line.rstrip(b"\r\n").decode("utf-8", errors="replace"))
            if message is not None:
                yield message

    def _line(self, line: str) -> Message | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _dispatch(self) -> Message | None:
        event, data = self._event or "message", self._data
        self._event, self._data = "", []
        return Message(self._id, event, "\n".join(data)) if data else None
