"""Random people, kernels, workers, an instructor and other programs, who all do as they please."""

from random import Random

import hypothesis.strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests.conductor.offered import FAR, PHASES, SIZES, fact, honest_reading, loaded
from tests.conductor.promises import nothing_is_held_at_rest
from tests.conductor.staging import GB
from tests.conductor.told import Told
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Conductor, Settings
from workshop_gpu.conductor.errors import (
    ErrorReport,
    ModelDisabled,
    QueueFull,
    ReservationEnded,
)
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.states import Priority

DEVICES = ("gpu0", "gpu1")
PEOPLE = ("ada", "bob", "cleo")
STEPS = 20

people = st.sampled_from(PEOPLE)
models = st.sampled_from(tuple(SIZES))
devices = st.sampled_from(DEVICES)
pixels = st.sampled_from((128 * 128, 512 * 512, 1024 * 1024, 4096 * 4096))
numbers = st.integers(0, 1000)


class Crowd(Told):
    """Every rule is something that may happen at any moment."""

    patience_s = Settings().patience_s

    def __init__(self) -> None:
        super().__init__()
        self.gone: set[str] = set()
        self.facts = {name: fact(name, on_disk=name != FAR) for name in SIZES}

    @initialize(
        queue_limit=st.integers(1, 3),
        count=st.integers(1, 2),
        second_gb=st.sampled_from((80, 80, 24)),
        batch_limit=st.sampled_from((1, 3)),
        wait_limit_s=st.sampled_from((0.0, 0.0, 90.0)),
        bustle=st.sampled_from((0.0, 0.5, 0.9)),
        dice=st.integers(0, 1000),
    )
    def open(
        self,
        queue_limit: int,
        count: int,
        second_gb: int,
        batch_limit: int,
        wait_limit_s: float,
        bustle: float,
        dice: int,
    ) -> None:
        """`bustle`: how often an ordinary moment follows what a rule did."""
        settings = Settings(
            queue_limit=queue_limit,
            patience_s=self.patience_s,
            remembered_jobs=10_000,
            batch_limit=batch_limit,
            wait_limit_s=wait_limit_s,
        )
        self.devices = DEVICES[:count]
        self.sizes_gb = dict(zip(DEVICES, (80, second_gb), strict=True))
        self.conductor = Conductor(settings, self.devices)
        self.out.policy = Policy.of(settings)
        self.bustle, self.dice = bustle, Random(dice)
        self.tell_catalogue()
        for device in self.devices:
            self.worker_is_ready(device, 0)

    def tell_catalogue(self) -> None:
        self.tell(events.CatalogueChanged(tuple(self.facts.values())))

    def tell_ready(self, device: str, foreign_gb: int = 0) -> None:
        size_bytes = self.sizes_gb[device] * GB
        self.tell(events.DeviceReady(device, size_bytes, foreign_gb * GB, neighbours=DEVICES))

    # people

    @rule(
        who=people,
        model=models,
        size=pixels,
        priority=st.sampled_from(list(Priority)),
        alone=st.booleans(),
        rung=st.sampled_from((*[""] * 5, "all-streamed", "tiled", "cpu-encoders")),
        manner=st.sampled_from((*[""] * 5, "exact", "cpu-encoders")),
    )
    def submit(
        self,
        who: str,
        model: str,
        size: int,
        priority: Priority,
        alone: bool,
        rung: str = "",
        manner: str = "",
    ) -> None:
        waiting = self.out.waiting_of(who)
        limit = self.out.policy.limits.get(who, self.out.policy.queue_limit)
        group = "" if alone or manner else f"of {size}"
        job = self.new_id("job")
        event = events.JobSubmitted(
            job, who, f"k-{who}", model, STEPS, size, 1, priority, group, rung, manner
        )
        refusal = self.ask(event)
        if refusal is None:
            assert waiting < limit, "more jobs wait than one may have"
            assert model not in self.out.policy.withdrawn
        if isinstance(refusal, QueueFull):
            assert waiting >= limit, "a job was refused although it was one of the few"
        if isinstance(refusal, ModelDisabled):
            facts = self.facts[model]
            assert not facts.enabled or model in self.out.policy.withdrawn

    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        self.ask(events.JobCancelled(self.some_id("job", number)))

    @rule(who=people, model=models, ttl_s=st.sampled_from((1.0, 15.0, 300.0)))
    def take_hold(self, who: str, model: str, ttl_s: float) -> None:
        self.ask(events.HoldTaken(self.new_id("hold"), who, f"k-{who}", model, ttl_s))

    @rule(number=numbers, who=people, drop=st.booleans())
    def change_hold(self, number: int, who: str, drop: bool) -> None:
        hold = self.some_id("hold", number)
        if drop:
            self.ask(events.HoldDropped(hold))
            return
        view = self.out.holds.get(hold)
        if self.ask(events.HoldRenewed(hold, f"k-{who}", 20.0)) is None:
            assert view is not None
            assert view.kernel == f"k-{who}", "another kernel's hold was renewed"

    @rule(
        who=people,
        size_gb=st.sampled_from((1, 10, 30, 60, 200, None)),
        device=st.sampled_from((None, None, *DEVICES)),
        ttl_s=st.sampled_from((15.0, 40.0, 300.0, None)),
    )
    def reserve(
        self, who: str, size_gb: int | None, device: str | None, ttl_s: float | None
    ) -> None:
        size_bytes = None if size_gb is None else size_gb * GB
        reservation = self.new_id("room")
        self.ask(events.ReservationAsked(reservation, who, f"k-{who}", size_bytes, device, ttl_s))

    @rule(number=numbers, who=people, drop=st.booleans())
    def change_reservation(self, number: int, who: str, drop: bool) -> None:
        name = self.some_id("room", number)
        if drop:
            refusal = self.ask(events.ReservationDropped(name))
            over = isinstance(refusal, ReservationEnded)  # its time is over, the next tick ends it
            assert over or name not in self.out.reservations
            return
        view = self.out.reservations.get(name)
        refusal = self.ask(events.ReservationRenewed(name, f"k-{who}", 20.0))
        if refusal is None:
            assert view is not None
            assert view.kernel == f"k-{who}", "another kernel's reservation was renewed"

    @rule(who=people)
    def kernel_ends(self, who: str) -> None:
        kernel = f"k-{who}"
        self.tell(events.KernelGone(kernel))
        for views in (self.out.holds, self.out.reservations):
            assert not [view for view in views.values() if view.kernel == kernel]

    @rule(who=people, heir=people)
    def somebody_takes_anothers_place(self, who: str, heir: str) -> None:
        """Whoever goes may ask again, as somebody who has nothing yet."""
        self.tell(events.ParticipantReplaced(who, heir, f"k-{heir}"))
        told = {view.participant for view in self.out.announced.values()}
        assert who == heir or who not in told, "a job was not announced as the heir's"

    # the instructor

    @rule(model=models, load=st.booleans())
    def preload_or_evict(self, model: str, load: bool) -> None:
        self.ask(events.ModelWanted(model) if load else events.EvictionAsked(model))

    @rule(device=st.sampled_from((None, *DEVICES)))
    def clear_for_training(self, device: str | None) -> None:
        self.ask(
            events.ReservationAsked(self.new_id("room"), "instructor", None, None, device, None)
        )

    @precondition(lambda self: self.out.reservations)
    @rule()
    def end_the_oldest_reservation(self) -> None:
        self.ask(events.ReservationDropped(next(iter(self.out.reservations))))

    @rule(
        paused=st.sampled_from(("", "", "lunch")),
        withdrawn=st.sampled_from(({}, {}, {"a": "too slow"}, {FAR: "not today"})),
        pinned=st.sampled_from(({}, {}, {"tiny": True}, {"a": True}, {"c": False})),
        limits=st.sampled_from(({}, {"ada": 0}, {"bob": 2})),
        priorities=st.sampled_from(({}, {"cleo": Priority.HIGH})),
        times_s=st.sampled_from(((20.0, 10.0), (20.0, 10.0), (5.0, 0.0), (5.0, 10.0))),
        keep_warm_s=st.sampled_from(({}, {"a": 0.0}, {"tiny": -1.0}, {"b": -5.0})),
    )
    def change_policy(
        self,
        paused: str,
        withdrawn: dict[str, str],
        pinned: dict[str, bool],
        limits: dict[str, int],
        priorities: dict[str, Priority],
        times_s: tuple[float, float],
        keep_warm_s: dict[str, float],
    ) -> None:
        patience_s, min_residency_s = times_s
        policy = Policy(
            patience_s=patience_s,
            min_residency_s=min_residency_s,
            queue_limit=self.out.policy.queue_limit,
            paused=paused,
            withdrawn=withdrawn,
            pinned=pinned,
            keep_warm_s=keep_warm_s,
            limits=limits,
            priorities=priorities,
        )
        refusal = self.ask(events.PolicyChanged(policy))
        contradicts = patience_s < min_residency_s or bool(set(withdrawn) & set(pinned))
        assert (refusal is not None) or not contradicts

    @rule(
        model=models,
        change=st.sampled_from(
            ("pin", "unpin", "disable", "break", "mend", "short", "at once", "cap", "name", "swap")
        ),
    )
    def change_model(self, model: str, change: str) -> None:
        self.facts[model] = fact(
            model,
            enabled=change != "disable",
            problem="a file is missing" if change == "break" else "",
            pinned=change == "pin" and model in ("c", "tiny"),
            keep_warm_s={"short": 0.0, "at once": -1.0}.get(change, 900.0),
            on_disk=model != FAR or model not in self.facts or self.facts[model].on_disk,
            memory=MemorySettings(
                placement={"name": "staged", "swap": "swap-encoders"}.get(change, "auto"),
                max_vram_bytes=25 * GB if change == "cap" else 0,
                swap_device="gpu1" if change == "swap" else "",
            ),
        )
        self.tell_catalogue()

    @rule(model=models)
    def remove_or_add_model(self, model: str) -> None:
        if self.facts.pop(model, None) is None:
            self.facts[model] = fact(model, on_disk=model != FAR)
        self.tell_catalogue()

    # time, workers, other programs

    @rule(seconds_s=st.sampled_from((0.1, 1.0, 12.0, 30.0, 1000.0)))
    def time_passes(self, seconds_s: float) -> None:
        self.now += seconds_s
        self.tell(events.Tick())

    @rule(device=devices, foreign_gb=st.sampled_from((0, 0, 10, 40)))
    def worker_is_ready(self, device: str, foreign_gb: int) -> None:
        if device in self.devices and device not in {*self.out.workers, *self.gone}:
            self.tell_ready(device, foreign_gb)

    @precondition(lambda self: self.out.busy)
    @rule(number=numbers, grown=st.sampled_from((1.0, 1.0, 1.3)), after_s=st.sampled_from((0, 2)))
    def worker_succeeds(self, number: int, grown: float, after_s: float) -> None:
        self.now += after_s
        self.succeed(self.some_busy(number), number, grown)

    def some_busy(self, number: int) -> str:
        return self.out.busy[number % len(self.out.busy)]

    def succeed(self, device: str, number: int, grown: float = 1.0) -> None:
        """One of its lanes answers; a batch answers one job after the other."""
        worker = self.out.workers[device]
        match worker.orders[number % len(worker.orders)]:
            case effects.LoadModel(_, model, placement):
                self.tell(loaded(device, model, placement, grown))
            case effects.EvictModel(_, model):
                self.tell(events.SlotEvicted(device, model, GB))
            case effects.RunJob(_, _, _, others):
                job = worker.unanswered[number % len(worker.unanswered)]
                self.tell(events.JobDrawn(job, 5.0, int(grown * GB), 1 + len(others)))
                if number % 3:
                    self.tell(events.JobFinished(job))

    @precondition(lambda self: self.out.written)
    @rule(number=numbers)
    def file_is_written(self, number: int) -> None:
        job = sorted(self.out.written)[number % len(self.out.written)]
        error = ErrorReport("generation_failed", "the picture is blank")
        self.tell(events.JobFinished(job) if number % 5 else events.JobFailed(job, error))

    @precondition(lambda self: self.out.busy)
    @rule(number=numbers)
    def worker_fails(self, number: int) -> None:
        device = self.some_busy(number)
        worker = self.out.workers[device]
        error = ErrorReport("out_of_memory", "no memory", {"phase": PHASES[number % 4]})
        match worker.orders[number % len(worker.orders)]:
            case effects.LoadModel(_, model):
                self.tell(events.LoadFailed(device, model, error))
            case effects.RunJob():
                job = worker.unanswered[number % len(worker.unanswered)]
                stopped = number % 2 == 0
                self.tell(events.JobStopped(job) if stopped else events.JobFailed(job, error))
            case _:
                pass

    @precondition(lambda self: self.out.busy)
    @rule(number=numbers, step=st.integers(0, 30))
    def worker_goes_on(self, number: int, step: int) -> None:
        device = self.some_busy(number)
        worker = self.out.workers[device]
        match worker.orders[number % len(worker.orders)]:
            case effects.LoadModel(_, model):
                self.tell(events.SlotProgressed(device, model, step * GB, 30 * GB))
            case effects.RunJob():
                job = worker.unanswered[number % len(worker.unanswered)]
                self.tell(events.JobStarted(job))
                self.tell(events.JobProgressed(job, step, STEPS))
            case _:
                pass

    @rule(device=devices)
    def worker_dies(self, device: str) -> None:
        self.tell(events.WorkerDied(device, "killed"))

    @precondition(lambda self: any(each.told_to_stop for each in self.out.workers.values()))
    @rule()
    def worker_is_stopped(self) -> None:
        for device, worker in sorted(self.out.workers.items()):
            if worker.told_to_stop:
                self.tell(events.WorkerDied(device, "it took too long"))

    @precondition(lambda self: len(self.ids["job"]) > 8)
    @rule(device=devices, for_good=st.booleans())
    def device_is_given_up(self, device: str, for_good: bool) -> None:
        if device in self.gone:
            return
        retry_s = None if for_good and not self.gone else 60.0
        if retry_s is None:
            self.gone.add(device)
        self.tell(events.DeviceGone(device, "its worker ended too often", retry_s))

    @precondition(lambda self: self.out.fetching)
    @rule(comes=st.booleans())
    def download_ends(self, comes: bool) -> None:
        if not comes:
            self.tell(events.FetchFailed(FAR, ErrorReport("download_failed", "no network")))
        elif FAR in self.facts:
            self.facts[FAR] = fact(FAR)
            self.tell_catalogue()

    @rule(
        device=devices,
        used_gb=st.integers(0, 90),
        ours_gb=st.integers(0, 90),
        who=people,
        theirs_gb=st.sampled_from((None, None, 0, 5, 30)),
    )
    def memory_is_read(
        self, device: str, used_gb: int, ours_gb: int, who: str, theirs_gb: int | None
    ) -> None:
        """None: the driver names nobody."""
        others = None if theirs_gb is None else ()
        if theirs_gb:
            others = (events.ForeignProcess(f"{who}.ipynb", 42, f"k-{who}", theirs_gb * GB),)
        self.tell(events.MemoryRead(device, used_gb * GB, ours_gb * GB, others))

    @rule(device=devices, model=models, number=numbers, kind=st.integers(0, 7))
    def stale_fact_arrives(self, device: str, model: str, number: int, kind: int) -> None:
        """Of a job or a model that no worker is busy with: it changes nothing."""
        # Time first: it may give the very order that makes the fact no stale one.
        self.tell(events.Tick())
        job = self.some_id("job", number)
        if job in self.out.drawn | self.out.written:
            return
        worker = self.out.workers.get(device)
        if worker and worker.transfer and worker.transfer.model == model:
            return
        error = ErrorReport("load_failed", "late")
        stale = (
            events.SlotLoaded(device, model, GB, 1.0),
            events.SlotEvicted(device, model, GB),
            events.LoadFailed(device, model, error),
            events.JobFinished(job),
            events.JobDrawn(job, 1.0),
            events.JobStopped(job),
            events.JobFailed(job, error),
            events.SlotProgressed(device, model, 1, 2),
        )
        before = self.conductor.snapshot(self.now)
        # Nobody need take it for more than time that passes.
        self.take(events.Tick(), self.conductor.handle(stale[kind], self.now))
        assert self.conductor.snapshot(self.now) == before, "a stale fact changed something"

    # promises

    @invariant()
    def promises_are_kept(self) -> None:
        if hasattr(self, "conductor"):
            self.check_promises()
            if self.dice.random() < self.bustle:
                self.ordinary_moment()
                self.check_promises()

    def ordinary_moment(self) -> None:
        """The workshop goes on, so that there is always something to disturb: a worker that
        died is there again, one answers, somebody asks, a long reservation ends, time passes."""
        dice, self.now = self.dice, self.now + 1.0
        dead = [each for each in self.devices if each not in {*self.out.workers, *self.gone}]
        if dead and dice.random() < 0.7:
            self.worker_is_ready(dice.choice(dead), 0)
        elif self.out.busy and dice.random() < 0.7:
            self.succeed(dice.choice(self.out.busy), dice.randrange(1000))
        elif len(self.out.living) < 4 or dice.random() < 0.4:
            self.submit(dice.choice(PEOPLE), dice.choice("abc"), 512 * 512, Priority.NORMAL, False)
        elif self.out.reservations and dice.random() < 0.5:
            self.end_the_oldest_reservation()
        elif FAR in self.out.fetching:
            self.download_ends(comes=True)
        else:
            self.now += 10.0
            self.tell(events.Tick())

    def teardown(self) -> None:
        """Left alone, every job ends and every byte comes back: the pause is over, nobody
        reserves or pins, workers work, downloads come, time goes on."""
        if not hasattr(self, "conductor"):
            return
        self.tell(events.Tick())
        quiet = Policy(queue_limit=self.out.policy.queue_limit)
        assert self.ask(events.PolicyChanged(quiet)) is None
        for name in list(self.out.reservations):
            self.ask(events.ReservationDropped(name))
        self.facts = {
            name: self.calm(name, on_disk=each.on_disk, problem=each.problem)
            for name, each in self.facts.items()
        }
        self.tell_catalogue()
        for _ in range(400):
            if not self.out.living:
                break
            self.everybody_works()
        assert not self.out.living, f"waits for ever: {self.conductor.snapshot(self.now).jobs}"
        self.check_promises()
        nothing_is_held_at_rest(self.conductor.snapshot(self.now))

    def calm(self, name: str, **more: object) -> events.ModelFacts:
        """What is said of a model once nobody changes anything any more."""
        return fact(name, **more)

    def everybody_works(self) -> None:
        for device in self.devices:
            worker = self.out.workers.get(device)
            if worker and worker.told_to_stop:
                self.tell(events.WorkerDied(device, "it took too long"))
            if device not in {*self.out.workers, *self.gone}:
                self.tell_ready(device)
            self.read_honestly(device)
        if self.out.fetching and FAR in self.facts:
            self.facts[FAR] = self.calm(FAR, on_disk=True)
            self.tell_catalogue()
        for device in self.out.busy:
            self.now += 1.0
            self.succeed(device, 0)
        for job in sorted(self.out.written):
            self.tell(events.JobFinished(job))
        self.now += 5.0
        self.tell(events.Tick())

    def read_honestly(self, device: str) -> None:
        """The driver sees what is ours and nothing else."""
        self.tell(honest_reading(self.conductor.snapshot(self.now), device))
