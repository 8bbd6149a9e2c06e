"""The policies that are compared: who decides, and how long a load takes."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from workshop_gpu.conductor.conductor import Conductor
from workshop_gpu.conductor.effects import Effect
from workshop_gpu.conductor.events import Event
from workshop_gpu.simulation.baselines import Fifo, Grouped, Lru
from workshop_gpu.simulation.room import LoadTimes, Room


class Scheduler(Protocol):
    """Who decides. `handle` may refuse a job by raising a `WorkshopError`."""

    def handle(self, event: Event, now: float) -> list[Effect]: ...

    def waiting(self, now: float) -> list[str]:
        """The ids of the jobs that have not begun, in the order that this scheduler promises."""
        ...


class Ours:
    """The conductor as it is, with its own settings."""

    def __init__(self, room: Room) -> None:
        self._conductor = Conductor(devices=tuple(room.devices))
        self.handle = self._conductor.handle

    def waiting(self, now: float) -> list[str]:
        return self._conductor.waiting()


class Policy(msgspec.Struct, frozen=True):
    """A scheduler with the loads that it has to live with."""

    title: str
    make: Callable[[Room], Scheduler]
    load_s: Callable[[LoadTimes], float]


def _rebuild(times: LoadTimes) -> float:
    return times.rebuild


def _disk(times: LoadTimes) -> float:
    return times.disk


def _pool(times: LoadTimes) -> float:
    return times.pool


POLICIES: dict[str, Policy] = {
    "fifo": Policy(
        "first in first out, all others leave, built anew",
        lambda room: Fifo(room.by_name),
        _rebuild,
    ),
    "lru": Policy(
        "first in first out, least recently used leaves, from the page cache",
        lambda room: Lru(room.by_name),
        _disk,
    ),
    "grouped": Policy(
        "grouped by model as llama-swap does, from the page cache",
        lambda room: Grouped(room.by_name),
        _disk,
    ),
    "conductor-rebuild": Policy("the conductor, loads as in fifo", Ours, _rebuild),
    "conductor-disk": Policy("the conductor, loads as in lru and grouped", Ours, _disk),
    "conductor": Policy("the conductor, from the weight pool", Ours, _pool),
}
