"""On which device."""

from workshop_gpu.conductor.placement import Option, best, never_fits


def test_the_device_where_least_must_leave_is_best_then_the_emptiest_then_the_first() -> None:
    evicting = Option("gpu0", 50, ("x",), 10)
    narrow, wide, other = Option("gpu1", 20), Option("gpu2", 40), Option("gpu3", 40)
    assert best([evicting, narrow, wide, other]) is wide
    assert best([evicting]) is evicting
    assert best([]) is None


def test_a_model_never_fits_only_if_every_device_is_known_and_too_small() -> None:
    assert never_fits(90, [40, 80])
    assert not never_fits(80, [40, 80])
    assert not never_fits(90, [40, 0])
    assert not never_fits(90, [])
