"""What a benchmark has found, kept after each part: a run that was broken off does the rest.

It is kept for the machine as it was started, and for what was asked: what was found on another one,
or of another picture, is of no use.
"""

import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from benchmarks.report import Row, at_most


class Found(msgspec.Struct):
    """What a run has found. `boot` is of the machine's start, `asked` says what was measured."""

    boot: str = ""
    asked: str = ""
    rows: list[Row] = []
    notes: list[str] = []
    broken: int = 0
    parts: list[str] = []
    """What was done."""

    def breaks(self) -> Row:
        """How many parts broke off."""
        return at_most("parts of this benchmark that broke off", self.broken, "", 0)


F = TypeVar("F", bound=Found)


class Keeping(Generic[F]):
    """Keeps what is found in a file (None: nowhere); `went_on` if something was there."""

    def __init__(self, path: Path | None, kind: type[F], asked: str = "") -> None:
        """Raises msgspec.ValidationError for a file that nothing of this kind was kept in."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        self._path = path
        self.found = kind(boot=boot, asked=asked)
        self.went_on = False
        if path is not None and path.is_file():
            found = msgspec.json.decode(path.read_bytes(), type=kind)
            if (found.boot, found.asked) == (boot, asked):
                self.found, self.went_on = found, True

    def done(self, name: str) -> bool:
        """Whether that part was done, in this run or before."""
        return name in self.found.parts

    def attempt(self, name: str, action: Callable[[], None]) -> None:
        """What breaks off takes none of the rest with it: minutes went into that."""
        if self.done(name):
            return
        started = time.monotonic()
        try:
            action()
        except Exception as problem:
            traceback.print_exc()
            self.found.broken += 1
            self.found.notes.append(f"{name} broke off: {type(problem).__name__}: {problem}")
        print(f"({name} took {time.monotonic() - started:.0f} s)", flush=True)
        self.found.parts.append(name)
        self.save()

    def save(self) -> None:
        """Keep what there is now. A part that can go on in its middle calls this itself."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_name(f".{self._path.name}.part")
        unfinished.write_bytes(msgspec.json.encode(self.found))
        os.replace(unfinished, self._path)
