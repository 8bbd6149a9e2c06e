"""Keeps up with what is announced: what happened, in words, over time, and for whoever listens."""

import time
from collections.abc import Callable

from workshop_gpu.conductor.effects import Snapshot
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.states import JobState
from workshop_gpu.host.happenings import Happening, Happenings, JobEnded
from workshop_gpu.host.history import History
from workshop_gpu.host.news import News, NewsItem
from workshop_gpu.host.records import JobRecords
from workshop_gpu.host.reserving import Reservations

Listener = Callable[[Happening], None]


class Chronicle:
    """On the event loop's thread."""

    def __init__(self, policy: Policy, jobs: JobRecords, reservations: Reservations) -> None:
        self.news = News(self.name_of)
        self.history = History()
        self._happenings = Happenings(policy)
        self._jobs = jobs
        self._reservations = reservations
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Calls `listener` with all that happens from now on. It must neither block nor raise."""
        self._listeners.append(listener)

    def see(self, announced: object) -> list[NewsItem]:
        """Takes in an announcement; what of it is news."""
        items: list[NewsItem] = []
        for happening in self._happenings.see(announced, time.monotonic()):
            if isinstance(happening, JobEnded) and happening.outcome is JobState.DONE:
                record = self._jobs.find(happening.job)
                self.history.made(record.params.images if record else 1, time.time())
            for listener in self._listeners:
                listener(happening)
            item = self.news.note(happening)
            if item is not None:
                items.append(item)
        return items

    def keep_time(self, snapshot: Callable[[], Snapshot]) -> None:
        """Now and then: another point of the history, where it is time."""
        now = time.time()
        if self.history.due(now):
            self.history.add(snapshot(), now)

    def name_of(self, participant: str) -> str:
        """The name that somebody who has jobs or reservations goes by."""
        owners = {owner.id: owner for owner in self._reservations.owners()}
        known = self._jobs.latest_of(participant)
        owner = known.participant if known else owners.get(participant)
        return owner.name if owner else "somebody"
