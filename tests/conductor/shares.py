"""Who has had less goes first: an account of its own, in GPU seconds.

Each participant pays for the seconds from a job's start to its end (in a batch for an equal part),
and for an equal part of each load that a waiting job of theirs has waited for, as that job stops
waiting. A run that came to nothing costs nothing. Who asks again after a pause does not start
below the level, which is the largest account of those who began, before the job that they began
with; nor do up to `FORGIVEN_S` above it count for the first of their jobs.

Of two participants of whom nothing is drawn at the moment, the one whose account is smaller must
stand before the other in a class that both wait in. Nobody gets anything out of this order but by
overtaking, and for how long at most is seen in `overtaking.py`. How far two accounts drift apart
through that is counted in `drift.py`.

What is not counted here: while something of theirs is drawn, people stand where they will be when
it has ended, as is expected, and of expectations nothing is known outside. So the level is not
known any more from when somebody begins a job beside one of their own, in a batch or on a second
GPU, or takes another's place; and nothing is said from then on (`exact`). Nor is anything said of
who ever asked for a reservation, which keeps them from being away, or lost a job as its worker
ended or memory ran out; nor of anybody once these have begun something.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from tests.conductor.outside import Outside
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.effects import Effect, JobView
from workshop_gpu.conductor.settings import Settings
from workshop_gpu.conductor.states import JobState

FORGIVEN_S = 30.0
_MAYBE_IN_VAIN = (events.WorkerDied, events.DeviceGone, events.DeviceReady, events.JobFailed)
SLACK_S = 0.25
"""Places are not changed for less than a tenth of a second, in each of two accounts."""


@dataclass
class Run:
    """A job that is drawn, or was; `used_s` is what it cost, once that is known."""

    participant: str
    since_s: float
    together: int
    used_s: float = 0.0


@dataclass
class Shares:
    """Takes each event with what follows from it, before `out` takes the effects."""

    out: Outside
    tally: Counter[str]
    exact: bool = True
    level_s: float = 0.0
    numbers: dict[str, int] = field(default_factory=dict)
    """In which order jobs came."""
    used_s: dict[str, float] = field(default_factory=dict)
    starts_s: dict[str, float] = field(default_factory=dict)
    """Where those start who came back, until they begin something."""
    active: dict[str, set[str]] = field(default_factory=dict)
    """Each participant's jobs that have not ended."""
    vague: set[str] = field(default_factory=set)
    """Those whose accounts are not known."""
    drawn: dict[str, Run] = field(default_factory=dict)
    written: dict[str, Run] = field(default_factory=dict)
    put_back: set[str] = field(default_factory=set)
    tolls_s: dict[str, float] = field(default_factory=dict)
    """What loads cost one who always waited for the model."""
    toll_s: dict[str, float] = field(default_factory=dict)
    """The same when each waiting job came."""

    def take(self, event: events.Event, new: Sequence[Effect], now: float) -> None:
        after = {each.job.job: each.job for each in new if isinstance(each, effects.AnnounceJob)}
        match event:
            case events.JobSubmitted(job, participant, model=model):
                self.numbers[job] = len(self.numbers)
                self._comes(job, participant)
                self._waits(job, model)
            case events.ReservationAsked(_, participant):
                self.vague.add(participant)
            case events.ParticipantReplaced(participant, heir) if participant != heir:
                self._hands_over(participant, heir)
            case events.SlotLoaded(_, model, seconds_s=seconds_s):
                waiting = [job for job in self.toll_s if self.out.accepted[job].model == model]
                if waiting:
                    so_far_s = self.tolls_s.get(model, 0.0)
                    self.tolls_s[model] = so_far_s + seconds_s / len(waiting)
            case events.JobStarted(job) if job in self.drawn:
                self.drawn[job].since_s = now
            case events.JobDrawn(job) if job in self.drawn:
                self.written[job] = self._ends(job, now)
            case _:
                pass
        for job, view in after.items():
            at_work = job in self.drawn or job in self.written
            if at_work and view.state is not JobState.RUNNING:
                self._leaves(job, view, now, event)
            if view.state.ended:
                self._is_over(job, view)
        for effect in new:
            if isinstance(effect, effects.RunJob):
                self._begins((effect.job, *effect.others), now)

    def _comes(self, wish: str, participant: str) -> None:
        if not self.active.get(participant):
            used_s = max(self.used_s.get(participant, 0.0), self.level_s)
            self.used_s[participant] = used_s
            self.starts_s[participant] = max(self.level_s, used_s - FORGIVEN_S)
        self.active.setdefault(participant, set()).add(wish)

    def _hands_over(self, participant: str, heir: str) -> None:
        """What the two have together nobody knows outside."""
        self.exact = False
        for run in (*self.drawn.values(), *self.written.values()):
            run.participant = heir if run.participant == participant else run.participant
        self.active.setdefault(heir, set()).update(self.active.pop(participant, ()))
        self.used_s.setdefault(heir, 0.0)

    def _waits(self, job: str, model: str) -> None:
        self.toll_s[job] = self.tolls_s.get(model, 0.0)

    def _pays_tolls(self, job: str) -> None:
        request = self.out.accepted[job]
        toll_s = self.tolls_s.get(request.model, 0.0) - self.toll_s.pop(job)
        self.used_s[request.participant] += toll_s

    def _begins(self, jobs: Sequence[str], now: float) -> None:
        for job in jobs:
            if job in self.drawn or job in self.written:
                self._goes_back(job)
            self._pays_tolls(job)
        for job in jobs:
            who = self.out.accepted[job].participant
            if who in self.vague or any(run.participant == who for run in self.drawn.values()):
                self.exact = False
            self.level_s = max(self.level_s, self.used_s[who])
            self.starts_s.pop(who, None)
            self.drawn[job] = Run(who, now, len(jobs))
            self.put_back.discard(job)

    def _ends(self, job: str, now: float) -> Run:
        run = self.drawn.pop(job)
        run.used_s = (now - run.since_s) / run.together
        self.used_s[run.participant] += run.used_s
        return run

    def _leaves(self, job: str, view: JobView, now: float, event: events.Event) -> None:
        """It is drawn or written no longer. Of one that fails as its worker ends, or as memory runs
        out, it is not known whether it had come to wait again before, at no cost."""
        if view.state.ended and isinstance(event, _MAYBE_IN_VAIN):
            self.vague.add(view.participant)
        if not view.state.ended:
            self._goes_back(job)
        elif self.written.pop(job, None) is None:
            self._ends(job, now)

    def _goes_back(self, job: str) -> None:
        run = self.written.pop(job, None) or self.drawn.pop(job)
        self.used_s[run.participant] -= run.used_s
        self.put_back.add(job)
        self._waits(job, self.out.accepted[job].model)

    def _is_over(self, job: str, view: JobView) -> None:
        if job in self.toll_s:
            self._pays_tolls(job)
        self.put_back.discard(job)
        self._goes(job, view.participant)

    def _goes(self, wish: str, participant: str) -> None:
        self.active[participant].discard(wish)
        if not self.active[participant]:
            self.starts_s.pop(participant, None)

    # looking

    def check(self, seen: effects.Snapshot, now: float) -> None:
        """Fails where somebody who had less stands behind one who had more."""
        if not self.exact:
            return
        for pair in combinations(self._firsts(seen, now), 2):
            (priority, start_s, view), (other, other_s, behind) = sorted(pair, key=_place)
            if priority == other and start_s + SLACK_S < other_s:
                self.tally["shares"] += 1
                assert view.position < behind.position, (
                    f"{view.participant} had {start_s} s, {behind.participant} {other_s} s"
                )

    def _firsts(self, seen: effects.Snapshot, now: float) -> Iterator[tuple[int, float, JobView]]:
        """Of those of whom nothing is drawn: class, account, and first job. Nothing is known of
        who has waited for so long that jobs rise into another class, many at once one by one."""
        unknown = self.vague | {run.participant for run in self.drawn.values()}
        firsts: dict[str, tuple[int, int, JobView]] = {}
        for view in seen.jobs:
            if view.state is not JobState.QUEUED or view.job in self.put_back:
                continue
            if now - view.submitted_s >= Settings().rise_s:
                unknown.add(view.participant)
            place = view.priority, self.numbers[view.job], view
            firsts[view.participant] = min(firsts.get(view.participant, place), place, key=_place)
        for who in firsts.keys() - unknown:
            priority, _, view = firsts[who]
            yield priority, self.starts_s.get(who, max(0.0, self.used_s[who])), view


def _place(first: tuple[int, float, JobView]) -> tuple[int, float]:
    return first[:2]
