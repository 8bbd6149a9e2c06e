"""Which of a model's waiting jobs are tried where the first of them has no room.

Jobs of one shape have room in the same places, so one of each is enough. However many wait, only
the front of their line is walked; those behind it are found by their sizes, of which there are few.
"""

from heapq import nsmallest

from workshop_gpu.conductor.planner import Step
from workshop_gpu.conductor.queue import Queue
from workshop_gpu.conductor.records import Job

_FRONT = 32
_MOST_TRIED = 8
"""So many shapes are tried from the front, and so many of the smallest: where these have no room,
nobody has."""

_Shape = tuple[int, int, str, str, tuple[Step, ...]]


def _shape(job: Job) -> _Shape:
    """What it depends on whether there is room: first of all pixels × batch."""
    request = job.request
    units = request.pixels * request.batch
    return units, request.beside_bytes, request.placement, request.manner, job.steps


def others(queue: Queue[Job], model: str) -> list[Job]:
    """One job of each other shape than the first's that is worth trying."""
    front: dict[_Shape, Job] = {}
    for job in queue.of_model(model, _FRONT):
        front.setdefault(_shape(job), job)
    rest = list(front.items())[1:]
    tried, left = rest[:_MOST_TRIED], dict(rest[_MOST_TRIED:])
    if queue.waiting(model) > _FRONT:
        for job in queue.one_of_each_size(model):
            shape = _shape(job)
            if shape not in front:
                left[shape] = job
    tried += nsmallest(_MOST_TRIED, left.items(), key=lambda each: each[0][:2])
    return [job for _, job in tried]


def first_like(queue: Queue[Job], job: Job) -> Job:
    """The first of its shape in the order: what is behind the front was found by who came first."""
    if job is queue.first_of(job.model):
        return job
    shape = _shape(job)
    for most in (_FRONT, None):
        for each in queue.of_model(job.model, most):
            if _shape(each) == shape:
                return each
    return job
