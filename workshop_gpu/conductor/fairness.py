"""Whose job is next: the class first, then fair shares of GPU seconds within it.

Start-time fair queueing over participants: each has an account of the GPU seconds it has used
(a job is paid in advance by its estimate and corrected at its end; a load is split over those
who waited for it), and the smallest account goes first. A waiting job's `start_s` is what the
account will be when the participant's jobs before it have been paid: the order of the start
times is the order in which all would run if all models were ready. Equal start times go by how
long one has been in line; in line is the first job of each who has none running. The account of
the job that began last is the level. Who comes back after a pause starts at the level, at least:
a pause is not saved up.

Who had nothing waiting or running, and asks again, starts at the level even with an account up to
`FORGIVEN_S` above it. So people who ask for one picture at a time come in the order in which they
ask; without it, those who think fast wait twice as long as the rest, for nothing that anybody
gains. The account itself stays as it is, and with it the level rises: so who always has jobs
waiting falls behind nobody.

Only a job that a worker's death put back goes before the shares of its class. One that others
overtook, because its model was not ready, keeps its place: when its patience is over, nobody behind
it is preferred any longer (see `dispatch.py`).
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Protocol, TypeVar

from workshop_gpu.conductor.accounts import Accounts

FORGIVEN_S = 30.0
"""GPU seconds above the level that do not count for who comes back."""


class Reason(IntEnum):
    """Why a job goes where it goes in its class; the smallest goes first."""

    PUT_BACK = 0
    """A worker's death put it back."""
    SHARE = 1
    """Its participant's share."""


class Waiting(Protocol):
    """What the start times need to know of a waiting job."""

    @property
    def rank(self) -> int: ...
    @property
    def reason(self) -> Reason: ...
    @property
    def sequence(self) -> int: ...
    @property
    def cost_s(self) -> float: ...


J = TypeVar("J", bound=Waiting)


def rank(priority: int, waited_s: float, rise_s: float) -> int:
    """The class that a job counts as: its own, one better for each `rise_s` seconds of waiting
    (0: never), so that a steady stream of better classes starves nobody."""
    risen = int(waited_s / rise_s) if rise_s > 0 else 0
    return max(0, priority - max(0, risen))


def start_times(jobs: Iterable[J], starts_s: float) -> Iterator[tuple[J, float]]:
    """The start times of one participant's waiting jobs: those of a better class are before the
    others, within each class they keep their order, and each begins where the one before it was
    paid; so the first can rise a class and the others stay where they are. Those with a better
    reason than their share go first anyway, and are paid when they run."""
    for job in sorted(jobs, key=lambda each: (each.rank, each.sequence)):
        yield job, starts_s
        if job.reason is Reason.SHARE:
            starts_s += job.cost_s


class Shares:
    """The accounts. Seconds are floats: they only order, nothing is paid out."""

    def __init__(self) -> None:
        self._used_s: dict[str, float] = {}
        self._active: dict[str, int] = {}
        self._running: dict[str, int] = {}
        self._idle: list[tuple[float, str]] = []
        """Those who are not active, by what they used."""
        self._starts_s: dict[str, float] = {}
        """Where the next job of those starts who came back, until one of theirs has begun."""
        self._level_s = 0.0

    @property
    def level_s(self) -> float:
        """The largest account of those whose jobs have begun, before it was charged for them."""
        return self._level_s

    def used_s(self, participant: str) -> float:
        return max(self._used_s.get(participant, 0.0), 0.0)

    def starts_s(self, participant: str) -> float:
        """Where the participant's next job starts."""
        return self._starts_s.get(participant, self.used_s(participant))

    def enter(self, participant: str) -> None:
        """A job of the participant was accepted."""
        if participant not in self._active:
            now_s = self._wake(participant, self._level_s)
            self._starts_s[participant] = max(self._level_s, now_s - FORGIVEN_S)
        self._active[participant] = self._active.get(participant, 0) + 1

    def enter_again(self, participant: str, starts_s: float | None) -> None:
        """A job of the participant was restored. It comes back from no pause: the account is as it
        was, and the next job starts there, or at `starts_s` where that was so before."""
        if participant not in self._active:
            self._wake(participant, 0.0)
            if starts_s is not None:
                self._starts_s[participant] = starts_s
        self._active[participant] = self._active.get(participant, 0) + 1

    def _wake(self, participant: str, least_s: float) -> float:
        """The participant is active; returns the account, which is not below `least_s`."""
        used_s = self._used_s.get(participant)
        if used_s is not None:
            _take(self._idle, (used_s, participant))
        now_s = self._used_s[participant] = max(used_s or 0.0, least_s)
        return now_s

    def leave(self, participant: str) -> None:
        """A job of the participant has ended."""
        left = self._active.get(participant, 0) - 1
        if left > 0:
            self._active[participant] = left
        elif left == 0:
            del self._active[participant]
            self._starts_s.pop(participant, None)
            insort(self._idle, (self._used_s[participant], participant))

    def begin(self, participant: str, expected_s: float) -> None:
        """A job begins and is paid in advance: the account before is the level."""
        self._level_s = max(self._level_s, self.used_s(participant))
        self._starts_s.pop(participant, None)
        self.charge(participant, expected_s)
        self._running[participant] = self._running.get(participant, 0) + 1

    def finish(self, participant: str, expected_s: float, used_s: float) -> None:
        """The job's advance is corrected to what it used."""
        self.charge(participant, used_s - expected_s)
        self._running[participant] -= 1
        if not self._running[participant]:
            del self._running[participant]

    def runs(self, participant: str) -> bool:
        """Whether a job of the participant runs."""
        return participant in self._running

    def charge(self, participant: str, seconds_s: float) -> None:
        """GPU seconds used, or given back where negative."""
        used_s = self._used_s.get(participant, self._level_s)
        if participant not in self._active and participant in self._used_s:
            _take(self._idle, (used_s, participant))
        self._used_s[participant] = used_s + seconds_s
        if participant not in self._active:
            insort(self._idle, (used_s + seconds_s, participant))

    def hand_over(self, participant: str, heir: str, jobs: int) -> None:
        """So many jobs of the participant, all that it has, are the heir's from now on, and so is
        its account: what each of the two had above the level counts together. What they lack to
        the level counts once, not twice: whoever waits as two is owed no more than as one."""
        if participant not in self._used_s:
            return
        both = participant, heir
        used_s = self._together_s(*map(self._account_s, both))
        starts_s = self._together_s(*(self._starts_s.get(p, self._account_s(p)) for p in both))
        active = self._active.get(heir, 0) + jobs
        left = self._active.get(participant, 0) - jobs
        for each in both:
            self._drop(each)
        if left > 0:  # a reservation, which does not follow
            self._active[participant], self._used_s[participant] = left, self._level_s
        self._used_s[heir] = used_s
        if not active:
            insort(self._idle, (used_s, heir))
            return
        self._active[heir] = active
        if starts_s < used_s:
            self._starts_s[heir] = starts_s
        running = self._running.pop(participant, 0)
        if running:
            self._running[heir] = self._running.get(heir, 0) + running

    def _account_s(self, participant: str) -> float:
        """The account with which the participant goes on: a pause is not saved up."""
        used_s = self._used_s.get(participant, self._level_s)
        return used_s if participant in self._active else max(used_s, self._level_s)

    def _together_s(self, one_s: float, other_s: float) -> float:
        return min(one_s, other_s) + max(0.0, max(one_s, other_s) - self._level_s)

    def _drop(self, participant: str) -> None:
        """Nothing is known of the participant but what runs."""
        used_s = self._used_s.pop(participant, None)
        if self._active.pop(participant, 0) == 0 and used_s is not None:
            _take(self._idle, (used_s, participant))
        self._starts_s.pop(participant, None)

    def accounts(self, advances: Iterable[tuple[str, float]]) -> Accounts:
        """All accounts, without what these participants have paid in advance for running jobs."""
        used_s = dict(self._used_s)
        for participant, paid_s in advances:
            used_s[participant] = used_s.get(participant, 0.0) - paid_s
        return Accounts(self._level_s, used_s, dict(self._starts_s))

    def restore(self, accounts: Accounts) -> None:
        """The accounts of an earlier life, for shares that nobody has used yet."""
        self._level_s = accounts.level_s
        self._used_s = dict(accounts.used_s)
        self._idle = sorted((used_s, participant) for participant, used_s in self._used_s.items())

    def forget_idle(self, most: int = 128) -> None:
        """Drops the accounts that would start at the level anyway, so many at a time."""
        for _ in range(most):
            if not self._idle or self._idle[0][0] > self._level_s:
                return
            _, participant = self._idle.pop(0)
            del self._used_s[participant]


class Tolls:
    """What loads cost those who waited for them. A load's seconds are split when it ends, and
    each pays its part as it stops waiting: so a load costs the same, however many wait."""

    def __init__(self) -> None:
        self._sums_s: dict[str, float] = {}

    def add(self, model: str, seconds_s: float, waiting: int) -> None:
        """A load of the model has ended, and so many had waited for it."""
        if waiting and seconds_s > 0:
            self._sums_s[model] = self.sum_s(model) + seconds_s / waiting

    def sum_s(self, model: str) -> float:
        """What one who had always waited for the model would have to pay."""
        return self._sums_s.get(model, 0.0)


def _take(keys: list[tuple[float, str]], key: tuple[float, str]) -> None:
    del keys[bisect_left(keys, key)]
