"""Pictures with their metadata as a zip, made piece by piece, so that no more than one picture is
in memory at a time."""

import re
import time
import unicodedata
import zipfile
from collections.abc import Iterable, Iterator
from io import RawIOBase
from pathlib import Path

import msgspec

_LONGEST_NAME = 60
_NOT_NAMES = {"con", "prn", "aux", "nul"}
_NOT_NAMES |= {f"{port}{number}" for port in ("com", "lpt") for number in range(10)}
_EARLIEST_AT = 315_532_800.0  # 1980: a zip knows no time before


class Picture(msgspec.Struct, frozen=True):
    """One picture: whose, how it was made, and the file (`…_at` in seconds since 1970)."""

    participant: str
    name: str
    model: str
    seed: int
    at: float
    path: Path
    metadata: dict[str, str | int | float]


class _Pipe(RawIOBase):
    """What the zip writes, until it is taken away. It cannot be gone back in."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: bytes) -> int:  # type: ignore[override]
        self._pieces.append(bytes(piece))
        return len(piece)

    def take(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken


def archive(pictures: Iterable[Picture]) -> Iterator[bytes]:
    """The zip in pieces of about one picture. Blocking: take each in a thread.

    One folder for each participant, in it the pictures by time and `pictures.json` with how each
    was made. A picture that was deleted meanwhile is left out. Close the iterator to give up.
    """
    pipe, folders = _Pipe(), Names()
    made: dict[str, list[dict[str, str | int | float]]] = {}
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_STORED) as zipped:
        for picture in pictures:
            try:
                content = picture.path.read_bytes()
            except OSError:
                continue
            folder = folders.of(picture.participant, picture.name)
            listed = made.setdefault(folder, [])
            name = f"{len(listed) + 1:04d}-{safe_name(picture.model)}-seed-{picture.seed}.png"
            listed.append({"file": name, **picture.metadata})
            zipped.writestr(_info(f"{folder}/{name}", picture.at), content)
            del content
            yield pipe.take()
        for folder, listed in made.items():
            info = _info(f"{folder}/pictures.json", time.time())
            zipped.writestr(info, msgspec.json.format(msgspec.json.encode(listed), indent=1))
            yield pipe.take()
    yield pipe.take()


def _info(name: str, at: float) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, time.localtime(max(at, _EARLIEST_AT))[:6])
    info.external_attr = 0o644 << 16
    return info


class Names:
    """A folder for each id, named as people know it; no two alike, whatever the case."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def of(self, key: str, name: str) -> str:
        if key not in self._folders:
            taken = {folder.casefold() for folder in self._folders.values()}
            wanted = folder = safe_name(name)
            number = 2
            while folder.casefold() in taken:
                folder, number = f"{wanted}-{number}", number + 1
            self._folders[key] = folder
        return self._folders[key]


def safe_name(name: str) -> str:
    """A name that every file system takes: letters, digits, "-" and "_", not too long, and no
    name that Windows keeps for itself."""
    plain = unicodedata.normalize("NFC", name)
    plain = re.sub(r"[^\w-]+", "-", plain)[:_LONGEST_NAME].strip("-_")
    return f"{plain}-" if plain.casefold() in _NOT_NAMES else plain or "somebody"
