"""Kernels' references on models."""

import pytest

from tests.conductor.staging import model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Settings
from workshop_gpu.conductor.errors import HoldEnded, HoldUnknown


def test_a_hold_loads_its_model_and_keeps_it() -> None:
    room = stage(gb=40)
    room.hold("a", ttl_s=1000.0)
    assert room.order() == "load a"
    room.answer()
    assert room.slot("a").holds == 1
    job = room.submit("b", "bob")
    for _ in range(100):
        room.later(5.0)
        assert room.order() == ""
    assert room.job(job).waiting_for == "room"
    room.tell(events.HoldDropped("hold"))
    assert room.order() == "evict a"


def test_a_hold_ends_when_its_time_is_over() -> None:
    room = stage()
    room.hold("a", ttl_s=60.0)
    room.later(59.0)
    room.tell(events.HoldRenewed("hold", "kernel-ada", 60.0))
    room.later(59.0)
    assert room.conductor.hold("hold", room.now).expires_in_s == 1.0
    new = room.later(1.0)
    assert [e.ended for e in new if isinstance(e, effects.AnnounceHold)] == ["its time was over"]
    assert room.refused(events.HoldRenewed("hold", "kernel-ada", 60.0)).kind == "hold_ended"
    with pytest.raises(HoldEnded):
        room.conductor.hold("hold", room.now)


def test_a_hold_whose_time_is_over_is_not_renewed_even_before_the_tick() -> None:
    room = stage()
    room.hold("a", ttl_s=60.0)
    room.now += 60.0
    assert room.refused(events.HoldRenewed("hold", "kernel-ada", 60.0)).kind == "hold_ended"


def test_another_kernel_cannot_renew_it_not_even_one_of_the_same_participant() -> None:
    room = stage()
    room.hold("a", "ada", ttl_s=60.0)
    for kernel in ("kernel-bob", "another kernel of ada", None):
        assert room.refused(events.HoldRenewed("hold", kernel, 600.0)).kind == "hold_unknown"
    assert room.conductor.hold("hold", room.now).expires_in_s == 60.0
    room.tell(events.HoldRenewed("hold", "kernel-ada", 600.0))
    assert room.conductor.hold("hold", room.now).expires_in_s == 600.0


def test_unknown_and_ended_holds_are_told_apart() -> None:
    room = stage()
    room.hold("a")
    room.tell(events.HoldDropped("hold"))
    assert room.refused(events.HoldDropped("hold")).kind == "hold_ended"
    assert room.refused(events.HoldDropped("other")).kind == "hold_unknown"
    assert room.refused(events.HoldRenewed("other", "kernel-ada", 60.0)).kind == "hold_unknown"
    with pytest.raises(HoldUnknown):
        room.conductor.hold("other", room.now)


def test_ended_holds_are_remembered_up_to_a_number() -> None:
    room = stage(settings=Settings(remembered_holds=1))
    for name in ("one", "two"):
        room.hold("a", hold=name)
        room.tell(events.HoldDropped(name))
    assert room.refused(events.HoldDropped("one")).kind == "hold_unknown"
    assert room.refused(events.HoldDropped("two")).kind == "hold_ended"


def test_holds_and_waiting_jobs_end_with_their_kernel_and_running_jobs_finish() -> None:
    room = stage()
    room.load("a")
    running, waiting = room.submit("a", "ada"), room.submit("a", "ada")
    others = room.submit("a", "bob")
    room.hold("a", "ada")
    room.tell(events.KernelGone("kernel-ada"))
    assert room.state(waiting) == "cancelled"
    assert room.slot("a").holds == 0
    assert room.state(running) == "running"
    room.answer()
    assert room.state(running) == "done"
    assert room.order() == f"run {others}"


def test_a_job_whose_kernel_and_worker_ended_is_not_run_again() -> None:
    room = stage()
    room.load("a")
    job = room.submit("a")
    room.tell(events.KernelGone("kernel-ada"))
    room.die()
    assert room.state(job) == "cancelled"


def test_a_hold_outlives_the_worker_and_has_its_model_loaded_again() -> None:
    room = stage()
    room.hold("a")
    room.answer()
    room.die()
    assert room.conductor.hold("hold", room.now).model == "a"
    room.ready()
    assert room.order() == "load a"


def test_two_holds_on_one_model_count_as_two() -> None:
    room = stage(gb=40)
    room.hold("a", "ada", ttl_s=1000.0)
    room.answer()
    room.hold("a", "bob", ttl_s=1000.0, hold="second")
    room.submit("b", "cleo")
    room.tell(events.HoldDropped("hold"))
    room.later(30.0)
    assert room.order() == ""
    room.tell(events.HoldDropped("second"))
    assert room.order() == "evict a"


def test_a_hold_waits_for_the_jobs_at_first_and_goes_before_them_after_the_patience() -> None:
    room = stage(gb=40)
    room.load("a")
    room.submit("a", "ada")
    room.hold("b", "bob", ttl_s=1000.0)
    for number in range(20):
        room.submit("a", f"p{number}")
    while room.order().startswith("run"):
        room.now += 5.0
        room.answer()
    assert room.order() == "evict a"
    patience_s = Settings().patience_s
    assert patience_s < room.now < patience_s + 20.0


def test_the_keep_warm_time_counts_from_the_end_of_a_hold() -> None:
    room = stage(model("a", keep_warm_s=30.0))
    room.hold("a", ttl_s=100.0)
    room.answer()
    room.later(100.0)
    room.later(29.0)
    assert room.order() == ""
    room.later(1.0)
    assert room.order() == "evict a"


def test_a_hold_stops_an_eviction_that_was_asked_for_and_did_not_begin() -> None:
    room = stage(gb=120)
    room.load("a", "b")
    room.tell(events.ModelWanted("c"))
    room.tell(events.EvictionAsked("a"))
    room.hold("a")
    room.answer()
    assert room.order() == ""
    room.tell(events.HoldDropped("hold"))
    assert room.order() == ""
    assert room.models() == ["a", "b", "c"]


@pytest.mark.parametrize("ttl_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_hold_without_a_time_to_live_is_refused(ttl_s: float) -> None:
    room = stage()
    event = events.HoldTaken("hold", "ada", "kernel", "a", ttl_s)
    assert room.refused(event).kind == "invalid_request"
    room.hold("a")
    assert room.refused(events.HoldRenewed("hold", "kernel-ada", ttl_s)).kind == "invalid_request"


def test_a_hold_on_what_cannot_be_loaded_is_refused() -> None:
    room = stage(
        model("off", enabled=False), model("broken", problem="no files"), model("huge", gb=100)
    )
    kinds = [
        room.refused(events.HoldTaken("hold", "ada", "kernel", name, 60.0)).kind
        for name in ("off", "broken", "huge", "nothing")
    ]
    assert kinds == ["model_disabled", "model_unavailable", "model_too_large", "model_unknown"]
