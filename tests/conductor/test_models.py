"""The catalogue, pins, preloads, evictions on request, keep-warm times."""

import pytest

from tests.conductor.staging import GB, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.states import SlotState


def test_an_unknown_model_is_refused_with_those_that_are_offered() -> None:
    room = stage(model("a"), model("off", enabled=False))
    error = room.refused(room.job_submitted("b"))
    assert error.kind == "model_unknown"
    assert error.facts["known"] == ["a"]


def test_a_model_that_is_switched_off_or_broken_is_refused_with_the_reason() -> None:
    room = stage(
        model("off", enabled=False, disabled_reason="too slow"),
        model("broken", problem="a file is missing"),
    )
    assert room.refused(room.job_submitted("off")).facts["reason"] == "too slow"
    assert "a file is missing" in room.refused(room.job_submitted("broken")).message


def test_a_job_of_no_size_is_refused() -> None:
    room = stage()
    assert room.refused(room.job_submitted("a", pixels=0)).facts["field"] == "pixels"


def test_a_job_id_is_used_once() -> None:
    room = stage()
    job = room.submit("a")
    assert room.refused(room.job_submitted("a", "bob", job=job)).kind == "invalid_request"


def test_a_model_leaves_after_its_keep_warm_time() -> None:
    room = stage(model("a", keep_warm_s=60.0))
    room.load("a")
    told = [type(effect).__name__ for effect in room.later(59.0)]
    assert told == ["AnnounceWaits"]
    new = room.later(1.0)
    assert effects.EvictModel("gpu0", "a") in new
    new = room.answer()
    (left,) = [effect for effect in new if isinstance(effect, effects.AnnounceSlot)]
    assert left.slot.state is SlotState.ABSENT
    assert left.freed_bytes == 30 * GB
    assert left.why == "not used for 60 s"


def test_a_keep_warm_time_of_0_means_at_once_and_below_0_never() -> None:
    room = stage(model("a", keep_warm_s=0.0), model("b", keep_warm_s=-1.0))
    room.load("b")
    room.submit("a")
    room.answer()
    room.answer()
    assert room.order() == "evict a"
    room.answer()
    room.later(10**6)
    assert room.models() == ["b"]


def test_a_preload_that_was_not_used_yet_does_not_leave_at_once() -> None:
    room = stage(model("a", keep_warm_s=0.0))
    room.tell(events.ModelWanted("a"))
    room.answer()
    assert room.models() == ["a"]
    room.later(60.0)
    assert room.order() == "evict a"


def test_a_pinned_model_is_loaded_when_its_device_is_ready_and_stays() -> None:
    room = stage(model("a", pinned=True, keep_warm_s=1.0), model("b"), gb=40)
    assert room.order() == "load a"
    room.answer()
    assert room.slot("a").pinned
    room.submit("b")
    for _ in range(20):
        room.later(100.0)
    assert room.order() == ""
    assert room.models() == ["a"]


def test_two_pinned_models_that_do_not_fit_together_do_not_take_turns() -> None:
    room = stage(model("a", pinned=True), model("b", pinned=True), gb=40)
    room.answer()
    for _ in range(20):
        room.later(100.0)
    assert room.models() == ["a"]
    assert room.order() == ""


def test_a_preload_is_loaded_and_then_no_longer_wanted() -> None:
    room = stage(model("a", keep_warm_s=60.0))
    room.tell(events.ModelWanted("a"))
    room.answer()
    room.later(60.0)
    room.answer()
    room.later(60.0)
    assert room.order() == ""
    assert room.models() == []


def test_a_preload_that_failed_is_not_tried_for_ever_but_again_by_hand() -> None:
    room = stage()
    room.tell(events.ModelWanted("a"))
    room.fail()
    room.later(1000.0)
    assert room.order() == ""
    assert room.slot("a").state is SlotState.FAILED
    room.tell(events.ModelWanted("a"))
    assert room.order() == "load a"


def test_a_pin_or_hold_whose_load_failed_is_not_tried_for_ever() -> None:
    room = stage(model("a", pinned=True))
    room.fail()
    room.later(1000.0)
    assert room.order() == ""
    room.hold("a")
    assert room.order() == "load a"
    room.fail()
    room.later(10.0)
    assert room.order() == ""


def test_an_instructor_can_have_any_idle_model_evicted() -> None:
    room = stage()
    room.load("a")
    new = room.tell(events.EvictionAsked("a"))
    assert effects.EvictModel("gpu0", "a") in new
    room.answer()
    assert room.refused(events.EvictionAsked("a")).kind == "model_not_loaded"
    assert room.refused(events.EvictionAsked("nothing")).kind == "model_unknown"


def test_a_model_that_runs_or_is_held_is_not_evicted_on_request() -> None:
    room = stage()
    room.load("a")
    room.submit("a")
    error = room.refused(events.EvictionAsked("a"))
    assert (error.kind, error.facts["running_jobs"]) == ("model_in_use", 1)
    room.answer()
    room.hold("a")
    assert room.refused(events.EvictionAsked("a")).facts["holds"] == 1


def test_an_eviction_that_was_asked_for_begins_when_the_device_is_idle() -> None:
    room = stage()
    room.load("a", "b")
    running = room.submit("b", "bob")
    room.tell(events.EvictionAsked("a"))
    assert room.order() == f"run {running}"
    room.answer()
    assert room.order() == "evict a"


def test_a_pinned_model_that_was_evicted_on_request_returns_when_somebody_asks_for_it() -> None:
    room = stage(model("a", pinned=True))
    room.answer()
    room.tell(events.EvictionAsked("a"))
    room.answer()
    room.later(1000.0)
    assert room.order() == ""
    room.submit("a")
    assert room.order() == "load a"
    room.answer()
    assert room.slot("a").pinned


def test_a_pinned_model_that_somebody_asks_for_before_it_has_left_stays() -> None:
    room = stage(model("a", pinned=True), model("b", gb=10), model("c", gb=10))
    room.answer()
    room.load("b")
    running = room.submit("b", "bob")
    room.tell(events.ModelWanted("c"))
    room.tell(events.EvictionAsked("a"))  # it cannot leave yet
    job = room.submit("a")
    room.answer(which="load")
    assert room.orders_of() == [f"run {running}"]
    room.answer()
    assert room.orders_of() == [f"run {job}"]
    room.answer()
    assert room.orders_of() == []
    assert room.slot("a").pinned


def test_a_load_that_an_instructor_no_longer_wants_leaves_when_it_has_ended() -> None:
    room = stage()
    room.tell(events.ModelWanted("a"))
    room.tell(events.EvictionAsked("a"))
    room.answer()
    assert room.order() == "evict a"


def test_a_load_that_others_wait_for_is_used_although_its_eviction_was_asked_for() -> None:
    room = stage()
    job = room.submit("a")
    room.tell(events.EvictionAsked("a"))
    room.answer()
    assert room.order() == f"run {job}"
    room.answer()
    assert room.models() == ["a"]


def test_a_model_that_is_switched_off_serves_the_accepted_jobs_and_then_leaves() -> None:
    room = stage(model("a", pinned=True))
    room.answer()
    running, waiting = room.submit("a", "ada"), room.submit("a", "bob")
    room.tell(events.CatalogueChanged((model("a", enabled=False, pinned=True),)))
    assert room.refused(room.job_submitted("a")).kind == "model_disabled"
    room.answer()
    assert room.order() == f"run {waiting}"
    room.answer()
    assert (room.state(running), room.state(waiting)) == ("done", "done")
    assert room.order() == "evict a"
    room.answer()
    room.later(100.0)
    assert room.order() == ""


def test_a_model_that_left_the_catalogue_fails_its_waiting_jobs_and_leaves_when_idle() -> None:
    room = stage()
    room.load("a")
    room.hold("a")
    running, waiting = room.submit("a", "ada"), room.submit("a", "bob")
    room.tell(events.CatalogueChanged((model("b"),)))
    assert room.state(waiting) == "failed"
    assert room.refused(events.HoldDropped("hold")).kind == "hold_ended"
    room.answer()
    assert room.state(running) == "done"
    assert room.order() == "evict a"
    room.answer()
    assert room.refused(events.EvictionAsked("a")).kind == "model_unknown"


def test_a_model_whose_files_broke_fails_those_who_wait_unless_it_is_loaded() -> None:
    room = stage(gb=40)
    room.load("a")
    warm, cold = room.submit("a", "ada"), room.submit("b", "bob")
    broken = [model(name, problem="a file is missing") for name in ("a", "b")]
    room.tell(events.CatalogueChanged(tuple(broken)))
    assert room.state(warm) == "running"
    assert room.job(cold).error is not None
    assert room.job(cold).error.kind == "model_unavailable"


def test_a_changed_entry_may_be_tried_again() -> None:
    room = stage(model("a", pinned=True))
    room.fail()
    room.tell(events.CatalogueChanged((model("a", gb=20, pinned=True),)))
    assert room.order() == "load a"


def test_the_same_catalogue_again_changes_nothing() -> None:
    room = stage(model("a"), model("b"))
    room.load("a")
    assert room.tell(events.CatalogueChanged((model("a"), model("b")))) == []


# loads that fail


def test_a_failed_load_wakes_all_who_wait_and_refuses_others_for_a_while_with_its_cause() -> None:
    room = stage()
    jobs = [room.submit("a", who) for who in ("ada", "bob")]
    room.fail()
    assert [room.state(job) for job in jobs] == ["failed", "failed"]
    room.now += 10.0
    report = room.refused(room.job_submitted("a", "cleo"))
    assert report.kind == "load_failed"
    assert report.facts["retry_in_s"] == 20.0
    held = events.HoldTaken("h", "cleo", "kernel-cleo", "a", 60.0)
    assert room.refused(held).kind == "load_failed"
    room.now += 20.0
    room.submit("a", "cleo")
    assert room.order() == "load a"


def test_an_instructor_tries_a_failed_load_again_at_once() -> None:
    room = stage()
    room.submit("a")
    room.fail()
    room.tell(events.ModelWanted("a"))
    assert room.order() == "load a"
    room.submit("a", "bob")
    room.answer()
    room.settle()


def test_a_load_that_failed_on_one_device_is_tried_on_another() -> None:
    room = stage(devices=("gpu0", "gpu1"))
    job = room.submit("a")
    room.fail("gpu0")
    assert room.state(job) == "queued"
    assert room.order("gpu1") == "load a"
    room.submit("a", "bob")
    assert room.orders_of("gpu0") == []


# what can never fit


def test_a_picture_that_never_fits_is_refused_with_the_size_that_would() -> None:
    room = stage(gb=33)
    report = room.refused(room.job_submitted("a", pixels=4096 * 4096))
    assert report.kind == "model_too_large"
    side = report.facts["fitting_side"]
    assert isinstance(side, int)
    assert f"{side} × {side} pixels would fit" in report.message
    room.submit("a", pixels=side * side)
    assert room.refused(room.job_submitted("a", pixels=(side + 64) ** 2)).kind == report.kind


def test_a_model_that_fits_at_no_size_is_refused_with_what_is_missing() -> None:
    report = stage(model("big", gb=90.0)).refused(events.ModelWanted("big"))
    assert report.kind == "model_too_large"
    assert report.facts["fitting_side"] == 0
    assert "missing" in report.message


# bad names


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "a\x00"])
def test_names_that_are_long_or_cannot_be_shown_are_refused(name: str) -> None:
    room = stage()
    for event in (
        events.JobSubmitted(name, "ada", None, "a", 28, 64),
        events.JobSubmitted("job", name, None, "a", 28, 64),
        events.JobSubmitted("job", "ada", name, "a", 28, 64),
        events.HoldTaken("hold", name, None, "a", 60.0),
    ):
        assert room.refused(event).kind == "invalid_request"
