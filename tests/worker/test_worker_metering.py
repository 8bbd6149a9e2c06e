"""How long a job's steps took."""

import pytest

from workshop_gpu.worker import metering
from workshop_gpu.worker.metering import StepClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StepClock:
    """Each look at the time is a second after the one before."""
    moments = iter(range(100))
    monkeypatch.setattr(metering, "_now", lambda on_card: float(next(moments)))
    return StepClock(on_card=False)


def test_the_first_step_is_taken_to_be_as_long_as_the_others(clock: StepClock) -> None:
    for index in range(5):
        clock.step_ended(index, 5)
    assert clock.seconds() == pytest.approx(1.0 * 5 / 4), "from the first end to the last, and one"


def test_the_steps_of_all_calls_count_together(clock: StepClock) -> None:
    for _ in range(3):
        for index in range(2):
            clock.step_ended(index, 2)
    assert clock.seconds() == 6.0


def test_a_call_that_broke_off_does_not_count(clock: StepClock) -> None:
    clock.step_ended(0, 4)
    clock.step_ended(1, 4)
    for index in range(4):
        clock.step_ended(index, 4)
    assert clock.seconds() == pytest.approx(4 / 3)


def test_of_a_single_step_nothing_is_known(clock: StepClock) -> None:
    clock.step_ended(0, 1)
    clock.step_ended(0, 2)
    clock.step_ended(1, 2)
    assert clock.seconds() == 0.0
