"""A stage for the conductor: events go in by hand, effects come out, time is moved by hand."""

from dataclasses import dataclass, field

import pytest

from tests.conductor.written_down import written_down
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Conductor, Settings
from workshop_gpu.conductor.effects import Effect, JobView, SlotView
from workshop_gpu.conductor.errors import ErrorReport, WorkshopError
from workshop_gpu.conductor.states import Priority, SlotState

GB = 1_000_000_000
MEGAPIXEL = 1024 * 1024

Order = effects.LoadModel | effects.EvictModel | effects.RunJob


def model(name: str, gb: float = 30.0, **facts: object) -> events.ModelFacts:
    return events.ModelFacts(name, file_bytes=int(gb * GB), **facts)  # type: ignore[arg-type]


def check_accounts(conductor: Conductor, now: float) -> None:
    """Every byte has one holder, and the holders' sum and what is free are the total."""
    for device in conductor.snapshot(now).devices:
        names = [(holder.kind, holder.name) for holder in device.holders]
        assert len(names) == len(set(names))
        assert all(holder.bytes > 0 for holder in device.holders)
        held = sum(holder.bytes for holder in device.holders)
        assert held + device.free_bytes == device.total_bytes


def transfers(order: Order) -> bool:
    """Whether the order is for a device's transfer lane (else for its compute lane)."""
    return not isinstance(order, effects.RunJob)


@dataclass
class Stage:
    """A conductor with its clock and everything it ever said.

    `orders` are those of each device that no worker has answered yet, the oldest first: at most
    one for the lane that transfers and one for the lane that computes.
    """

    conductor: Conductor
    now: float = 0.0
    said: list[Effect] = field(default_factory=list)
    orders: dict[str, list[Order]] = field(default_factory=dict)
    submitted: int = 0

    def tell(self, event: events.Event) -> list[Effect]:
        """Hands over one event and returns what follows."""
        new = self.conductor.handle(event, self.now)
        for effect in new:
            if isinstance(effect, Order):
                busy = [transfers(order) for order in self.orders.get(effect.device, [])]
                assert transfers(effect) not in busy, "a busy lane got an order"
                self.orders.setdefault(effect.device, []).append(effect)
        self.said += new
        check_accounts(self.conductor, self.now)
        return new

    def refused(self, event: events.Event) -> ErrorReport:
        """Hands over a request that must be refused, and sees that nothing changed."""
        before = written_down(self.conductor)
        with pytest.raises(WorkshopError) as caught:
            self.conductor.handle(event, self.now)
        assert written_down(self.conductor) == before
        return caught.value.report()

    def later(self, seconds_s: float) -> list[Effect]:
        """Time passes, with a tick at its end."""
        self.now += seconds_s
        return self.tell(events.Tick())

    # requests

    def submit(
        self,
        model: str,
        who: str = "ada",
        pixels: int = MEGAPIXEL,
        priority: Priority = Priority.NORMAL,
        job: str = "",
    ) -> str:
        """Submits a job and returns its id; each participant has one kernel."""
        self.tell(self.job_submitted(model, who, pixels, priority, job))
        return job or f"job-{self.submitted}"

    def job_submitted(
        self,
        model: str,
        who: str = "ada",
        pixels: int = MEGAPIXEL,
        priority: Priority = Priority.NORMAL,
        job: str = "",
    ) -> events.JobSubmitted:
        self.submitted += 1
        return events.JobSubmitted(
            job or f"job-{self.submitted}", who, f"kernel-{who}", model, 28, pixels, 1, priority
        )

    def hold(self, model: str, who: str = "ada", ttl_s: float = 60.0, hold: str = "hold") -> None:
        self.tell(events.HoldTaken(hold, who, f"kernel-{who}", model, ttl_s))

    # workers

    def take_order(self, device: str = "gpu0", which: str = "") -> Order:
        """The device's oldest order, or the oldest that begins so ("load", "run job-1"): its
        worker is about to answer it."""
        orders = self.orders[device]
        order = next(each for each in orders if _text(each).startswith(which))
        orders.remove(order)
        if not orders:
            del self.orders[device]
        return order

    def answer(
        self, device: str = "gpu0", weights_gb: float = 0.0, which: str = ""
    ) -> list[Effect]:
        """The device's worker does what it was told, with success."""
        match self.take_order(device, which):
            case effects.LoadModel(_, name, placement):
                weights_bytes = int(weights_gb * GB) or self.slot(name, device).bytes
                fact = events.SlotLoaded(device, name, weights_bytes, 6.0, placement=placement)
                return self.tell(fact)
            case effects.EvictModel(_, name):
                freed_bytes = self.slot(name, device).bytes
                return self.tell(events.SlotEvicted(device, name, freed_bytes))
            case effects.RunJob(_, job, _, others):
                jobs, said = (job, *others), []
                for each in jobs:
                    said += self.finish(each, batch=len(jobs))
                return said

    def finish(
        self,
        job: str,
        seconds_s: float = 5.0,
        peak_bytes: int = 0,
        batch: int = 1,
        compiled: bool = False,
        to_compile: bool = False,
        loras: tuple[str, ...] = (),
    ) -> list[Effect]:
        """The job's worker has drawn it, and the pictures are on the disk."""
        drawn = events.JobDrawn(job, seconds_s, peak_bytes, batch, compiled, to_compile, loras)
        return [*self.tell(drawn), *self.tell(events.JobFinished(job))]

    def fail(
        self, device: str = "gpu0", kind: str = "load_failed", which: str = ""
    ) -> list[Effect]:
        """The device's worker reports an error for what it was told."""
        error = ErrorReport(kind, "it did not work")
        match self.take_order(device, which):
            case effects.LoadModel(_, name):
                return self.tell(events.LoadFailed(device, name, error))
            case effects.RunJob(_, job):
                return self.tell(events.JobFailed(job, error))
            case _:
                raise AssertionError("an eviction cannot fail")

    def die(self, device: str = "gpu0") -> list[Effect]:
        """The device's worker ends."""
        self.orders.pop(device, None)
        return self.tell(events.WorkerDied(device, "killed"))

    def ready(self, device: str = "gpu0", gb: float = 80.0, foreign_gb: float = 0.0) -> None:
        """Its worker sees all other devices."""
        views = self.conductor.snapshot(self.now).devices
        others = tuple(view.device for view in views if view.device != device)
        ready = events.DeviceReady(device, int(gb * GB), int(foreign_gb * GB), neighbours=others)
        self.tell(ready)

    def foreign(self, gb: float, device: str = "gpu0") -> list[Effect]:
        """The driver reports that others hold so much beside us."""
        ours_bytes = sum(
            holder.bytes
            for view in self.conductor.snapshot(self.now).devices
            for holder in view.holders
            if view.device == device and holder.kind in ("weights", "freeing")
        )
        used_bytes = ours_bytes + int(gb * GB)
        return self.tell(events.MemoryRead(device, used_bytes, ours_bytes))

    def settle(self, most_steps: int = 400) -> None:
        """Workers answer and time passes until no job is left."""
        for _ in range(most_steps):
            if not self.conductor.snapshot(self.now).jobs:
                return
            for device in list(self.orders):
                self.now += 1.0
                self.answer(device)
            self.later(1.0)
        raise AssertionError(f"still waiting: {self.conductor.snapshot(self.now).jobs}")

    # looking

    def job(self, job: str) -> JobView:
        view = self.conductor.job(job)
        assert view is not None
        return view

    def state(self, job: str) -> str:
        return self.job(job).state.value

    def slot(self, model: str, device: str = "gpu0") -> SlotView:
        slots = self.conductor.snapshot(self.now).slots
        return next(slot for slot in slots if (slot.device, slot.model) == (device, model))

    def models(self, device: str = "gpu0", state: SlotState = SlotState.READY) -> list[str]:
        """Models with a slot in this state on the device."""
        slots = self.conductor.snapshot(self.now).slots
        return [slot.model for slot in slots if slot.device == device and slot.state is state]

    def free_gb(self, device: str = "gpu0") -> float:
        devices = self.conductor.snapshot(self.now).devices
        return next(view.free_bytes for view in devices if view.device == device) / GB

    def order(self, device: str = "gpu0") -> str:
        """The oldest order that the device has not answered: "load a", "run job-1", ""."""
        return next(iter(self.orders_of(device)), "")

    def orders_of(self, device: str = "gpu0") -> list[str]:
        """All orders that the device has not answered, the oldest first."""
        return [_text(order) for order in self.orders.get(device, [])]

    def load(self, *models: str, device: str = "gpu0", who: str = "loader") -> None:
        """Makes models ready, each used once by somebody."""
        for name in models:
            self.submit(name, who)
            while self.order(device):
                self.now += 1.0
                self.answer(device)


def _text(order: Order) -> str:
    match order:
        case effects.LoadModel(_, name):
            return f"load {name}"
        case effects.EvictModel(_, name):
            return f"evict {name}"
        case effects.RunJob(_, job):
            return f"run {job}"


def stage(
    *models: events.ModelFacts,
    settings: Settings | None = None,
    devices: tuple[str, ...] = ("gpu0",),
    gb: float = 80.0,
) -> Stage:
    """A stage whose devices are ready; three models of 30 GB where none are named."""
    made = Stage(Conductor(settings or Settings(), devices))
    made.tell(events.CatalogueChanged(models or (model("a"), model("b"), model("c"))))
    for device in devices:
        made.ready(device, gb)
    return made
