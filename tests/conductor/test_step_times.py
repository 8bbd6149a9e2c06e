"""Seconds a step, by the placement that they were measured in."""

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
