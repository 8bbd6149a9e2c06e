"""Seconds a step, by the placement that they were measured in."""

import pytest

from workshop_gpu.conductor.estimates import Estimates

STAGED = "encoders staged"


def test_a_placement_has_seconds_of_its_own() -> None:
    estimates = Estimates()
    estimates.learn_run("m", 100, 10, 2.0)
    estimates.learn_run("m", 100, 10, 5.0, placement=STAGED)
    assert estimates.run_s("m", 100, 10) == 2.0
    assert estimates.run_s("m", 100, 10, placement=STAGED) == 5.0
    assert estimates.run_s("m", 100, 10, placement="vae staged") == 2.0


def test_a_model_that_was_never_resident_is_as_fast_as_where_it_ran() -> None:
    estimates = Estimates()
    estimates.learn_run("m", 100, 10, 5.0, placement=STAGED)
    assert estimates.run_s("m", 100, 10) == 5.0
    assert estimates.run_s("other", 100, 10) is None


def test_whole_jobs_are_believed_for_the_same_number_of_steps_only() -> None:
    """What comes once per job, such as staged weights, cannot be told from the steps."""
    estimates = Estimates()
    estimates.learn_run("m", 100, 10, 5.0, placement=STAGED)
    assert estimates.measured_run_s("m", 100, 10, 1) == {STAGED: 5.0}
    assert estimates.measured_run_s("m", 100, 20, 1) == {}
    assert estimates.measured_run_s("m", 200, 10, 1) == {}


def test_what_was_learned_of_placements_outlives_the_server() -> None:
    estimates = Estimates()
    estimates.learn_run("m", 100, 10, 5.0, placement=STAGED)
    estimates.learn_working("m", 100, 1, 70, STAGED)
    estimates.learn_bus(5e9)
    again = Estimates(estimates.learned())
    assert again.learned() == estimates.learned()
    assert again.bus_bytes_per_s() == 5e9
    assert again.activations("m", 0, 100, 1).by_kind == ((STAGED, 77),)


def test_what_a_picture_takes_besides_its_steps_is_told_apart_from_them() -> None:
    """So a job of few steps says how long one of many takes."""
    estimates = Estimates()
    estimates.learn_run("m", 100, 2, 1.5, steps_s=0.5)
    assert estimates.run_s("m", 100, 2) == 1.5
    assert estimates.run_s("m", 100, 28) == 0.25 * 28 + 1.0
    assert estimates.run_s("m", 100, 28 * 3, images=3) == 0.25 * 28 * 3 + 3.0
    assert estimates.run_s("m", 200, 28) == 2 * (0.25 * 28 + 1.0), "of a picture twice as large"
    assert Estimates(estimates.learned()).run_s("m", 100, 28) == 8.0


def test_of_several_pictures_in_a_job_each_takes_its_part() -> None:
    estimates = Estimates()
    estimates.learn_run("m", 100, 40, 12.0, steps_s=8.0, images=4)
    assert estimates.run_s("m", 100, 10) == 2.0 + 1.0


@pytest.mark.parametrize("steps_s", [0.0, -1.0, 7.0])
def test_steps_that_were_not_measured_have_all_of_the_job(steps_s: float) -> None:
    estimates = Estimates()
    estimates.learn_run("m", 100, 10, 5.0, steps_s=steps_s)
    assert estimates.run_s("m", 100, 20) == 10.0


def test_the_same_is_told_apart_in_every_placement_and_with_compiled_blocks() -> None:
    estimates = Estimates()
    estimates.learn_run("m", 100, 10, 6.0, placement=STAGED, steps_s=4.0)
    estimates.learn_run("m", 100, 10, 3.0, compiled=True, steps_s=2.0)
    assert estimates.measured_run_s("m", 100, 10, 1) == {STAGED: 6.0}
    assert estimates.run_s("m", 100, 20, placement=STAGED) == 10.0
    assert estimates.run_s("m", 100, 20, compiled=True) == 5.0
    assert estimates.once_s("m", 100, 1) == 1.0, "the least, for it was never resident uncompiled"
    estimates.learn_run("m", 100, 10, 5.5, steps_s=5.0)
    assert estimates.once_s("m", 100, 1) == 0.5
    assert Estimates(estimates.learned()).learned() == estimates.learned()


def test_a_single_step_which_cannot_be_measured_takes_what_is_left() -> None:
    estimates = Estimates()
    estimates.learn_run("m", 100, 4, 2.0, steps_s=1.0)
    estimates.learn_run("m", 100, 1, 1.25)
    assert estimates.run_s("m", 100, 1) == 1.25
    assert estimates.run_s("m", 100, 4) == 2.0
    estimates.learn_run("m", 100, 1, 0.5)
    assert estimates.run_s("m", 100, 1) == (0.25 + 0.5) / 2 + 1.0, "faster than it ever was"


def test_jobs_whose_prompt_was_known_teach_their_steps_alone() -> None:
    """They have no text encoder come: the next prompt is a new one, as far as anybody knows."""
    estimates = Estimates()
    estimates.learn_run("m", 100, 10, 3.0, placement=STAGED, steps_s=2.0)
    estimates.learn_run("m", 100, 10, 1.6, placement=STAGED, steps_s=1.5, encoded=False)
    assert estimates.once_s("m", 100, 1) == 1.0
    step_s = estimates.run_s("m", 100, 10, placement=STAGED) - 1.0
    assert 1.5 <= step_s < 2.0
