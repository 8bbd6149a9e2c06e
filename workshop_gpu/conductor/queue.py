"""The waiting jobs, found by id, model, participant or kernel."""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from workshop_gpu.conductor.events import JobSubmitted


class Queued(Protocol):
    """What the queue needs to know of a job."""

    @property
    def request(self) -> JobSubmitted: ...


J = TypeVar("J", bound=Queued)


class Queue(Generic[J]):
    """Jobs in the order in which they were put in; `fairness.py` says who is next."""

    def __init__(self) -> None:
        self._jobs: dict[str, J] = {}
        self._models: dict[str, dict[str, J]] = {}
        self._participants: dict[str, dict[str, J]] = {}
        self._kernels: dict[str, dict[str, J]] = {}

    def __iter__(self) -> Iterator[J]:
        return iter(self._jobs.values())

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: str) -> bool:
        return job in self._jobs

    def get(self, job: str) -> J | None:
        return self._jobs.get(job)

    def of_model(self, model: str) -> list[J]:
        return list(self._models.get(model, {}).values())

    def of_participant(self, participant: str) -> list[J]:
        return list(self._participants.get(participant, {}).values())

    def of_kernel(self, kernel: str) -> list[J]:
        return list(self._kernels.get(kernel, {}).values())

    def awaits(self, model: str) -> bool:
        """Whether any job waits for the model."""
        return model in self._models

    def add(self, job: J) -> None:
        request = job.request
        self._jobs[request.job] = job
        for index, key in self._indexes(request):
            index.setdefault(key, {})[request.job] = job

    def remove(self, job: J) -> None:
        request = job.request
        del self._jobs[request.job]
        for index, key in self._indexes(request):
            del index[key][request.job]
            if not index[key]:
                del index[key]

    def _indexes(self, request: JobSubmitted) -> Iterator[tuple[dict[str, dict[str, J]], str]]:
        yield self._models, request.model
        yield self._participants, request.participant
        if request.kernel is not None:
            yield self._kernels, request.kernel
