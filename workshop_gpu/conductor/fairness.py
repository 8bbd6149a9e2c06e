"""Whose job is next: the class first, then fair shares of GPU seconds within it.

Start-time fair queueing over participants: each has an account of the GPU seconds it has used
(a job is paid in advance by its estimate and corrected at its end; a load is split over those
who waited for it), and the smallest account goes first. Who comes back after a pause starts at
the level of those who are active: a pause is neither saved up nor punished.

Three kinds of jobs go before the shares of their class (`Turn`): one that a worker's death put
back, the one for which a model was loaded just now, and those that others have overtaken for
longer than the patience.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeVar


class Waiting(Protocol):
    """What the order needs to know of a waiting job."""

    @property
    def participant(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def submitted_s(self) -> float: ...
    @property
    def sequence(self) -> int: ...


J = TypeVar("J", bound=Waiting)


class Turn(NamedTuple):
    """Why a job goes before the shares; the smallest goes first.

    `reason`: 0 a worker's death put it back, 1 its model was loaded for it just now, 2 others
    overtook it for longer than the patience (since `since_s`), 3 none.
    """

    reason: int = 3
    since_s: float = 0.0


_ITS_SHARE = Turn()


def rank(job: Waiting, now: float, rise_s: float) -> int:
    """The class that a job counts as: its own, one better for each `rise_s` seconds of waiting,
    so that a steady stream of better classes starves nobody."""
    risen = int((now - job.submitted_s) / rise_s) if rise_s > 0 else 0
    return max(0, int(job.priority) - max(0, risen))


class Shares:
    """The accounts. Seconds are floats: they only order, nothing is paid out."""

    def __init__(self) -> None:
        self._used_s: dict[str, float] = {}
        self._running_s: dict[str, float] = {}
        self._active: dict[str, int] = {}
        self._level_s = 0.0

    def used_s(self, participant: str) -> float:
        return max(self._used_s.get(participant, 0.0), 0.0)

    def enter(self, participant: str) -> None:
        """A job of the participant was accepted."""
        self._raise_level()
        if not self._active.get(participant):
            self._used_s[participant] = max(self._used_s.get(participant, 0.0), self._level_s)
        self._active[participant] = self._active.get(participant, 0) + 1

    def leave(self, participant: str) -> None:
        """A job of the participant has ended."""
        self._raise_level()
        left = self._active.get(participant, 0) - 1
        if left > 0:
            self._active[participant] = left
        else:
            self._active.pop(participant, None)

    def begin(self, participant: str, expected_s: float) -> None:
        """A job begins and is paid in advance."""
        self.charge(participant, expected_s)
        self._running_s[participant] = self._running_s.get(participant, 0.0) + expected_s

    def finish(self, participant: str, expected_s: float, used_s: float) -> None:
        """The job's advance is corrected to what it used."""
        self.charge(participant, used_s - expected_s)
        self._running_s[participant] -= expected_s

    def charge(self, participant: str, seconds_s: float) -> None:
        """GPU seconds used, or given back where negative."""
        self._used_s[participant] = self._used_s.get(participant, self._level_s) + seconds_s

    def forget_idle(self) -> None:
        """Drops the accounts that would start at the level anyway."""
        self._raise_level()
        for participant in list(self._used_s):
            if participant not in self._active and self._used_s[participant] <= self._level_s:
                del self._used_s[participant]
                self._running_s.pop(participant, None)

    def _raise_level(self) -> None:
        # What runs now is not counted: who comes while another's job runs is next after it.
        begun = (self._used_s[name] - self._running_s.get(name, 0.0) for name in self._active)
        lowest = min(begun, default=self._level_s)
        self._level_s = max(self._level_s, lowest)

    def order(
        self,
        jobs: Iterable[J],
        rank_of: Callable[[J], int],
        cost_s: Callable[[J], float],
        turn_of: Callable[[J], Turn] = lambda job: Turn(),
    ) -> list[J]:
        """The waiting jobs in the order in which they would run if all models were ready.

        Within a class the participant with the smallest account goes first and then pays; jobs
        of one participant keep their order; equal accounts go by arrival. Jobs whose turn was
        taken from them, or has come already, go first of their class.
        """
        classes: dict[int, list[J]] = {}
        for job in jobs:
            classes.setdefault(rank_of(job), []).append(job)
        accounts = dict(self._used_s)
        result: list[J] = []
        for number in sorted(classes):
            queues: dict[str, list[J]] = {}
            first: list[tuple[Turn, int, J]] = []
            for job in sorted(classes[number], key=lambda each: each.sequence):
                turn = turn_of(job)
                if turn == _ITS_SHARE:
                    queues.setdefault(job.participant, []).append(job)
                else:
                    first.append((turn, job.sequence, job))
            result += [job for _, _, job in sorted(first, key=lambda each: each[:2])]
            heap = [
                (accounts.get(name, self._level_s), queue[0].sequence, name)
                for name, queue in queues.items()
            ]
            heapq.heapify(heap)
            taken = dict.fromkeys(queues, 0)
            while heap:
                account_s, _, name = heapq.heappop(heap)
                queue = queues[name]
                job = queue[taken[name]]
                taken[name] += 1
                result.append(job)
                accounts[name] = account_s + cost_s(job)
                if taken[name] < len(queue):
                    heapq.heappush(heap, (accounts[name], queue[taken[name]].sequence, name))
        return result
