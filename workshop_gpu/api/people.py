"""Who is in the room, as the instructor sees it."""

from collections.abc import Iterator

from workshop_gpu.api.identity import KernelTokens
from workshop_gpu.api.rules import name_of
from workshop_gpu.api.schemas_instructor import Participant
from workshop_gpu.conductor.states import JobState, Priority
from workshop_gpu.host import records
from workshop_gpu.host.runtime import Runtime


def participants(runtime: Runtime, tokens: KernelTokens) -> list[Participant]:
    """All who run a kernel, have jobs or reservations, or rules of their own."""
    policy = runtime.policy
    jobs = runtime.snapshot().jobs
    waiting = [job.participant for job in jobs if job.state is JobState.QUEUED]
    running = [job.participant for job in jobs if job.state is JobState.RUNNING]
    known = {person.id: person for person in _known(runtime, tokens)}
    return [
        Participant(
            id=person.id,
            name=tokens.name(person.id) or person.name,
            kernel=person.kernel,
            waiting=waiting.count(person.id),
            running=running.count(person.id),
            queue_limit=policy.limits.get(person.id, policy.queue_limit),
            priority=name_of(policy.priorities.get(person.id, Priority.NORMAL)),
        )
        for person in sorted(known.values(), key=lambda person: (person.name, person.id))
    ]


def _known(runtime: Runtime, tokens: KernelTokens) -> Iterator[records.Participant]:
    """Whoever is known, those of whom more is known later."""
    for ruled in (*runtime.policy.limits, *runtime.policy.priorities):
        yield records.Participant(ruled, ruled)
    for kernel in tokens.kernels():
        yield records.Participant(kernel, tokens.name(kernel) or f"kernel {kernel[:8]}", kernel)
    yield from runtime.reservations.owners()
    for record in runtime.jobs:
        yield record.participant
