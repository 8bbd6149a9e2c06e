"""One struct kept in a JSON file: written whole or not at all, set aside where it is broken."""

import os
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class JsonFile(Generic[T]):
    """A struct on disk. Blocking: call it from a thread. One writer at a time."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.path = path
        self._kind = kind

    def read(self) -> tuple[T | None, str]:
        """The struct, and what is wrong with the file ("" where nothing is).

        None where there is no file, or none that can be read. A broken file is kept under
        another name, so that the next writing does not destroy what somebody may want back.
        """
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=self._kind), ""
        except FileNotFoundError:
            return None, ""
        except OSError as error:
            return None, f"{self.path} cannot be read: {error.strerror}"
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return None, self.set_aside(str(error))

    def set_aside(self, problem: str) -> str:
        """Renames a file that cannot be used; says so in words."""
        aside = self.path.with_name(f"{self.path.name}.broken")
        try:
            self.path.replace(aside)
        except OSError as error:
            return f"{self.path} is broken ({problem}) and stays in the way: {error.strerror}"
        return f"{self.path} was broken ({problem}); it is now {aside.name}"

    def write(self, value: T) -> None:
        """Replaces the file. Raises OSError, and then the file is as it was."""
        content = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = self.path.with_name(f".{self.path.name}.part")
        try:
            with open(unfinished, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self.path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
