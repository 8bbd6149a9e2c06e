"""What instructors did: one line for each action, on disk and at hand."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec

_KEPT_LINES = 1000
_MAX_BYTES = 1_000_000


class AuditLine(msgspec.Struct, frozen=True):
    """Who did what, and when. `at` is seconds since 1970.

    `participant` is the id that the server knows the person by, `who` the name that they went
    by then. `subject` is the model, job, device or participant that it was done to.
    """

    at: float
    who: str
    participant: str
    action: str
    subject: str = ""
    details: dict[str, str | int | float | bool | None] = {}


class AuditLog:
    """The last actions. On disk there are two files at most: when one is full, the next begins."""

    def __init__(
        self,
        path: Path,
        log: logging.Logger,
        *,
        kept_lines: int = _KEPT_LINES,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        self._path = path
        self._log = log
        self._max_bytes = max_bytes
        self._lines: deque[AuditLine] = deque(maxlen=kept_lines)
        self._writing = asyncio.Lock()
        self._listeners: list[Callable[[AuditLine], None]] = []

    def listen(self, listener: Callable[[AuditLine], None]) -> None:
        """Calls `listener` with each action from now on."""
        self._listeners.append(listener)

    @property
    def lines(self) -> list[AuditLine]:
        """The last actions, newest first."""
        return list(reversed(self._lines))

    def read(self) -> None:
        """Takes in what earlier lives of the server wrote. Blocking; once, before `add`."""
        for path in (self._previous, self._path):
            try:
                content = path.read_bytes()
            except OSError:
                continue
            for line in content.splitlines():
                try:
                    self._lines.append(msgspec.json.decode(line, type=AuditLine))
                except (msgspec.MsgspecError, UnicodeDecodeError):
                    continue  # half a line, of a server that died while it wrote

    async def add(self, line: AuditLine) -> None:
        """Notes an action that was done. A disk that cannot take it does not undo the action."""
        self._lines.append(line)
        for listener in self._listeners:
            listener(line)
        async with self._writing:
            try:
                await anyio.to_thread.run_sync(self._append, msgspec.json.encode(line) + b"\n")
            except OSError as error:
                self._log.warning("%s: %s (%r)", self._path, error.strerror, line)

    @property
    def _previous(self) -> Path:
        return self._path.with_suffix(f".previous{self._path.suffix}")

    def _append(self, line: bytes) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size + len(line) > self._max_bytes:
            self._path.replace(self._previous)
        with open(self._path, "ab") as file:
            file.write(line)
