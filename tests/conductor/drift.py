"""How far shares drift apart: no more than patience, a load and two jobs.

Of two participants the one may have had so many GPU seconds more than the other, who always waits:
patience, during which others may overtake; a load, or whatever a transfer lane does until it rests;
and two jobs, because nothing is taken away from one that is drawn. The longest of each that was
seen meanwhile counts, and the accounts are those of `shares.py`.

This is so for stretches of time, and what they were apart as one began is added to the bound. One
ends when something from outside keeps the other out or lets the one go first: in all that
`overtaking.py` and `shares.py` say nothing of, and when the catalogue or the policy changes, a
worker dies, memory runs out, somebody takes another's place, or the two wait in different classes;
nor does it begin before who came back after a pause has begun something.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.conductor.outside import Outside
from tests.conductor.overtaking import KEPT_OUT, Overtaking
from tests.conductor.shares import SLACK_S, Shares
from workshop_gpu.conductor import events
from workshop_gpu.conductor.effects import Effect, JobView
from workshop_gpu.conductor.settings import Settings
from workshop_gpu.conductor.states import JobState

_FROM_OUTSIDE = (
    events.CatalogueChanged,
    events.DeviceGone,
    events.DeviceReady,
    events.JobFailed,
    events.JobStopped,
    events.LoadFailed,
    events.ParticipantReplaced,
    events.PolicyChanged,
    events.WorkerDied,
)


@dataclass
class Stretch:
    """For how long, and how far apart, two participants went by their shares."""

    apart_s: float
    """What the first had had more when it began."""
    lane_s: float = 0.0
    """The longest that a transfer lane worked without a rest."""
    job_s: float = 0.0
    """The longest that something was drawn."""


@dataclass
class Drift:
    """Takes each event after the other accounts, and after `out` took the effects."""

    out: Outside
    overtaking: Overtaking
    shares: Shares
    tally: Counter[str]
    stretches: dict[tuple[str, str], Stretch] = field(default_factory=dict)
    """Of one who may have had more, and one who waits."""
    strangers: set[str] = field(default_factory=set)
    """Who took another's place, or gave theirs away."""
    lanes_s: dict[str, float] = field(default_factory=dict)
    """Since when transfer lanes work without a rest."""

    def take(self, event: events.Event, new: Sequence[Effect], now: float) -> None:
        if isinstance(event, events.ParticipantReplaced):
            self.strangers |= {event.participant, event.heir}
        if isinstance(event, _FROM_OUTSIDE):
            self.stretches.clear()
        judged = set(self._judged(now))
        for pair in self.stretches.keys() - judged:
            del self.stretches[pair]
        lane_s, job_s = self._lane_s(now), self._job_s(now)
        for one, other in judged:
            more_s = self._had_s(one, now) - self._had_s(other, now)
            each = self.stretches.setdefault((one, other), Stretch(max(0.0, more_s)))
            each.lane_s, each.job_s = max(each.lane_s, lane_s), max(each.job_s, job_s)
            bound_s = self.out.policy.patience_s + each.lane_s + 2 * each.job_s
            self.tally["drift"] += more_s - each.apart_s > bound_s / 2
            assert more_s <= each.apart_s + bound_s + SLACK_S, (
                f"{one} had {more_s:.1f} s more than {other}, {bound_s:.1f} s beyond {each} may be"
            )

    def _lane_s(self, now: float) -> float:
        lane_s = max((now - since_s for since_s in self.lanes_s.values()), default=0.0)
        at_work = {name for name, worker in self.out.workers.items() if worker.transfer}
        self.lanes_s = {name: self.lanes_s.get(name, now) for name in at_work}
        return lane_s

    def _job_s(self, now: float) -> float:
        drawn = [now - run.since_s for run in self.shares.drawn.values()]
        return max(
            drawn + [run.used_s * run.together for run in self.shares.written.values()], default=0.0
        )

    def _judged(self, now: float) -> Iterator[tuple[str, str]]:
        waiting: dict[str, list[JobView]] = {}
        for view in self.out.announced.values():
            if view.state is JobState.QUEUED:
                waiting.setdefault(view.participant, []).append(view)
        for other, jobs in waiting.items():
            first = min(jobs, key=lambda view: view.position)
            if self._is_known(other) and self._could_be_drawn(first, now):
                for one in self.shares.active.keys() - {other}:
                    if self._is_known(one) and self._goes_by_shares(one, first, now):
                        yield one, other

    def _is_known(self, who: str) -> bool:
        return who not in self.strangers and who not in self.shares.vague

    def _could_be_drawn(self, view: JobView, now: float) -> bool:
        account, devices = self.overtaking, self.overtaking.devices
        return (
            not self.out.policy.paused
            and view.waiting_for not in KEPT_OUT
            and view.job not in self.shares.put_back
            and now - view.submitted_s < Settings().rise_s
            and bool(self.out.workers)
            and account.is_ordinary(view)
            and all(account.has_room(name, view.model, devices) for name in self.out.workers)
        )

    def _goes_by_shares(self, one: str, first: JobView, now: float) -> bool:
        views = [view for view in self.out.announced.values() if view.participant == one]
        return (
            one not in self.shares.starts_s
            and all(view.priority == first.priority for view in views)
            and all(now - view.submitted_s < Settings().rise_s for view in views)
            and not any(view.job in self.shares.put_back for view in views)
        )

    def _had_s(self, who: str, now: float) -> float:
        runs = [run for run in self.shares.drawn.values() if run.participant == who]
        drawn_s = sum((now - run.since_s) / run.together for run in runs)
        return self.shares.used_s[who] + drawn_s
