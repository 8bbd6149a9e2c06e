"""An idle model comes up again when there is room, takes nothing from others, and does not flap."""

import msgspec
import pytest

from tests.conductor.laddered import laddered, loaded, ordered
from tests.conductor.staging import GB, MEGAPIXEL, Stage, stage
from workshop_gpu.conductor import events
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.planning import Size
from workshop_gpu.conductor.rungs import RESIDENT


def narrow_and_idle(gb: float = 48, foreign_gb: float = 36) -> Stage:
    """A model on a low rung, idle, and so much more room than before."""
    made = stage(laddered(), laddered("small"), gb=gb)
    made.foreign(foreign_gb)
    draw_slowly(made, made.submit("large"))
    made.foreign(0)
    return made


def draw_slowly(made: Stage, job: str) -> None:
    """The job has to wait for its weights at each step."""
    while made.order().startswith("load"):
        loaded(made)
    made.take_order("gpu0", "run")
    made.finish(job, 24.0)


def test_an_idle_model_climbs_once_there_is_room_and_it_has_rested() -> None:
    made = narrow_and_idle()
    assert not made.order(), "it has just drawn"
    made.later(10.0)
    assert made.order() == "load large"
    assert ordered(made) == RESIDENT
    loaded(made)
    made.submit("large")
    assert made.order().startswith("run")


def test_a_job_that_waited_for_its_weights_says_nothing_of_how_fast_others_are() -> None:
    """Else a model that began on a low rung would stay there for ever."""
    made = narrow_and_idle()
    rungs = {
        rung.rung: rung
        for rung in made.conductor.plan("large", Size(MEGAPIXEL, 1, 28), made.now).rungs
    }
    assert (rungs["resident"].chosen, rungs["resident"].basis) == (True, "guess")
    assert rungs["resident"].expected_s < 10
    made.submit("large")
    assert ordered(made) == RESIDENT


def test_one_that_computed_for_long_is_as_slow_elsewhere() -> None:
    made = stage(laddered(), gb=24)
    job = made.submit("large")
    loaded(made)
    made.take_order("gpu0", "run")
    made.finish(job, 200.0)
    rungs = made.conductor.plan("large", Size(MEGAPIXEL, 1, 28), made.now).rungs
    assert min(rung.expected_s for rung in rungs) == pytest.approx(200.0)


def test_a_model_does_not_climb_while_somebody_waits_for_memory() -> None:
    made = narrow_and_idle()
    made.tell(events.ReservationAsked("room", "bob", "k-bob", 45 * GB, "gpu0"))
    while made.order():
        made.answer()
    made.later(20.0)
    assert not made.order().startswith("load")


def test_nor_while_its_device_draws_for_others() -> None:
    made = narrow_and_idle()
    made.submit("small")
    loaded(made)
    made.later(20.0)
    assert made.orders_of("gpu0") == ["run job-2"]
    made.answer()
    made.later(10.0)
    assert made.order() == "load large"


def test_an_idle_model_does_not_flap_when_memory_comes_and_goes() -> None:
    """It goes up as there is room; down it goes for a job only, and then may go up again."""
    made = narrow_and_idle()
    ups = 0
    for minute in range(20):
        made.foreign(16 if minute % 2 else 0)
        made.later(30.0)
        while made.order():
            ups += 1
            loaded(made)
    assert ups == 1


def test_an_idle_model_on_the_rung_that_the_instructor_named_stays() -> None:
    made = stage(laddered(memory=MemorySettings(placement="all-streamed")))
    made.submit("large")
    loaded(made)
    made.answer()
    made.later(60.0)
    assert not made.order()


def test_after_a_rung_for_a_single_job_the_model_comes_back() -> None:
    made = stage(laddered())
    made.tell(msgspec.structs.replace(made.job_submitted("large"), placement="tiled"))
    loaded(made)
    made.answer()
    made.later(10.0)
    assert ordered(made) == RESIDENT


def test_it_does_not_climb_for_nothing() -> None:
    """A little more room, and a placement that costs no time: it stays as it is."""
    made = stage(laddered(), gb=24)
    made.submit("large")
    loaded(made)
    made.answer()
    placement = made.slot("large").placement
    for _ in range(5):
        made.later(30.0)
        made.submit("large")
        assert made.order().startswith("run")
        made.answer()
    assert made.slot("large").placement == placement
