"""Rooms: GPUs, models and people's habits, from small TOML files.

Rooms that ship with the package are named (`workshop`); any other is the path of a file.
"""

from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

GB = 1_000_000_000

Count = Annotated[int, Meta(ge=1, le=100_000)]
Positive = Annotated[float, Meta(gt=0, lt=1e6)]
NotNegative = Annotated[float, Meta(ge=0, lt=1e6)]
Share = Annotated[float, Meta(ge=0, le=1)]


class RoomMistake(Exception):
    """A room that does not exist, or whose file says what cannot be."""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file: what it does not know is a mistake."""


class Gpus(_Table, frozen=True):
    """Some GPUs of one size."""

    gb: Positive
    count: Count = 1

    @property
    def total_bytes(self) -> int:
        return int(self.gb * GB)


class LoadTimes(_Table, frozen=True):
    """Seconds that a load takes, the eviction before it included.

    `rebuild`: the pipeline is built anew; `disk`: its files are in the page cache; `pool`: its
    weights are in the weight pool.
    """

    rebuild: Positive
    disk: Positive
    pool: Positive


class Models(_Table, frozen=True):
    """Some models that differ in nothing but their names.

    `image_s`: seconds that one image takes when it is drawn alone, in a batch of two, of three …
    (the last also for larger batches). With a single figure nothing is drawn in batches.
    `working_gb` is for each image that is drawn at once.
    """

    names: Annotated[tuple[str, ...], Meta(min_length=1)]
    gb: Positive
    image_s: Annotated[tuple[Positive, ...], Meta(min_length=1)]
    load_s: LoadTimes
    working_gb: Positive = 2.3
    steps: Count = 28
    pixels: Annotated[int, Meta(ge=1)] = 1024 * 1024

    @property
    def weights_bytes(self) -> int:
        return int(self.gb * GB)

    @property
    def working_bytes(self) -> int:
        return int(self.working_gb * GB)

    @property
    def batches(self) -> bool:
        return len(self.image_s) > 1

    def run_s(self, images: int) -> float:
        """Seconds that so many images take in one batch."""
        return images * self.image_s[min(images, len(self.image_s)) - 1]


class People(_Table, frozen=True):
    """Some people with the same habits.

    Each asks for `images` images at once, waits for all of them, thinks for `think_s` seconds
    (exponential), and asks again: with probability `keep` for the same model, else for another of
    `models` (none named: all of the room). With a `backlog` they think about nothing: so many of
    their jobs wait at any time.
    """

    name: str
    count: Count = 1
    think_s: NotNegative = 30.0
    keep: Share = 0.7
    images: Count = 1
    backlog: Annotated[int, Meta(ge=0)] = 0
    models: tuple[str, ...] = ()


class Room(_Table, frozen=True):
    """A room, and for how many hours people work in it."""

    title: str
    gpus: Annotated[tuple[Gpus, ...], Meta(min_length=1)]
    models: Annotated[tuple[Models, ...], Meta(min_length=1)]
    people: Annotated[tuple[People, ...], Meta(min_length=1)]
    hours: Annotated[float, Meta(gt=0, le=1000)] = 4.0

    @property
    def devices(self) -> dict[str, int]:
        """The GPUs' names and their bytes."""
        sizes = [gpus.total_bytes for gpus in self.gpus for _ in range(gpus.count)]
        return {f"gpu{number}": size for number, size in enumerate(sizes)}

    @property
    def participants(self) -> dict[str, People]:
        """Everybody in the room, with their habits."""
        return {
            f"{people.name}-{number}": people
            for people in self.people
            for number in range(1, people.count + 1)
        }

    @property
    def by_name(self) -> dict[str, Models]:
        return {name: models for models in self.models for name in models.names}


def shipped_rooms() -> list[str]:
    """The names of the rooms of this package."""
    files = resources.files(__package__).joinpath("rooms").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def read_room(name: str) -> Room:
    """A shipped room by its name, else the room of a file. Raises RoomMistake."""
    try:
        if name in shipped_rooms():
            data = resources.files(__package__).joinpath("rooms", f"{name}.toml").read_bytes()
        else:
            data = Path(name).read_bytes()
    except OSError as problem:
        shipped = ", ".join(shipped_rooms())
        reason = f'"{name}" is no room of this package ({shipped}) and no file that can be read'
        raise RoomMistake(f"{reason}: {problem.strerror}") from None
    return parse_room(data, name)


def parse_room(data: bytes, name: str = "room") -> Room:
    """The room that a TOML text describes. Raises RoomMistake."""
    try:
        room = msgspec.toml.decode(data, type=Room)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise RoomMistake(f"{name}: {problem}") from None
    mistake = _mistake(room)
    if mistake:
        raise RoomMistake(f"{name}: {mistake}")
    return room


def _mistake(room: Room) -> str:
    """What no single figure shows; "" where all is well."""
    names = [name for models in room.models for name in models.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return f"the model {twice[0]} is there twice"
    groups = [people.name for people in room.people]
    if len(set(groups)) < len(groups):
        return "two groups of people have the same name"
    for people in room.people:
        unknown = sorted(set(people.models) - set(names))
        if unknown:
            return f"{people.name} ask for {unknown[0]}, which is no model of the room"
    largest = max(gpus.total_bytes for gpus in room.gpus)
    for models in room.models:
        if models.weights_bytes + models.working_bytes > largest:
            return f"{models.names[0]} fits on no GPU of the room"
    return ""
