"""The last half hour, with a clock moved by hand."""

from tests.conductor.staging import GB, stage
from workshop_gpu.host.history import History


def test_a_point_each_ten_seconds_and_no_more_than_half_an_hour():
    history, empty = History(), stage().conductor.snapshot(0.0)
    for second in range(3700):
        if history.due(float(second)):
            history.add(empty, float(second))
    points = history.points(3699.0)
    assert len(points) == 180
    assert [points[0].at, points[1].at, points[-1].at] == [1900.0, 1910.0, 3690.0]
    assert history.points(3699.0, after=3670.0) == points[-2:]


def test_a_clock_that_is_set_back_does_not_stop_it():
    history, empty = History(), stage().conductor.snapshot(0.0)
    history.add(empty, 5000.0)
    assert not history.due(5009.0)
    assert history.due(5010.0)
    assert history.due(100.0)


def test_a_point_says_what_is_used_and_who_waits():
    room, history = stage(gb=80), History()
    room.load("a")
    for _ in range(3):
        room.submit("a")
    history.add(room.conductor.snapshot(room.now), 10.0)
    (point,) = history.points(10.0)
    assert (point.waiting, point.running) == (2, 1)
    assert point.used_bytes["gpu0"] >= 30 * GB
    assert point.used_bytes["gpu0"] < 80 * GB
    assert point.reserved_bytes == {}


def test_pictures_a_minute_are_those_of_the_last_minute():
    history, empty = History(), stage().conductor.snapshot(0.0)
    history.made(4, 0.0)
    history.made(1, 30.0)
    history.add(empty, 59.0)
    history.add(empty, 61.0)
    history.add(empty, 95.0)
    rates = [point.images_per_minute for point in history.points(95.0)]
    assert rates == [5.0, 1.0, 0.0]
