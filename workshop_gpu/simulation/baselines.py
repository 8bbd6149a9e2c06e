"""Other ways to share GPUs, each as good as it can be: what people have today.

They take the conductor's events and give its orders, so that all policies run on the same machines.
They know no shares, no patience, and no limit of waiting jobs. A job goes where its model is before
it has one loaded, and no model leaves that a job uses or is about to use.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.effects import Effect
from workshop_gpu.simulation.room import Models


@dataclass(slots=True)
class _Device:
    name: str
    total_bytes: int
    ready: dict[str, float] = field(default_factory=dict)
    """Models that are there, with the time of their last use."""
    moving: str = ""
    coming: str = ""
    """The model that is being loaded."""
    running: str = ""
    """The model whose job runs."""
    given: events.JobSubmitted | None = None
    """The job for which it evicts and loads."""


class Baseline(ABC):
    """What all have in common: the queue, the account of what is where, the orders."""

    def __init__(self, models: dict[str, Models]) -> None:
        self._models = models
        self._working_bytes = max(facts.working_bytes for facts in models.values())
        self._devices: dict[str, _Device] = {}
        self._queue: list[events.JobSubmitted] = []
        self._runs_on: dict[str, _Device] = {}
        self._effects: list[Effect] = []

    def handle(self, event: events.Event, now: float) -> list[Effect]:
        """Takes one event and returns the orders that follow."""
        self._effects = []
        match event:
            case events.DeviceReady(name, total_bytes):
                self._devices[name] = _Device(name, total_bytes)
            case events.JobSubmitted():
                self._queue.append(event)
            case events.SlotEvicted(name, _, _):
                self._devices[name].moving = ""
            case events.SlotLoaded(name, model, _, _):
                device = self._devices[name]
                device.moving = device.coming = ""
                device.ready[model] = now
            case events.JobFinished(job):
                device = self._runs_on.pop(job)
                device.ready[device.running] = now
                device.running = ""
            case _:
                return []
        self._go_on()
        return self._effects

    def waiting(self, now: float) -> list[str]:
        """The ids of the jobs that have not begun, in the order of their arrival."""
        given = [device.given for device in self._devices.values() if device.given]
        return [job.job for job in given + self._queue]

    @abstractmethod
    def _go_on(self) -> None:
        """Gives all orders that can be given now."""

    def _has_room(self, device: _Device, model: str) -> bool:
        here = [*device.ready, model, *([device.coming] if device.coming else [])]
        weights_bytes = sum(self._models[name].weights_bytes for name in here)
        return weights_bytes + self._working_bytes <= device.total_bytes

    def _could_hold(self, device: _Device, model: str) -> bool:
        return self._models[model].weights_bytes + self._working_bytes <= device.total_bytes

    def _run(self, device: _Device, job: events.JobSubmitted) -> None:
        device.running = job.model
        self._runs_on[job.job] = device
        self._effects.append(effects.RunJob(device.name, job.job, job.model))

    def _load(self, device: _Device, model: str) -> None:
        device.moving = device.coming = model
        self._effects.append(effects.LoadModel(device.name, model))

    def _evict(self, device: _Device, model: str) -> None:
        device.moving = model
        del device.ready[model]
        self._effects.append(effects.EvictModel(device.name, model))


class Lru(Baseline):
    """First in, first out. A GPU does one thing after the other; models stay until the room is
    needed, and the one that was not used for longest leaves."""

    def _go_on(self) -> None:
        for device in self._devices.values():
            if device.given and not device.moving:
                self._prepare(device, device.given)
        while self._queue:
            place = self._place(self._queue[0].model)
            if place is None:
                return
            place.given = self._queue.pop(0)
            self._prepare(place, place.given)

    def _place(self, model: str) -> _Device | None:
        """The idle GPU where the model is; else one with room; else the one used longest ago."""
        idle = [
            device
            for device in self._devices.values()
            if not (device.moving or device.running or device.given)
            and self._could_hold(device, model)
        ]

        def cost(device: _Device) -> tuple[bool, bool, float]:
            used_s = max(device.ready.values(), default=0.0)
            return model not in device.ready, not self._has_room(device, model), used_s

        return min(idle, key=cost, default=None)

    def _prepare(self, device: _Device, job: events.JobSubmitted) -> None:
        if job.model in device.ready:
            device.given = None
            self._run(device, job)
        elif self._must_leave(device, job.model):
            self._evict(device, min(device.ready, key=lambda name: device.ready[name]))
        else:
            self._load(device, job.model)

    def _must_leave(self, device: _Device, model: str) -> bool:
        return not self._has_room(device, model)


class Fifo(Lru):
    """First in, first out; each load of a model makes all the others leave first."""

    def _must_leave(self, device: _Device, model: str) -> bool:
        return bool(device.ready)


class Grouped(Baseline):
    """As llama-swap does it: A B C A B C is served as A A B B C C.

    A job whose model is ready is served before those that came earlier and need a swap. A swap goes
    on beside the jobs of other models, but waits until nobody needs the model that has to leave.
    """

    def _go_on(self) -> None:
        for device in self._devices.values():
            if not device.running:
                self._serve(device)
        for device in self._devices.values():
            if not device.moving:
                self._swap(device)

    def _serve(self, device: _Device) -> None:
        """Runs the oldest job whose model is here."""
        job = next((job for job in self._queue if job.model in device.ready), None)
        if job is not None:
            self._queue.remove(job)
            self._run(device, job)

    def _swap(self, device: _Device) -> None:
        """Loads the model of the oldest job that needs it, or makes room for it."""
        model = next((job.model for job in self._queue if self._lacks(device, job.model)), None)
        if model is None:
            return
        if self._has_room(device, model):
            self._load(device, model)
            return
        needed = {job.model for job in self._queue} | {device.running}
        unneeded = [name for name in device.ready if name not in needed]
        if unneeded:
            self._evict(device, min(unneeded, key=lambda name: device.ready[name]))

    def _lacks(self, device: _Device, model: str) -> bool:
        """Whether jobs of the model wait for this GPU to load it: no GPU has it, or this one has
        nothing to do while those that have it are busy."""
        if model in device.ready or not self._could_hold(device, model):
            return False
        if any(each.coming == model for each in self._devices.values()):
            return False
        elsewhere = any(model in each.ready for each in self._devices.values())
        return not (elsewhere and device.running)
