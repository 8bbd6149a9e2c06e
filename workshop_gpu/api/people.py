"""Who is in the room, as the instructor sees it."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

from workshop_gpu.api.identity import KernelTokens
from workshop_gpu.api.rules import name_of
from workshop_gpu.api.schemas_instructor import Participant
from workshop_gpu.conductor.effects import ReservationView, Snapshot
from workshop_gpu.conductor.states import JobState, Priority, ReservationState
from workshop_gpu.host import records
from workshop_gpu.host.runtime import Runtime


def participants(runtime: Runtime, tokens: KernelTokens) -> list[Participant]:
    """All who run a kernel, have jobs or reservations, raised a hand, or have rules of their
    own."""
    policy, now = runtime.policy, runtime.snapshot()
    waiting = Counter(job.participant for job in now.jobs if job.state is JobState.QUEUED)
    models: defaultdict[str, set[str]] = defaultdict(set)
    for job in now.jobs:
        if not job.state.ended:
            models[job.participant].add(job.model)
    running = Counter(job.participant for job in now.jobs if job.state is JobState.RUNNING)
    reserved_bytes: Counter[str] = Counter()
    for view in now.reservations:
        reserved_bytes[view.participant] += granted_bytes(view, now)
    own_bytes = own_bytes_of_kernels(runtime)
    help_texts = {call.participant.id: call.text for call in runtime.classroom.calls}
    jobs, gpu_s = _used(runtime)
    known = people(runtime, tokens).values()
    return [
        Participant(
            id=person.id,
            name=tokens.name(person.id) or person.name,
            kernel=person.kernel,
            waiting=waiting[person.id],
            running=running[person.id],
            queue_limit=policy.limits.get(person.id, policy.queue_limit),
            priority=name_of(policy.priorities.get(person.id, Priority.NORMAL)),
            notebook=person.notebook_name,
            jobs=jobs[person.id],
            gpu_s=round(gpu_s.get(person.id, 0.0), 1),
            holds=[hold.model for hold in now.holds if hold.participant == person.id],
            reserved_bytes=reserved_bytes[person.id],
            own_bytes=own_bytes[person.kernel or ""],
            models=sorted(models[person.id]),
            help=help_texts.get(person.id),
        )
        for person in sorted(known, key=lambda person: (person.name, person.id))
    ]


def people(runtime: Runtime, tokens: KernelTokens) -> dict[str, records.Participant]:
    """All of them by their ids."""
    return {person.id: person for person in _known(runtime, tokens)}


def granted_bytes(view: ReservationView, now: Snapshot) -> int:
    """What a reservation keeps from others: of a whole GPU all that it has; 0 while it waits."""
    if view.state is not ReservationState.GRANTED:
        return 0
    if view.size_bytes is not None:
        return view.size_bytes
    return sum(each.total_bytes for each in now.devices if each.device == view.device)


def own_bytes_of_kernels(runtime: Runtime) -> Counter[str]:
    """What the code of each kernel has on GPUs by itself, reserved or not."""
    own_bytes: Counter[str] = Counter()
    for processes in runtime.watches.processes.values():
        for process in processes:
            if process.kernel is not None:
                own_bytes[process.kernel] += process.bytes
    return own_bytes


def _used(runtime: Runtime) -> tuple[Counter[str], dict[str, float]]:
    """How many jobs each has that are kept, and the GPU seconds of these."""
    jobs: Counter[str] = Counter()
    gpu_s: dict[str, float] = {}
    for record in runtime.jobs:
        who = record.participant.id
        jobs[who] += 1
        batch = record.view.batch if record.view else 1
        gpu_s[who] = gpu_s.get(who, 0.0) + (record.seconds_s or 0.0) / max(1, batch)
    return jobs, gpu_s


def _known(runtime: Runtime, tokens: KernelTokens) -> Iterator[records.Participant]:
    """Whoever is known, those of whom more is known later."""
    policy = runtime.policy
    for ruled in (*policy.limits, *policy.priorities):
        yield records.Participant(ruled, ruled)
    for kernel, notebook in policy.notebooks.items():
        name = PurePosixPath(notebook).stem or f"kernel {kernel[:8]}"
        yield records.Participant(kernel, name, kernel, notebook)
    for call in runtime.classroom.calls:
        yield call.participant
    for kernel in tokens.kernels():
        yield tokens.participant(kernel)
    yield from runtime.reservations.owners()
    for record in runtime.jobs:
        yield record.participant
