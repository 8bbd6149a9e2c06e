"""Simulated GPUs: they do what they are told, after the time it takes.

They refuse what no GPU could do, so that no policy looks good by cheating: a job of a model that
is not there, two jobs or two loads at once, more bytes than there are.

What is left out: loads and jobs do not slow each other down, and jobs of one model take always the
same time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from workshop_gpu.conductor import effects, events
from workshop_gpu.simulation.clock import Clock
from workshop_gpu.simulation.room import Models


class Impossible(Exception):
    """A policy gave an order that no machine could carry out: a fault of the policy."""


@dataclass(slots=True)
class Gpu:
    """What is on a GPU, and its two lanes: one load at a time, one job or batch at a time."""

    total_bytes: int
    ready: set[str] = field(default_factory=set)
    held_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes by who holds them: models that are there or on their way, and jobs."""
    moving: str = ""
    drawing: str = ""
    """The model whose job runs."""

    def take(self, name: str, size_bytes: int) -> None:
        self.held_bytes[name] = size_bytes
        if sum(self.held_bytes.values()) > self.total_bytes:
            raise Impossible(f"no room for {name}: {self.held_bytes} of {self.total_bytes}")


class Machines:
    """The GPUs of a room. `tell` takes the facts that come back."""

    def __init__(
        self,
        devices: dict[str, int],
        models: dict[str, Models],
        load_s: Callable[[Models], float],
        clock: Clock,
        tell: Callable[[events.Event], None],
    ) -> None:
        self._gpus = {name: Gpu(size) for name, size in devices.items()}
        self._models = models
        self._load_s = load_s
        self._clock = clock
        self._tell = tell

    def load(self, order: effects.LoadModel) -> None:
        gpu, facts = self._gpus[order.device], self._models[order.model]
        self._move(gpu, order.model)
        if order.model in gpu.held_bytes:
            raise Impossible(f"{order.model} is on {order.device} already")
        gpu.take(order.model, facts.weights_bytes)
        seconds_s = self._load_s(facts)

        def loaded() -> None:
            gpu.moving = ""
            gpu.ready.add(order.model)
            size_bytes = facts.weights_bytes
            self._tell(events.SlotLoaded(order.device, order.model, size_bytes, seconds_s))

        self._clock.after(seconds_s, loaded)

    def evict(self, order: effects.EvictModel) -> None:
        gpu = self._gpus[order.device]
        self._move(gpu, order.model)
        if order.model not in gpu.ready or gpu.drawing == order.model:
            raise Impossible(f"{order.model} cannot leave {order.device}")
        gpu.ready.remove(order.model)

        def left() -> None:
            gpu.moving = ""
            freed_bytes = gpu.held_bytes.pop(order.model)
            self._tell(events.SlotEvicted(order.device, order.model, freed_bytes))

        self._clock.after(0.0, left)

    def run(self, order: effects.RunJob) -> float:
        """Begins with the job, or the batch, and says how many seconds it will take."""
        gpu, facts = self._gpus[order.device], self._models[order.model]
        if order.model not in gpu.ready:
            raise Impossible(f"{order.model} is not ready on {order.device}")
        if gpu.drawing:
            raise Impossible(f"{order.device} runs two jobs at once")
        jobs = (order.job, *order.others)
        gpu.drawing = order.model
        gpu.take("working memory", facts.working_bytes * len(jobs))
        seconds_s = facts.run_s(len(jobs))

        def drawn() -> None:
            gpu.drawing = ""
            del gpu.held_bytes["working memory"]
            peak_bytes = facts.working_bytes * len(jobs)
            for job in jobs:
                self._tell(events.JobDrawn(job, seconds_s, peak_bytes, len(jobs)))
            for job in jobs:
                self._tell(events.JobFinished(job))

        self._clock.after(seconds_s, drawn)
        return seconds_s

    def _move(self, gpu: Gpu, model: str) -> None:
        if gpu.moving:
            raise Impossible(f"{gpu.moving} is being moved, and {model} too")
        gpu.moving = model
