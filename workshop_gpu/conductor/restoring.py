"""What an earlier life of the server had accepted comes back: its jobs, and everybody's account.

The order is that in which the jobs waited: the accounts are as they were, each job starts where
its participant's account and the jobs before it put it, and those that ran go before the shares
of their class, as those do that a worker's death put back.
"""

from collections.abc import Callable

from workshop_gpu.conductor.changes import Changes
from workshop_gpu.conductor.events import JobsRestored, ModelFacts, RestoredJob
from workshop_gpu.conductor.fairness import Reason
from workshop_gpu.conductor.offering import class_of
from workshop_gpu.conductor.records import Job, Model, State


def restore(
    state: State, changes: Changes, event: JobsRestored, number: Callable[[], int], now: float
) -> None:
    """Nothing is checked but that no job comes twice: what was accepted once is never refused.
    A job that can never run any more fails with the reason, as it would have while it waited.
    `number` gives the next job's."""
    accounts = event.accounts
    state.shares.restore(accounts)
    for restored in event.jobs:
        request = restored.request
        if state.job(request.job) is not None:
            continue
        # Of a model that has left the catalogue there is none; it is forgotten with its last job.
        state.models.setdefault(request.model, Model(ModelFacts(request.model), listed=False))
        state.suspects[request.model] = None
        state.shares.enter_again(request.participant, accounts.starts_s.get(request.participant))
        job = _job(state, restored, number(), now)
        changes.ordering.add(job, now, accounts.costs_s.get(job.id))
        if state.settings.wait_limit_s:
            state.waiting_times.begin(job.id, now)


def _job(state: State, restored: RestoredJob, sequence: int, now: float) -> Job:
    request = restored.request
    job = Job(request, sequence, now - restored.waited_s)
    job.priority = class_of(state.policy, request.participant, request.priority)
    if restored.ran:
        job.reason = Reason.PUT_BACK
    job.server_deaths = restored.deaths
    return job
