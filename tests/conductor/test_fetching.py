"""Models that must be downloaded first."""

import pytest

from tests.conductor.laddered import laddered, notices
from tests.conductor.staging import GB, Stage, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.policy import Policy

NOT_REACHED = ErrorReport("model_unavailable", "the hub was not reached")


def room(**facts: object) -> Stage:
    return stage(model("far", on_disk=False, **facts), model("a"))


def arrived(found: Stage) -> None:
    found.tell(events.CatalogueChanged((model("far"), model("a"))))


def fetches(said: list[effects.Effect]) -> list[str]:
    return [effect.model for effect in said if isinstance(effect, effects.FetchModel)]


def test_a_model_nobody_wants_is_not_downloaded() -> None:
    assert fetches(room().said) == []


def test_one_download_is_shared_by_all_who_wait_and_then_the_model_is_loaded() -> None:
    found = room()
    first = found.submit("far", "ada")
    second = found.submit("far", "ben")
    assert fetches(found.said) == ["far"]
    assert found.order() == ""
    assert found.job(first).waiting_for == "download"
    assert found.job(first).expected_wait_s is None
    arrived(found)
    assert found.order() == "load far"
    found.settle()
    assert (found.state(first), found.state(second)) == ("done", "done")
    assert fetches(found.said) == ["far"]


def test_others_load_and_run_while_a_model_is_downloaded() -> None:
    found = room()
    waiting = found.submit("far", "ada")
    other = found.submit("a", "ben")
    assert found.order() == "load a"
    found.answer()
    found.answer()
    assert found.state(other) == "done"
    assert found.state(waiting) == "queued"


def test_a_hold_a_preload_and_a_pin_want_a_download_too() -> None:
    held = room()
    held.hold("far")
    assert fetches(held.said) == ["far"]
    wanted = room()
    wanted.tell(events.ModelWanted("far"))
    assert fetches(wanted.said) == ["far"]
    arrived(wanted)
    assert wanted.order() == "load far"
    assert fetches(room(pinned=True).said) == ["far"]


def test_a_failed_download_fails_those_who_wait_and_is_tried_again_for_the_next() -> None:
    found = room(pinned=True)
    job = found.submit("far")
    found.tell(events.FetchFailed("far", NOT_REACHED))
    assert found.state(job) == "failed"
    assert found.job(job).error == NOT_REACHED
    found.later(100.0)
    assert fetches(found.said) == ["far"]
    again = found.submit("far")
    assert fetches(found.said) == ["far", "far"]
    arrived(found)
    found.settle()
    assert found.state(again) == "done"


def test_a_stale_failure_changes_nothing() -> None:
    found = room()
    job = found.submit("far")
    arrived(found)
    found.tell(events.FetchFailed("far", NOT_REACHED))
    found.tell(events.FetchFailed("nobody", NOT_REACHED))
    found.settle()
    assert found.state(job) == "done"


def test_a_model_on_a_device_serves_on_though_its_files_were_deleted() -> None:
    found = stage(model("a"))
    found.load("a")
    found.tell(events.CatalogueChanged((model("a", on_disk=False),)))
    job = found.submit("a")
    assert found.order() == f"run {job}"
    assert fetches(found.said) == []


def test_a_cancelled_wait_leaves_nothing_behind_when_the_download_arrives() -> None:
    found = room()
    job = found.submit("far")
    found.tell(events.JobCancelled(job))
    arrived(found)
    assert found.order() == ""


def test_a_guess_by_the_name_keeps_no_model_from_its_download() -> None:
    """Nobody knows what it takes, nor whether it could be streamed, before its files are there."""
    far = events.ModelFacts("flux-tiny", on_disk=False)
    found = stage(far, gb=8)
    job = found.submit("flux-tiny")
    assert fetches(found.said) == ["flux-tiny"]
    found.tell(events.DeviceReady("gpu0", 8 * GB, 0))
    assert found.state(job) == "queued"
    found.tell(events.CatalogueChanged((model("flux-tiny", gb=0.1),)))
    found.settle()
    assert found.state(job) == "done"


def test_a_model_that_turns_out_to_be_too_large_fails_its_jobs_with_the_numbers() -> None:
    found = stage(events.ModelFacts("flux", on_disk=False), gb=8)
    job = found.submit("flux")
    found.tell(events.CatalogueChanged((model("flux", gb=34.0),)))
    error = found.job(job).error
    assert error is not None
    assert error.kind == "model_too_large"
    assert found.refused(found.job_submitted("flux")).kind == "model_too_large"


def test_a_figure_in_the_catalogue_is_believed_before_the_download() -> None:
    found = stage(events.ModelFacts("flux", on_disk=False, explicit_bytes=34 * GB), gb=8)
    assert found.refused(found.job_submitted("flux")).kind == "model_too_large"
    assert fetches(found.said) == []


@pytest.mark.parametrize("wish", ["hold", "preload"])
def test_a_wish_for_a_model_that_turns_out_to_be_too_large_ends_with_the_numbers(wish: str) -> None:
    found = room()
    if wish == "hold":
        found.hold("far", ttl_s=10_000.0)
    else:
        found.tell(events.ModelWanted("far"))
    found.tell(events.CatalogueChanged((model("far", 100), model("a"))))
    found.later(5.0)
    found.tell(events.CatalogueChanged((model("far", 100), model("a", 20))))
    (told,) = notices(found)
    assert "far is not loaded" in told
    assert "79.0 GB" in told
    assert "are missing" in told
    if wish == "hold":
        (ended,) = [each.ended for each in found.said if isinstance(each, effects.AnnounceHold)][1:]
        assert ended in told
        lost = found.refused(events.HoldRenewed("hold", "kernel-ada", 60.0))
        assert (lost.kind, "79.0 GB" in lost.message) == ("hold_ended", True)
    found.tell(events.CatalogueChanged((model("far", 30), model("a"))))
    assert found.order() == ""


def test_a_wish_for_a_model_ends_when_it_cannot_have_the_rung_that_is_named() -> None:
    found = stage(laddered(), gb=20)
    found.foreign(19)
    found.hold("large", ttl_s=10_000.0)
    assert found.order() == ""
    found.tell(events.PolicyChanged(Policy(placements={"large": "resident"})))
    (told,) = notices(found)
    assert "large is not loaded" in told
    assert not found.conductor.snapshot(found.now).holds


def test_a_wish_for_a_model_whose_files_are_broken_ends_with_the_reason() -> None:
    found = room()
    found.tell(events.ModelWanted("far"))
    found.tell(events.CatalogueChanged((model("far", problem="a pickle"), model("a"))))
    assert [told for told in notices(found) if "a pickle" in told] == notices(found) != []


def test_a_hold_on_a_model_that_is_ready_outlives_what_is_learned_of_its_size() -> None:
    found = stage(model("a"))
    found.hold("a", ttl_s=10_000.0)
    found.answer()
    found.tell(events.CatalogueChanged((model("a", 100),)))
    assert found.slot("a").holds == 1
