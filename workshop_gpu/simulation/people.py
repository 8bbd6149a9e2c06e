"""Simulated people: what they ask for, and when."""

import random
from collections.abc import Callable, Iterator

from workshop_gpu.simulation.clock import Clock
from workshop_gpu.simulation.room import People, Room

Submit = Callable[[str, str], str]
"""Submits a job of this participant for this model: its id, or "" where it was refused."""


class Person:
    """One participant. What it does depends on nothing but its habits, its own dice and the
    answers it gets, so that all policies meet the same people."""

    def __init__(
        self, name: str, habits: People, models: list[str], seed: int, clock: Clock, submit: Submit
    ) -> None:
        self.name = name
        self.habits = habits
        self._models = models
        self._dice = random.Random(f"{seed} {name}")  # noqa: S311 - no secret, but repeatable
        self._clock = clock
        self._submit = submit
        self._model = self._dice.choice(models)
        self._wanted = 0
        self._waiting: set[str] = set()
        self._running: set[str] = set()
        self._left = False

    def sit_down(self) -> None:
        """Begins: after a first pause, so that not all ask at once, or at once with a backlog."""
        self._clock.after(0.0 if self.habits.backlog else self._pause_s(), self._ask)

    def leave(self) -> None:
        """Asks for nothing more; what was asked for comes."""
        self._left = True

    def job_started(self, job: str) -> None:
        self._waiting.discard(job)
        self._running.add(job)
        self._go_on()

    def job_ended(self, job: str) -> None:
        self._running.discard(job)
        self._go_on()
        if not (self._wanted or self._waiting or self._running or self.habits.backlog):
            self._clock.after(self._pause_s(), self._ask)

    def _ask(self) -> None:
        if self.habits.backlog:
            self._go_on()
            return
        self._choose()
        self._wanted = self.habits.images
        self._go_on()

    def _go_on(self) -> None:
        """Submits as much as it wants and may."""
        if self.habits.backlog:
            self._wanted = max(0, self.habits.backlog - len(self._waiting))
        while self._wanted and not self._left:
            if self.habits.backlog:
                self._choose()
            job = self._submit(self.name, self._model)
            if not job:
                return
            self._waiting.add(job)
            self._wanted -= 1

    def _choose(self) -> None:
        if self._dice.random() >= self.habits.keep:
            others = [model for model in self._models if model != self._model]
            self._model = self._dice.choice(others or self._models)

    def _pause_s(self) -> float:
        return self._dice.expovariate(1 / self.habits.think_s) if self.habits.think_s else 0.0


def people_of(room: Room, seed: int, clock: Clock, submit: Submit) -> Iterator[Person]:
    """Everybody in the room."""
    for name, habits in room.participants.items():
        models = list(habits.models or room.by_name)
        yield Person(name, habits, models, seed, clock, submit)
