"""Whatever happens, in whatever order: the conductor's promises under random events."""

import os
import pickle

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.conductor.staging import GB, Order, check_accounts
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Conductor, Settings
from workshop_gpu.conductor.errors import ErrorReport, WorkshopError
from workshop_gpu.conductor.states import JobState, Priority

# A longer run by hand: CONDUCTOR_EXAMPLES=5000 CONDUCTOR_STEPS=100 pytest tests/conductor
EXAMPLES = int(os.environ.get("CONDUCTOR_EXAMPLES", "200"))
STEPS = int(os.environ.get("CONDUCTOR_STEPS", "50"))

DEVICES = ("gpu0", "gpu1")
PEOPLE = ("ada", "bob", "cleo")
SIZES = {"a": 30, "b": 30, "c": 20, "d": 45, "tiny": 1}

people = st.sampled_from(PEOPLE)
models = st.sampled_from(tuple(SIZES))
devices = st.sampled_from(DEVICES)
pixels = st.sampled_from((128 * 128, 512 * 512, 1024 * 1024))
priorities = st.sampled_from(list(Priority))
numbers = st.integers(0, 1000)

FREES = (events.WorkerDied, events.DeviceGone, events.DeviceReady)


class Room(RuleBasedStateMachine):
    """People, kernels, workers and an instructor who do as they please."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.made = 0
        self.orders: dict[str, Order] = {}
        self.alive: set[str] = set()
        self.gone: set[str] = set()
        self.accepted: list[str] = []
        self.ended: dict[str, JobState] = {}
        self.holds: list[str] = []
        self.facts = {
            name: events.ModelFacts(name, file_bytes=gb * GB) for name, gb in SIZES.items()
        }

    @initialize(queue_limit=st.integers(1, 3), count=st.integers(1, 2))
    def open(self, queue_limit: int, count: int) -> None:
        policy = Settings(queue_limit=queue_limit, remembered_jobs=10_000)
        self.devices = DEVICES[:count]
        self.conductor = Conductor(policy, self.devices)
        self.tell(events.CatalogueChanged(tuple(self.facts.values())))

    # the outside

    def tell(self, event: events.Event) -> None:
        """A fact: never refused."""
        if isinstance(event, FREES):
            self.orders.pop(event.device, None)
        self.take(self.conductor.handle(event, self.now))

    def ask(self, event: events.Event) -> bool:
        """A request: accepted, or refused and then nothing has changed."""
        before = pickle.dumps(self.conductor)
        try:
            new = self.conductor.handle(event, self.now)
        except WorkshopError:
            assert pickle.dumps(self.conductor) == before
            return False
        if isinstance(event, events.JobSubmitted):
            self.accepted.append(event.job)
        self.take(new)
        return True

    def take(self, new: list[effects.Effect]) -> None:
        for effect in new:
            match effect:
                case effects.LoadModel() | effects.EvictModel() | effects.RunJob():
                    self.take_order(effect)
                case effects.CancelJob(device, job):
                    order = self.orders[device]
                    assert isinstance(order, effects.RunJob)
                    assert order.job == job, "a cancel reached another job"
                case effects.AnnounceJob(view):
                    assert view.job not in self.ended, "a job was answered after its end"
                    if view.state.ended:
                        self.ended[view.job] = view.state
                case _:
                    pass

    def take_order(self, order: Order) -> None:
        assert order.device in self.alive, "an order for a device without a worker"
        assert order.device not in self.orders, "a busy device got an order"
        if isinstance(order, effects.EvictModel):
            state = self.conductor._state
            assert not state.holds_on(order.model), "a held model was evicted"
            slot = state.devices[order.device].slots[order.model]
            assert slot.running is None, "a running model was evicted"
            asked = slot.leaves_because.startswith("asked")
            assert asked or not state.models[order.model].pinned, "a pinned model was evicted"
        self.check_demand(order)
        self.orders[order.device] = order

    def check_demand(self, order: Order) -> None:
        """No more devices prepare for a model than there are jobs that wait for it, and one."""
        state = self.conductor._state
        name = state.devices[order.device].prepares
        preparing = [device for device in state.devices.values() if device.prepares == name]
        if name and len(preparing) > 1:
            assert len(state.queue.of_model(name)) >= len(preparing)

    # people

    @rule(who=people, model=models, size=pixels, priority=priorities)
    def submit(self, who: str, model: str, size: int, priority: Priority) -> None:
        self.made += 1
        self.ask(
            events.JobSubmitted(f"job-{self.made}", who, f"k-{who}", model, 20, size, 1, priority)
        )

    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        self.ask(events.JobCancelled(f"job-{number % (self.made + 2)}"))

    @rule(who=people, model=models, ttl_s=st.sampled_from((1.0, 15.0, 300.0)))
    def take_hold(self, who: str, model: str, ttl_s: float) -> None:
        self.made += 1
        hold = f"hold-{self.made}"
        if self.ask(events.HoldTaken(hold, who, f"k-{who}", model, ttl_s)):
            self.holds.append(hold)

    @precondition(lambda self: self.holds)
    @rule(number=numbers, drop=st.booleans())
    def change_hold(self, number: int, drop: bool) -> None:
        hold = self.holds[number % len(self.holds)]
        self.ask(events.HoldDropped(hold) if drop else events.HoldRenewed(hold, 20.0))

    @rule(who=people)
    def kernel_ends(self, who: str) -> None:
        self.tell(events.KernelGone(f"k-{who}"))

    # the instructor

    @rule(model=models, load=st.booleans())
    def preload_or_evict(self, model: str, load: bool) -> None:
        self.ask(events.ModelWanted(model) if load else events.EvictionAsked(model))

    @rule(
        model=models,
        change=st.sampled_from(("pin", "unpin", "disable", "enable", "break", "mend", "short")),
    )
    def change_model(self, model: str, change: str) -> None:
        size = SIZES[model] * GB
        self.facts[model] = events.ModelFacts(
            model,
            enabled=change != "disable",
            problem="a file is missing" if change == "break" else "",
            pinned=change == "pin" and model in ("c", "tiny"),
            keep_warm_s={"short": 0.0, "enable": -1.0}.get(change, 900.0),
            file_bytes=size,
        )
        self.tell(events.CatalogueChanged(tuple(self.facts.values())))

    @rule(model=models)
    def remove_or_add_model(self, model: str) -> None:
        if self.facts.pop(model, None) is None:
            self.facts[model] = events.ModelFacts(model, file_bytes=SIZES[model] * GB)
        self.tell(events.CatalogueChanged(tuple(self.facts.values())))

    # workers and time

    @rule(seconds_s=st.sampled_from((0.1, 1.0, 12.0, 30.0, 1000.0)))
    def time_passes(self, seconds_s: float) -> None:
        self.now += seconds_s
        self.tell(events.Tick())

    @rule(device=devices, foreign_gb=st.sampled_from((0, 0, 10, 40)))
    def worker_ready(self, device: str, foreign_gb: int) -> None:
        if device in self.devices and device not in self.alive | self.gone:
            self.alive.add(device)
            self.tell(events.DeviceReady(device, 80 * GB, foreign_gb * GB))

    @precondition(lambda self: self.orders)
    @rule(number=numbers, grown=st.sampled_from((1.0, 1.0, 1.3)))
    def worker_succeeds(self, number: int, grown: float) -> None:
        self.succeed(sorted(self.orders)[number % len(self.orders)], grown)

    @precondition(lambda self: self.orders)
    @rule(number=numbers)
    def worker_succeeds_soon(self, number: int) -> None:
        self.now += 2.0
        self.succeed(sorted(self.orders)[number % len(self.orders)], 1.0)

    def succeed(self, device: str, grown: float) -> None:
        match self.orders.pop(device):
            case effects.LoadModel(_, model):
                size = int(SIZES[model] * GB * grown)
                self.tell(events.SlotLoaded(device, model, size, 3.0))
            case effects.EvictModel(_, model):
                self.tell(events.SlotEvicted(device, model, GB))
            case effects.RunJob(_, job):
                self.tell(events.JobFinished(job, 5.0, int(grown * GB)))

    @precondition(lambda self: self.orders)
    @rule(number=numbers)
    def worker_fails(self, number: int) -> None:
        device = sorted(self.orders)[number % len(self.orders)]
        error = ErrorReport("out_of_memory", "no memory")
        match self.orders[device]:
            case effects.LoadModel(_, model):
                del self.orders[device]
                self.tell(events.LoadFailed(device, model, error))
            case effects.RunJob(_, job):
                del self.orders[device]
                stopped = number % 2 == 0
                self.tell(events.JobStopped(job) if stopped else events.JobFailed(job, error))
            case _:
                pass

    @precondition(lambda self: self.orders)
    @rule(number=numbers, step=st.integers(0, 30))
    def worker_goes_on(self, number: int, step: int) -> None:
        device = sorted(self.orders)[number % len(self.orders)]
        match self.orders[device]:
            case effects.LoadModel(_, model):
                self.tell(events.SlotProgressed(device, model, step * GB, 30 * GB))
            case effects.RunJob(_, job):
                self.tell(events.JobStarted(job))
                self.tell(events.JobProgressed(job, step, 20))
            case _:
                pass

    @rule(device=devices)
    def worker_dies(self, device: str) -> None:
        self.alive.discard(device)
        self.tell(events.WorkerDied(device, "killed"))

    @precondition(lambda self: len(self.gone) == 0 and self.made > 8)
    @rule(device=devices)
    def device_is_given_up(self, device: str) -> None:
        self.alive.discard(device)
        self.gone.add(device)
        self.tell(events.DeviceGone(device, "its worker ended too often"))

    @rule(device=devices, used_gb=st.integers(0, 90), ours_gb=st.integers(0, 90))
    def memory_is_read(self, device: str, used_gb: int, ours_gb: int) -> None:
        self.tell(events.MemoryRead(device, used_gb * GB, ours_gb * GB))

    @rule(device=devices, model=models, number=numbers, kind=st.integers(0, 6))
    def stale_fact_arrives(self, device: str, model: str, number: int, kind: int) -> None:
        """Of a job or slot that is not what the worker does now."""
        order = self.orders.get(device)
        job = f"job-{number % (self.made + 2)}"
        error = ErrorReport("load_failed", "late")
        if any(
            isinstance(each, effects.RunJob) and each.job == job for each in self.orders.values()
        ):
            return
        if order is not None and getattr(order, "model", "") == model:
            return
        stale = (
            events.SlotLoaded(device, model, GB, 1.0),
            events.SlotEvicted(device, model, GB),
            events.LoadFailed(device, model, error),
            events.JobFinished(job, 1.0),
            events.JobStopped(job),
            events.JobFailed(job, error),
            events.SlotProgressed(device, model, 1, 2),
        )
        before = self.conductor.snapshot(self.now)
        self.tell(stale[kind])
        assert self.conductor.snapshot(self.now) == before

    # promises

    @invariant()
    def accounts_are_right(self) -> None:
        if hasattr(self, "conductor"):
            check_accounts(self.conductor, self.now)

    @invariant()
    def no_job_is_lost(self) -> None:
        if hasattr(self, "conductor"):
            living = {view.job for view in self.conductor.snapshot(self.now).jobs}
            assert living | set(self.ended) == set(self.accepted)
            assert not living & set(self.ended)

    @invariant()
    def references_are_balanced(self) -> None:
        """A job runs exactly where a worker was told to run it, and holds memory only there."""
        if not hasattr(self, "conductor"):
            return
        seen = self.conductor.snapshot(self.now)
        ordered = {
            (order.device, order.job)
            for order in self.orders.values()
            if isinstance(order, effects.RunJob)
        }
        running = {(view.device, view.job) for view in seen.jobs if view.state is JobState.RUNNING}
        committed = {
            (view.device, holder.name)
            for view in seen.devices
            for holder in view.holders
            if holder.kind == "working"
        }
        assert ordered == running == committed
        assert sum(slot.running_jobs for slot in seen.slots) == len(running)

    @invariant()
    def positions_are_in_order(self) -> None:
        if hasattr(self, "conductor"):
            waiting = [v for v in self.conductor.snapshot(self.now).jobs if v.position]
            assert [view.position for view in waiting] == list(range(1, len(waiting) + 1))

    def teardown(self) -> None:
        """Left alone, every job ends: kernels let go, workers work, time goes on."""
        if not hasattr(self, "conductor"):
            return
        for name, facts in list(self.facts.items()):
            if facts.pinned:
                self.facts[name] = events.ModelFacts(name, file_bytes=facts.file_bytes)
        self.tell(events.CatalogueChanged(tuple(self.facts.values())))
        for _ in range(400):
            for device in self.devices:
                if device not in self.alive | self.gone:
                    self.alive.add(device)
                    self.tell(events.DeviceReady(device, 80 * GB, 0))
                self.read_honestly(device)
            if not self.conductor.snapshot(self.now).jobs:
                break
            for device in sorted(self.orders):
                self.now += 1.0
                self.succeed(device, 1.0)
            self.now += 5.0
            self.tell(events.Tick())
        assert not self.conductor.snapshot(self.now).jobs, "a job waits for ever"
        assert set(self.ended) == set(self.accepted)
        assert not self.conductor._state.shares._active

    def read_honestly(self, device: str) -> None:
        """The driver sees our weights and nobody else's."""
        held = [
            holder.bytes
            for view in self.conductor.snapshot(self.now).devices
            for holder in view.holders
            if view.device == device and holder.kind in ("weights", "freeing", "working")
        ]
        self.tell(events.MemoryRead(device, sum(held), sum(held)))


def test_promises_hold_whatever_happens() -> None:
    run_state_machine_as_test(
        Room,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            derandomize="CONDUCTOR_EXAMPLES" not in os.environ,
            suppress_health_check=list(HealthCheck),
        ),
    )
