"""Expected waits."""

import pytest

from workshop_gpu.conductor.waits import Lane, Turn, expected_waits, rounded


def test_jobs_wait_for_those_before_them() -> None:
    turns = [Turn("a", 6.0, 5.0), Turn("a", 6.0, 5.0), Turn("a", 6.0, 5.0)]
    assert expected_waits(turns, [Lane(2.0, {"a": 0.0})]) == [2.0, 7.0, 12.0]


def test_a_load_goes_on_while_others_run_and_loads_go_one_after_the_other() -> None:
    turns = [Turn("a", 6.0, 5.0), Turn("b", 6.0, 5.0), Turn("c", 6.0, 5.0)]
    assert expected_waits(turns, [Lane(2.0, {"a": 0.0})]) == [2.0, 7.0, 12.0]
    assert expected_waits(turns, [Lane(0.0, {}, transfer_s=3.0)]) == [9.0, 15.0, 21.0]


def test_a_batch_is_waited_for_once() -> None:
    turns = [Turn("a", 6.0, 8.0, "group", 2)] * 3 + [Turn("a", 6.0, 5.0)]
    assert expected_waits(turns, [Lane(0.0, {"a": 0.0})]) == [0.0, 0.0, 8.0, 16.0]


def test_nobody_joins_a_batch_that_is_no_longer_the_last() -> None:
    turns = [Turn("a", 6.0, 8.0, "group", 2), Turn("b", 1.0, 5.0), Turn("a", 6.0, 8.0, "group", 2)]
    assert expected_waits(turns, [Lane(0.0, {"a": 0.0})]) == [0.0, 8.0, 13.0]


def test_two_devices_share_the_queue() -> None:
    turns = [Turn("a", 6.0, 5.0)] * 4
    assert expected_waits(turns, [Lane(0.0, {"a": 0.0}), Lane(0.0, {"a": 0.0})]) == [
        0.0,
        0.0,
        5.0,
        5.0,
    ]


def test_a_loaded_model_is_there_for_the_next_job() -> None:
    turns = [Turn("a", 6.0, 5.0), Turn("a", 6.0, 5.0)]
    assert expected_waits(turns, [Lane(0.0)]) == [6.0, 11.0]


def test_nothing_is_said_from_where_something_is_unknown() -> None:
    assert expected_waits([Turn("a", 1.0, None), Turn("a", 1.0, 5.0)], [Lane(0.0)]) == [1.0, None]
    assert expected_waits([Turn("a", None, 5.0)], [Lane(0.0)]) == [None]
    assert expected_waits([Turn("a", 1.0, 5.0)], [Lane(None)]) == [None]
    assert expected_waits([Turn("a", 1.0, 5.0)], []) == [None]


@pytest.mark.parametrize(
    ("exact_s", "told_s"), [(0.2, 0), (0.9, 1), (11, 10), (47, 50), (299, 300), (1234, 1260)]
)
def test_waits_are_told_in_coarse_steps(exact_s: float, told_s: float) -> None:
    assert rounded(exact_s) == told_s
