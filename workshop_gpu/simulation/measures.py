"""What came of a room, in the numbers that people feel."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec


class Measures(msgspec.Struct, frozen=True):
    """One policy in one room.

    `wait_*`: seconds from the submission of a job until it begins, of all jobs.
    `jain`: Jain's index of the GPU seconds that people's jobs ran, 1 where all got the same, 1/n
    where one got all: among those who always have a job waiting, or among all where nobody does.
    `swaps_per_hour`: loads. `overtaken_max_s`: the longest time for which a job was overtaken: in
    which jobs of others ran that had begun before it though they were behind it in the policy's
    own order, until it began itself. Who is ahead by its share overtakes nobody.
    """

    images_per_hour: float
    wait_p50_s: float
    wait_p95_s: float
    wait_max_s: float
    jain: float
    swaps_per_hour: float
    overtaken_max_s: float


@dataclass(slots=True)
class _Job:
    participant: str
    model: str
    submitted_s: float
    overtaken_s: float = 0.0
    overtaken_until_s: float = 0.0


@dataclass(slots=True)
class Record:
    """Takes down what happens until the room closes at `closes_s`; waits are followed to their
    end."""

    closes_s: float
    loads: int = 0
    images: int = 0
    overtaken_max_s: float = 0.0
    waits_s: list[float] = field(default_factory=list)
    gpu_s: dict[str, float] = field(default_factory=dict)
    """GPU seconds that each participant's jobs ran."""
    load_s: dict[str, float] = field(default_factory=dict)
    """Each participant's part of the seconds of the loads that its jobs waited for."""
    _waiting: dict[str, _Job] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """Whether any job waits."""
        return bool(self._waiting)

    def submitted(self, job: str, participant: str, model: str, now: float) -> None:
        self._waiting[job] = _Job(participant, model, now)

    def load_began(self, now: float) -> None:
        self.loads += now <= self.closes_s

    def loaded(self, model: str, seconds_s: float) -> None:
        """A load ended: those who waited for it share its seconds."""
        waiting = [job.participant for job in self._waiting.values() if job.model == model]
        for participant in waiting:
            before_s = self.load_s.get(participant, 0.0)
            self.load_s[participant] = before_s + seconds_s / len(waiting)

    def began(
        self, jobs: Sequence[str], order: Sequence[str], seconds_s: float, now: float
    ) -> None:
        """Jobs begin together; `order` was the order of the waiting ones just before."""
        begin = {self._waiting[job].participant for job in jobs}
        for job in jobs:
            self._begin(job, seconds_s / len(jobs), now)
        for name in order:
            if name == jobs[0]:
                return
            ahead = self._waiting.get(name)
            if ahead is None or ahead.participant in begin:
                continue  # nobody is overtaken by a job of their own
            since_s = max(now, ahead.overtaken_until_s)  # others may overtake it already
            ahead.overtaken_until_s = max(now + seconds_s, since_s)
            ahead.overtaken_s += ahead.overtaken_until_s - since_s

    def _begin(self, name: str, seconds_s: float, now: float) -> None:
        job = self._waiting.pop(name)
        self.waits_s.append(now - job.submitted_s)
        overtaken_s = job.overtaken_s - max(0.0, job.overtaken_until_s - now)
        self.overtaken_max_s = max(self.overtaken_max_s, overtaken_s)
        until_s = min(now + seconds_s, self.closes_s)
        used_s = self.gpu_s.get(job.participant, 0.0)
        self.gpu_s[job.participant] = used_s + max(0.0, until_s - now)

    def ended(self, now: float) -> None:
        self.images += now <= self.closes_s

    def measures(self, among: Sequence[str]) -> Measures:
        """The numbers; shares are compared among these participants."""
        hours = self.closes_s / 3600
        return Measures(
            images_per_hour=round(self.images / hours, 1),
            wait_p50_s=round(percentile(self.waits_s, 0.5), 2),
            wait_p95_s=round(percentile(self.waits_s, 0.95), 2),
            wait_max_s=round(max(self.waits_s, default=0.0), 2),
            jain=round(jain([self.gpu_s.get(name, 0.0) for name in among]), 4),
            swaps_per_hour=round(self.loads / hours, 1),
            overtaken_max_s=round(self.overtaken_max_s, 2),
        )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of all does not exceed; 0 where there is none."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index, (sum of x)² / (n · sum of x²); 1 where nobody got anything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
