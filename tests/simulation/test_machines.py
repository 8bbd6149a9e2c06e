"""The simulated GPUs refuse what no GPU could do."""

import pytest

from workshop_gpu.conductor import effects, events
from workshop_gpu.simulation.clock import Clock
from workshop_gpu.simulation.machines import Impossible, Machines
from workshop_gpu.simulation.room import read_room


class Bench:
    """Machines with their clock, and what they told."""

    def __init__(self) -> None:
        models = read_room("workshop").by_name
        self.clock = Clock()
        self.told: list[tuple[float, events.Event]] = []
        self.machines = Machines(
            {"gpu0": 80_000_000_000},
            models,
            lambda facts: facts.load_s.pool,
            self.clock,
            lambda event: self.told.append((self.clock.now, event)),
        )
        self.a, self.b, self.c = models

    def do(self, *orders: effects.LoadModel | effects.EvictModel | effects.RunJob) -> None:
        for order in orders:
            match order:
                case effects.LoadModel():
                    self.machines.load(order)
                case effects.EvictModel():
                    self.machines.evict(order)
                case effects.RunJob():
                    self.machines.run(order)

    def have(self, *models: str) -> None:
        for model in models:
            self.do(effects.LoadModel("gpu0", model))
            self.wait()

    def wait(self) -> None:
        while self.clock.step():
            pass


def test_a_load_and_a_job_take_their_time() -> None:
    bench = Bench()
    bench.have(bench.a)
    bench.do(effects.RunJob("gpu0", "job", bench.a))
    bench.wait()
    assert [(round(time_s, 2), type(event).__name__) for time_s, event in bench.told] == [
        (0.55, "SlotLoaded"),
        (5.99, "JobDrawn"),
        (5.99, "JobFinished"),
    ]


def test_a_load_goes_on_beside_a_job() -> None:
    bench = Bench()
    bench.have(bench.a)
    bench.do(effects.RunJob("gpu0", "job", bench.a), effects.LoadModel("gpu0", bench.b))
    bench.wait()
    assert bench.clock.now == pytest.approx(0.55 + 5.44)


def test_every_job_of_a_batch_is_answered() -> None:
    bench = Bench()
    bench.have(bench.a)
    bench.do(effects.RunJob("gpu0", "one", bench.a, ("two",)))
    bench.wait()
    drawn = [event for _, event in bench.told if isinstance(event, events.JobDrawn)]
    assert [(event.job, event.batch) for event in drawn] == [("one", 2), ("two", 2)]
    assert drawn[0].seconds_s == pytest.approx(2 * 5.44)
    finished = [event.job for _, event in bench.told if isinstance(event, events.JobFinished)]
    assert finished == ["one", "two"]


def test_a_third_model_has_no_room() -> None:
    bench = Bench()
    bench.have(bench.a, bench.b)
    with pytest.raises(Impossible, match="no room"):
        bench.do(effects.LoadModel("gpu0", bench.c))


def test_memory_comes_back_when_a_model_has_left_and_not_before() -> None:
    bench = Bench()
    bench.have(bench.a, bench.b)
    bench.do(effects.EvictModel("gpu0", bench.a))
    with pytest.raises(Impossible, match="being moved"):
        bench.do(effects.LoadModel("gpu0", bench.c))
    bench.wait()
    bench.have(bench.c)


def test_nothing_runs_on_a_model_that_is_not_there_or_leaves() -> None:
    bench = Bench()
    with pytest.raises(Impossible, match="not ready"):
        bench.do(effects.RunJob("gpu0", "job", bench.a))
    bench.have(bench.a)
    bench.do(effects.EvictModel("gpu0", bench.a))
    with pytest.raises(Impossible, match="not ready"):
        bench.do(effects.RunJob("gpu0", "job", bench.a))


def test_a_model_that_is_used_cannot_leave_and_two_jobs_do_not_run_at_once() -> None:
    bench = Bench()
    bench.have(bench.a)
    bench.do(effects.RunJob("gpu0", "job", bench.a))
    with pytest.raises(Impossible, match="two jobs"):
        bench.do(effects.RunJob("gpu0", "other", bench.a))
    with pytest.raises(Impossible, match="cannot leave"):
        bench.do(effects.EvictModel("gpu0", bench.a))


def test_a_model_is_loaded_once() -> None:
    bench = Bench()
    bench.have(bench.a)
    with pytest.raises(Impossible, match="already"):
        bench.do(effects.LoadModel("gpu0", bench.a))
