"""The waiting jobs' places in the order: who enters, leaves, rises, is overtaken."""

from workshop_gpu.conductor.fairness import rank, start_times
from workshop_gpu.conductor.offering import class_of
from workshop_gpu.conductor.queue import Key
from workshop_gpu.conductor.records import NOT_IN_LINE, Job, State
from workshop_gpu.conductor.room import patience_s
from workshop_gpu.conductor.states import Priority
from workshop_gpu.conductor.timers import Timers

MOST_MARKED = 32
"""Of the jobs that are overtaken at once, so many of each model are marked; those behind them
are when they come to the front."""

_MOST_DUE = 32
_MOST_RISING = 32
"""Where the time of many has come at once, the rest follow with later events."""

_TICK_S = 1.0
"""Time is told about so often: a job falls due with the last time before its patience is over, not
with the first one after it."""

_SLACK_S = 0.1
"""A start time that is wrong by less is left as it is: corrections are mostly tiny."""


class Ordering:
    """Changes the order. Start times are kept in step with the accounts here."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._in_line = 0

    def add(self, job: Job, now: float, cost_s: float | None = None) -> None:
        """The job waits from now on. `cost_s` is what was expected of it, if it waited before."""
        state = self._state
        self._count_rank(job, now)
        job.cost_s = state.cost_s(job) if cost_s is None else cost_s
        job.toll_s = state.tolls.sum_s(job.model)
        state.queue.add(job)
        state.touched_jobs[job.id] = None
        self.pay(job.participant)

    def remove(self, job: Job) -> None:
        """The job waits no longer, and pays for the loads that were made meanwhile."""
        state = self._state
        state.queue.remove(job)
        state.shares.charge(job.participant, state.tolls.sum_s(job.model) - job.toll_s)
        state.touched_jobs[job.id] = None

    def pay(self, participant: str) -> None:
        """The participant's account or jobs changed: its jobs start accordingly. The first of them
        is in line from now on, if it was not."""
        state = self._state
        shares, jobs = state.shares, state.queue.of_participant(participant)
        free = not shares.runs(participant)
        for job, start_s in start_times(jobs, shares.starts_s(participant)):
            steps_up = free and job.in_line == NOT_IN_LINE
            free = False
            if steps_up or abs(job.start_s - start_s) > _SLACK_S:
                before, job.start_s = job.key, start_s
                if steps_up:
                    job.in_line = self.next_in_line()
                state.queue.move(job, before)

    def reclass(self, job: Job, priority: Priority, now: float) -> None:
        """The waiting job belongs to another class from now on."""
        before, job.priority = job.key, priority
        self._count_rank(job, now)
        self._state.queue.move(job, before)
        self._state.touched_jobs[job.id] = None
        self.pay(job.participant)

    def reclass_all(self, participant: str, now: float) -> None:
        """What the participant waits for belongs to the class that the policy gives it."""
        state = self._state
        for job in state.queue.of_participant(participant):
            priority = class_of(state.policy, participant, job.request.priority)
            if priority is not job.priority:
                self.reclass(job, priority, now)
        for reservation in state.reservations.values():
            if reservation.participant == participant:
                reservation.priority = class_of(state.policy, participant, Priority.NORMAL)

    def next_in_line(self) -> int:
        """The number of the next who steps into line."""
        self._in_line += 1
        return self._in_line

    def overtake(self, model: str, key: Key, now: float) -> None:
        """A job begins while those of this model that are before `key` wait. The last of them
        shall not wait longer for its turn than the first: so the time that those before it take
        is part of its patience."""
        ahead_s, most_s = 0.0, patience_s(self._state, model)
        for job in self._state.queue.before(model, key, MOST_MARKED):
            if job.overtaken_s is None:
                job.overtaken_s = now
                self._falls_due(job, now, most_s - ahead_s)
            ahead_s += job.cost_s

    def patience_changed(self) -> None:
        """Those who are overtaken already have as much patience as the others from now on."""
        state = self._state
        ahead_s: dict[str, float] = {}
        state.dues = Timers()
        for job in state.queue:
            before_s = ahead_s.get(job.model, 0.0)
            ahead_s[job.model] = before_s + job.cost_s
            if job.overtaken_s is not None:
                left_s = patience_s(state, job.model) - before_s
                self._falls_due(job, job.overtaken_s, left_s)

    def _falls_due(self, job: Job, since_s: float, patience_s: float) -> None:
        due_s = since_s + max(0.0, patience_s - _TICK_S)
        self._state.dues.set(due_s, job.sequence, job.id)

    def time_passed(self, now: float) -> None:
        """Jobs rise and fall due."""
        queue = self._state.queue
        for name in self._state.dues.ringing(now, _MOST_DUE):
            job = queue.get(name)
            if job is not None and job.overtaken_s is not None:
                queue.fall_due(job)
        for name in self._state.rises.ringing(now, _MOST_RISING):
            job = queue.get(name)
            if job is not None:
                before, risen_from = job.key, (job.rank, job.sequence)
                self._count_rank(job, now)
                queue.move(job, before)
                if self._passes_own(job, risen_from):
                    self.pay(job.participant)

    def _passes_own(self, job: Job, risen_from: tuple[int, int]) -> bool:
        """Whether the job, whose class and number were these, is before another of its participant
        now that was before it. Mostly those rise first that came first."""
        risen_to = job.rank, job.sequence
        own = self._state.queue.of_participant(job.participant)
        return any(risen_to < (each.rank, each.sequence) < risen_from for each in own)

    def _count_rank(self, job: Job, now: float) -> None:
        rise_s = self._state.settings.rise_s
        waited_s = max(0.0, now - job.submitted_s)
        job.rank = rank(job.priority, waited_s, rise_s)
        if rise_s > 0 and job.rank > 0:
            rises_s = job.submitted_s + (int(waited_s / rise_s) + 1) * rise_s
            self._state.rises.set(rises_s, job.sequence, job.id)
