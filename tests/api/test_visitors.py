"""Limits of requests and streams, with a clock moved by hand."""

import contextlib

import pytest

from workshop_gpu.api.errors import TooManyRequests, TooManyStreams
from workshop_gpu.api.limits import Visitors


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


def asked(visitors, participant="ann", times=1):
    """How many of so many requests are let in."""
    served = 0
    for _ in range(times):
        with contextlib.suppress(TooManyRequests):
            visitors.request(participant)
            served += 1
    return served


def test_a_burst_is_served_and_then_so_many_a_second():
    clock = Clock()
    visitors = Visitors(10.0, 0, clock)
    assert asked(visitors, times=60) == 50
    clock.now_s = 2.0
    assert asked(visitors, times=20) == 10
    clock.now_s = 100.0
    assert asked(visitors, times=60) == 50


def test_nobody_pays_for_another():
    visitors = Visitors(10.0, 0, Clock())
    asked(visitors, times=100)
    assert asked(visitors, "bob", times=50) == 50


def test_a_refusal_says_when_to_go_on_and_is_true():
    clock = Clock()
    visitors = Visitors(10.0, 0, clock)
    asked(visitors, times=50)
    with pytest.raises(TooManyRequests) as refused:
        visitors.request("ann")
    clock.now_s += float(refused.value.report().facts["retry_after_s"]) + 0.1
    visitors.request("ann")


def test_without_a_limit_all_are_served():
    assert asked(Visitors(0.0, 0, Clock()), times=10_000) == 10_000


def test_participants_who_came_once_are_not_remembered_for_ever():
    clock = Clock()
    visitors = Visitors(10.0, 0, clock)
    for number in range(5000):
        clock.now_s += 1.0
        visitors.request(f"client {number}")
    assert len(visitors._accounts) <= 1001


def test_streams_are_counted_by_participant_and_given_back_however_they_end():
    visitors = Visitors(0.0, 2)
    with visitors.stream("ann"), contextlib.suppress(KeyError), visitors.stream("ann"):
        with pytest.raises(TooManyStreams), visitors.stream("ann"):
            pass
        with visitors.stream("bob"):
            pass
        raise KeyError
    with visitors.stream("ann"), visitors.stream("ann"):
        pass
    assert not visitors._streams
