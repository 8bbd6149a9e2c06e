"""The waiting jobs in their order, found by id, model, group, participant or kernel.

The order is kept, not made: each job has a key, and sorted lists of keys are changed at one place
when a job comes, goes or gets another key. So a change costs a search in the list (and a shift of
pointers in memory), whoever else waits, and a job's position is known by a search as well.
`fairness.py` says which key a job has.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from typing import Generic, Protocol, TypeVar

from workshop_gpu.conductor.events import JobSubmitted
from workshop_gpu.conductor.planner import Step

Key = tuple[int, int, float, int, int]
"""Class, reason (see `fairness.Reason`), seconds of the share, since when in line, and a number
that no other job has. The smallest goes first."""


BEGIN: Key = (-1, 0, 0.0, 0, 0)
END: Key = (1 << 60, 0, 0.0, 0, 0)
"""Places before and behind those of all jobs."""


Shape = tuple[int, int, str, str, tuple[Step, ...]]
"""On which it depends whether a job of a model can run at all: pixels × batch, what comes beside
it, the rung and the manner that it names, and where memory ran out for it."""


class Queued(Protocol):
    """What the queue needs to know of a job."""

    @property
    def request(self) -> JobSubmitted: ...
    @property
    def key(self) -> Key: ...
    @property
    def cost_s(self) -> float: ...
    @property
    def steps(self) -> tuple[Step, ...]: ...

    due: bool


J = TypeVar("J", bound=Queued)


class Line(Generic[J]):
    """Some waiting jobs in the order of their keys."""

    __slots__ = ("_jobs", "_keys", "work_s")

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._jobs: dict[int, J] = {}
        """By the number that no other has, which a job keeps."""
        self.work_s = 0.0
        """GPU seconds that all of them together are expected to use."""

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[J]:
        return (self._jobs[key[-1]] for key in self._keys)

    def part(self, begin: int, end: int) -> list[J]:
        """Those from one place to another (counted from 0)."""
        return [self._jobs[key[-1]] for key in self._keys[begin:end]]

    @property
    def first(self) -> J:
        return self._jobs[self._keys[0][-1]]

    @property
    def last(self) -> J:
        return self._jobs[self._keys[-1][-1]]

    @property
    def first_key(self) -> Key:
        return self._keys[0]

    def place(self, key: Key) -> int:
        """How many stand before the key."""
        return bisect_left(self._keys, key)

    def add(self, job: J) -> None:
        key = job.key
        insort(self._keys, key)
        self._jobs[key[-1]] = job
        self.work_s += job.cost_s

    def remove(self, job: J) -> None:
        key = job.key
        del self._keys[bisect_left(self._keys, key)]
        del self._jobs[key[-1]]
        self.work_s = self.work_s - job.cost_s if self._keys else 0.0

    def move(self, before: Key, key: Key) -> None:
        """The job that stood at the one place stands at the other now."""
        keys = self._keys
        del keys[bisect_left(keys, before)]
        insort(keys, key)


class Queue(Generic[J]):
    """All waiting jobs. Whoever changes the key of one says so with `move`, and who asked for it
    with `give`; nothing else of them changes."""

    def __init__(self) -> None:
        self._jobs: dict[str, J] = {}
        self.line: Line[J] = Line()
        """All of them, in their order."""
        self._models: dict[str, Line[J]] = {}
        self._first_keys: dict[str, Key] = {}
        """The place of the first of each of these."""
        self._due: dict[str, Line[J]] = {}
        """By model, those that were overtaken for as long as they may be."""
        self._groups: dict[tuple[str, str], Line[J]] = {}
        self._sizes: dict[str, dict[Shape, dict[str, J]]] = {}
        self._participants: dict[str, dict[str, J]] = {}
        self._kernels: dict[str, dict[str, J]] = {}

    def __iter__(self) -> Iterator[J]:
        """All of them, in their order."""
        return iter(self.line)

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: str) -> bool:
        return job in self._jobs

    def get(self, job: str) -> J | None:
        return self._jobs.get(job)

    def position(self, job: J) -> int:
        """Its place in the order, from 1."""
        return self.line.place(job.key) + 1

    # by model

    def models(self) -> list[str]:
        """The models for which jobs wait, in the order of the first of each."""
        return sorted(self._first_keys, key=self._first_keys.__getitem__)

    def awaits(self, model: str) -> bool:
        """Whether any job waits for the model."""
        return model in self._models

    def first(self, model: str) -> J | None:
        """The first in the order that waits for the model."""
        line = self._models.get(model)
        return None if line is None else line.first

    def first_key(self, model: str) -> Key | None:
        """The place of the first that waits for the model."""
        return self._first_keys.get(model)

    def first_of(self, model: str) -> J:
        """As `first`, where somebody waits for the model."""
        return self._models[model].first

    def waiting(self, model: str) -> int:
        """How many wait for the model."""
        line = self._models.get(model)
        return 0 if line is None else len(line)

    def work_s(self, model: str) -> float:
        """GPU seconds that those who wait for the model are expected to use."""
        line = self._models.get(model)
        return 0.0 if line is None else line.work_s

    def of_model(self, model: str, most: int | None = None) -> list[J]:
        """Those that wait for the model, in their order; at most so many from the front."""
        line = self._models.get(model)
        return [] if line is None else line.part(0, len(line) if most is None else most)

    def before(self, model: str, key: Key, most: int) -> list[J]:
        """Those that wait for the model and stand before the key; at most so many."""
        line = self._models.get(model)
        return [] if line is None else line.part(0, min(most, line.place(key)))

    def due_models(self) -> Collection[str]:
        """Models for which jobs wait that were overtaken for as long as they may be."""
        return self._due.keys()

    def due_of(self, model: str) -> int:
        """How many of these wait for the model."""
        line = self._due.get(model)
        return 0 if line is None else len(line)

    def first_due_key(self, model: str) -> Key | None:
        """The place of the first of these."""
        line = self._due.get(model)
        return None if line is None else line.first_key

    def one_of_each_size(self, model: str) -> list[J]:
        """The first that came of each size."""
        return [next(iter(jobs.values())) for jobs in self._sizes.get(model, {}).values()]

    def of_size(self, job: J) -> list[J]:
        """All that wait for the same model and are of the same size as this one."""
        return list(self._sizes[job.request.model][shape_of(job)].values())

    def of_group(self, model: str, group: str, most: int) -> list[J]:
        """Those that may be drawn together, in their order; at most so many from the front."""
        line = self._groups.get((model, group)) if group else None
        return [] if line is None else line.part(0, most)

    # by those who asked

    def of_participant(self, participant: str) -> list[J]:
        """Those of the participant, in the order in which they became its own."""
        return list(self._participants.get(participant, {}).values())

    def waiting_of(self, participant: str) -> int:
        """How many of the participant's jobs wait."""
        return len(self._participants.get(participant, ()))

    def of_kernel(self, kernel: str) -> list[J]:
        return list(self._kernels.get(kernel, {}).values())

    # changes

    def add(self, job: J) -> None:
        request = job.request
        self._jobs[request.job] = job
        self.line.add(job)
        self._models.setdefault(request.model, Line()).add(job)
        self._note_first(request.model)
        if request.group:
            self._groups.setdefault((request.model, request.group), Line()).add(job)
        sizes = self._sizes.setdefault(request.model, {})
        sizes.setdefault(shape_of(job), {})[request.job] = job
        self._note_askers(job)

    def remove(self, job: J) -> None:
        request = job.request
        del self._jobs[request.job]
        self.line.remove(job)
        _take(self._models, request.model, job)
        self._note_first(request.model)
        if request.group:
            _take(self._groups, (request.model, request.group), job)
        if job.due:
            _take(self._due, request.model, job)
            job.due = False
        self._forget_size(job)
        self._forget_askers(request)

    def fall_due(self, job: J) -> None:
        """The job was overtaken for as long as it may be."""
        if not job.due:
            job.due = True
            self._due.setdefault(job.request.model, Line()).add(job)

    def move(self, job: J, before: Key) -> None:
        """The job has another key than before: it goes to its new place."""
        request, key = job.request, job.key
        self.line.move(before, key)
        self._models[request.model].move(before, key)
        self._note_first(request.model)
        if request.group:
            self._groups[request.model, request.group].move(before, key)
        if job.due:
            self._due[request.model].move(before, key)

    def give(self, job: J, before: JobSubmitted) -> None:
        """The job is somebody else's than it was by the request of before."""
        self._forget_askers(before)
        self._note_askers(job)

    def _note_first(self, model: str) -> None:
        """The model's line changed."""
        line = self._models.get(model)
        if line is None:
            del self._first_keys[model]
        else:
            self._first_keys[model] = line.first_key

    def _forget_size(self, job: J) -> None:
        request = job.request
        sizes, size = self._sizes[request.model], shape_of(job)
        del sizes[size][request.job]
        if not sizes[size]:
            del sizes[size]
        if not sizes:
            del self._sizes[request.model]

    def _note_askers(self, job: J) -> None:
        for index, name in self._askers(job.request):
            index.setdefault(name, {})[job.request.job] = job

    def _forget_askers(self, request: JobSubmitted) -> None:
        for index, name in self._askers(request):
            del index[name][request.job]
            if not index[name]:
                del index[name]

    def _askers(self, request: JobSubmitted) -> Iterator[tuple[dict[str, dict[str, J]], str]]:
        yield self._participants, request.participant
        if request.kernel is not None:
            yield self._kernels, request.kernel


def shape_of(job: Queued) -> Shape:
    """Jobs of one shape have room in the same places."""
    request = job.request
    units = request.pixels * request.batch
    return units, request.beside_bytes, request.placement, request.manner, job.steps


N = TypeVar("N")


def _take(index: "dict[N, Line[J]]", name: N, job: J) -> None:
    line = index[name]
    line.remove(job)
    if not len(line):
        del index[name]
