"""On which device."""

from workshop_gpu.conductor.placement import Option, another_is_worth_it, best, never_fits


def test_the_device_where_least_must_leave_is_best_then_the_emptiest_then_the_first() -> None:
    evicting = Option("gpu0", 50, ("x",), 10)
    narrow, wide, other = Option("gpu1", 20), Option("gpu2", 40), Option("gpu3", 40)
    assert best([evicting, narrow, wide, other]) is wide
    assert best([evicting]) is evicting
    assert best([]) is None


def test_a_device_that_computes_nothing_is_better_and_one_that_takes_from_nobody_best() -> None:
    busy, taking = Option("gpu0", 50, busy=True), Option("gpu1", 0, ("x",), 10, wanted=True)
    evicting = Option("gpu2", 0, ("y",), 10)
    assert best([busy, taking, evicting]) is evicting
    assert best([busy, taking]) is busy


def test_another_copy_is_worth_it_where_it_comes_sooner_than_a_turn() -> None:
    assert another_is_worth_it(1, 5.0, there=0, coming=0, free_in_s=0.0, load_s=60.0)
    assert not another_is_worth_it(1, 5.0, there=1, coming=0, free_in_s=4.0, load_s=6.0)
    assert another_is_worth_it(1, 5.0, there=1, coming=0, free_in_s=4.0, load_s=0.5)
    assert another_is_worth_it(3, 15.0, there=1, coming=0, free_in_s=4.0, load_s=6.0)
    assert not another_is_worth_it(3, 15.0, there=3, coming=0, free_in_s=2.0, load_s=6.0)


def test_no_more_devices_load_a_model_than_jobs_wait_for_it() -> None:
    assert not another_is_worth_it(1, 500.0, there=0, coming=1, free_in_s=0.0, load_s=1.0)
    assert another_is_worth_it(2, 500.0, there=0, coming=1, free_in_s=0.0, load_s=1.0)


def test_a_model_never_fits_only_if_every_device_is_known_and_too_small() -> None:
    assert never_fits(90, [40, 80])
    assert not never_fits(80, [40, 80])
    assert not never_fits(90, [40, 0])
    assert not never_fits(90, [])
