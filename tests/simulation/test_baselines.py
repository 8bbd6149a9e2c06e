"""The other policies do what they are said to do."""

from workshop_gpu.conductor import effects, events
from workshop_gpu.simulation.baselines import Baseline, Fifo, Grouped, Lru
from workshop_gpu.simulation.room import read_room

MODELS = read_room("workshop").by_name
A, B, C = MODELS
NAMES = dict(zip((A, B, C), "abc", strict=True))


class Hall:
    """A baseline with GPUs that answer when they are told to."""

    def __init__(self, policy: Baseline, gpus: int = 1) -> None:
        self.policy = policy
        self.now = 0.0
        self.jobs = 0
        self.orders: list[effects.Effect] = []
        self.done: list[str] = []
        for number in range(gpus):
            self.tell(events.DeviceReady(f"gpu{number}", 80_000_000_000))

    def tell(self, event: events.Event) -> None:
        self.now += 1.0
        self.orders += self.policy.handle(event, self.now)

    def submit(self, *models: str) -> None:
        for model in models:
            self.jobs += 1
            self.tell(events.JobSubmitted(f"job-{self.jobs}", "ada", None, model, 28, 1024))

    def answer(self) -> None:
        """The oldest order is done."""
        order = self.orders.pop(0)
        match order:
            case effects.LoadModel(device, model):
                self.done.append(f"load {NAMES[model]}")
                self.tell(events.SlotLoaded(device, model, 1, 1.0))
            case effects.EvictModel(device, model):
                self.done.append(f"evict {NAMES[model]}")
                self.tell(events.SlotEvicted(device, model, 1))
            case effects.RunJob(_, job, model):
                self.done.append(f"run {NAMES[model]}")
                self.tell(events.JobFinished(job))

    def settle(self) -> str:
        """All orders are done; says what was done, in its order."""
        while self.orders:
            self.answer()
        assert self.policy.waiting(self.now) == []
        done, self.done = ", ".join(self.done), []
        return done


def test_fifo_makes_everything_leave_for_each_load() -> None:
    hall = Hall(Fifo(MODELS))
    hall.submit(A, A, B, A)
    assert hall.settle() == "load a, run a, run a, evict a, load b, run b, evict b, load a, run a"


def test_lru_keeps_two_and_makes_the_one_leave_that_was_used_longest_ago() -> None:
    hall = Hall(Lru(MODELS))
    hall.submit(A, B, A, C, A, B)
    assert hall.settle() == (
        "load a, run a, load b, run b, run a, evict b, load c, run c, run a, evict c, load b, run b"
    )


def test_grouped_serves_a_b_c_a_b_c_as_a_a_b_b_c_c() -> None:
    hall = Hall(Grouped(MODELS))
    hall.submit(A, B, C, A, B, C)
    runs = [each for each in hall.settle().split(", ") if each.startswith("run")]
    assert runs == ["run a", "run a", "run b", "run b", "run c", "run c"]


def test_grouped_swaps_beside_a_job_but_never_while_the_leaving_model_is_needed() -> None:
    hall = Hall(Grouped(MODELS))
    hall.submit(A, B)
    hall.settle()
    hall.submit(A, B, C)
    assert [type(order) for order in hall.orders] == [effects.RunJob]
    hall.answer()
    assert hall.orders == [
        effects.RunJob("gpu0", "job-4", B),
        effects.EvictModel("gpu0", A),
    ]


def test_a_job_goes_to_the_gpu_where_its_model_is() -> None:
    for policy in (Fifo(MODELS), Lru(MODELS), Grouped(MODELS)):
        hall = Hall(policy, gpus=2)
        hall.submit(A, B)
        hall.settle()
        hall.submit(B)
        assert hall.orders == [effects.RunJob("gpu1", "job-3", B)]


def test_two_gpus_load_the_model_that_one_alone_cannot_serve() -> None:
    for policy in (Fifo(MODELS), Lru(MODELS), Grouped(MODELS)):
        hall = Hall(policy, gpus=2)
        hall.submit(A)
        hall.settle()
        hall.submit(A, A)
        assert hall.orders == [
            effects.RunJob("gpu0", "job-2", A),
            effects.LoadModel("gpu1", A),
        ]
