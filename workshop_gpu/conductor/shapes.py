"""Which of a model's waiting jobs are tried where the first of them has no room.

Jobs of one shape have room in the same places, so one of each is enough. However many wait, only
the front of their line is walked; those behind it are found by their shapes, which are few.
"""

from heapq import nsmallest

from workshop_gpu.conductor.queue import Queue, Shape, shape_of
from workshop_gpu.conductor.records import Job

_FRONT = 32
_MOST_TRIED = 8
"""So many shapes are tried from the front, and so many of the smallest: where these have no room,
nobody has."""


def others(queue: Queue[Job], model: str) -> list[Job]:
    """One job of each other shape than the first's that is worth trying."""
    front: dict[Shape, Job] = {}
    for job in queue.of_model(model, _FRONT):
        front.setdefault(shape_of(job), job)
    rest = list(front.items())[1:]
    tried, left = rest[:_MOST_TRIED], dict(rest[_MOST_TRIED:])
    if queue.waiting(model) > _FRONT:
        for job in queue.one_of_each_size(model):
            shape = shape_of(job)
            if shape not in front:
                left[shape] = job
    tried += nsmallest(_MOST_TRIED, left.items(), key=lambda each: each[0][:2])
    return [job for _, job in tried]


def first_like(queue: Queue[Job], job: Job) -> Job:
    """The first of its shape in the order: what is behind the front was found by who came first."""
    if job is queue.first_of(job.model):
        return job
    shape = shape_of(job)
    for most in (_FRONT, None):
        for each in queue.of_model(job.model, most):
            if shape_of(each) == shape:
                return each
    return job
