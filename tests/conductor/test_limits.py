"""Limits of time: downloads, loads, waits and runs, each on its own."""

from tests.conductor.staging import Stage, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Settings
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.states import SlotState

LIMITS = Settings(
    download_limit_s=100.0, load_limit_s=60.0, wait_limit_s=40.0, run_limit_s=30.0, queue_limit=9
)


def stops(said: list[effects.Effect]) -> list[str]:
    return [each.device for each in said if isinstance(each, effects.StopWorker)]


def error(room: Stage, job: str) -> ErrorReport:
    report = room.job(job).error
    assert report is not None
    return report


# downloads


def test_a_download_that_takes_too_long_is_ended_and_those_who_waited_are_told() -> None:
    room = stage(model("a", on_disk=False), settings=LIMITS)
    job = room.submit("a")
    assert effects.StopFetch("a") not in room.later(99.0)
    assert effects.StopFetch("a") in room.later(1.0)
    assert error(room, job).kind == "time_limit"
    assert "download" in error(room, job).message
    assert effects.FetchModel("a") in room.tell(room.job_submitted("a"))


def test_the_end_of_a_download_that_was_given_up_changes_nothing() -> None:
    room = stage(model("a", on_disk=False), settings=LIMITS)
    room.submit("a")
    room.later(100.0)
    late = room.tell(events.FetchFailed("a", ErrorReport("model_unavailable", "stopped")))
    assert late == []


def test_the_time_of_a_download_does_not_eat_that_of_waiting() -> None:
    room = stage(model("a", on_disk=False), settings=LIMITS)
    job = room.submit("a")
    for _ in range(9):
        room.later(10.0)
    assert room.state(job) == "queued"


# loads


def test_a_load_that_takes_too_long_ends_with_its_worker_and_wakes_all_who_wait() -> None:
    room = stage(settings=LIMITS)
    jobs = [room.submit("a", who) for who in ("ada", "bob")]
    assert stops(room.later(59.0)) == []
    assert stops(room.later(1.0)) == ["gpu0"]
    assert stops(room.later(5.0)) == []
    room.die()
    assert [error(room, job).kind for job in jobs] == ["time_limit", "time_limit"]
    assert room.slot("a").state is SlotState.FAILED
    room.ready()
    assert room.order() == ""


def test_a_worker_that_is_being_ended_gets_no_more_orders() -> None:
    room = stage(settings=LIMITS)
    job = room.submit("a")
    room.later(60.0)
    room.answer()
    assert room.slot("a").error is None
    room.tell(events.ModelWanted("b"))
    assert room.order() == ""
    assert stops(room.later(5.0)) == []
    room.die()
    room.ready()
    room.settle()
    assert room.state(job) == "done"


def test_a_load_does_not_eat_the_limits_of_waiting_and_of_the_run() -> None:
    room = stage(settings=LIMITS)
    job = room.submit("a")
    room.later(50.0)
    room.answer()
    assert room.order() == f"run {job}"
    room.later(29.0)
    room.answer()
    assert room.state(job) == "done"


# waits


def test_who_has_waited_too_long_is_told_who_kept_the_room() -> None:
    room = stage(model("a", pinned=True), model("b"), settings=LIMITS, gb=40)
    room.answer()
    job = room.submit("b")
    assert room.job(job).waiting_for == "pin"
    assert room.job(job).reason == "a is pinned."
    room.later(39.0)
    assert room.state(job) == "queued"
    room.later(1.0)
    assert error(room, job).kind == "time_limit"
    assert "a is pinned" in error(room, job).message


def test_an_error_that_is_kept_does_not_tell_the_id_of_who_had_the_room() -> None:
    room = stage(settings=LIMITS, gb=40)
    room.tell(events.ReservationAsked("r", "ada", "kernel-ada", 20_000_000_000, None, 600.0))
    job = room.submit("b", "bob")
    room.later(40.0)
    assert "somebody has 20.0 GB of gpu0. Try again later." in error(room, job).message
    assert "ada" not in error(room, job).message


def test_other_programs_that_take_the_memory_are_named() -> None:
    room = stage(gb=40)
    process = events.ForeignProcess("train.ipynb", 7, "kernel-bob", 20_000_000_000)
    room.tell(events.MemoryRead("gpu0", 20_000_000_000, 0, (process,)))
    job = room.submit("a")
    assert room.job(job).waiting_for == "foreign"
    assert room.job(job).reason == "20.0 GB are taken by train.ipynb."


def test_a_pause_does_not_count_as_waiting() -> None:
    room = stage(settings=LIMITS)
    room.load("a")
    room.submit("a", "bob")
    job = room.submit("a")
    room.later(20.0)
    room.tell(events.PolicyChanged(Policy(paused="lunch", queue_limit=9)))
    room.answer()
    room.later(3600.0)
    assert room.state(job) == "queued"
    room.tell(events.PolicyChanged(Policy(queue_limit=9)))
    assert room.order() == f"run {job}"


def test_without_a_limit_a_job_waits_as_long_as_it_takes() -> None:
    room = stage(model("a", pinned=True), model("b"), gb=40)
    room.answer()
    job = room.submit("b")
    room.later(100_000.0)
    assert room.state(job) == "queued"


def test_a_job_that_was_put_back_may_wait_anew() -> None:
    room = stage(settings=LIMITS)
    room.load("a")
    job = room.submit("a")
    room.later(25.0)
    room.die()
    room.later(20.0)
    assert room.state(job) == "queued"


# runs


def test_a_run_that_takes_too_long_is_asked_to_stop_and_has_failed_by_that() -> None:
    room = stage(settings=LIMITS)
    room.load("a")
    job = room.submit("a")
    room.later(29.0)
    new = room.later(1.0)
    assert effects.CancelJob("gpu0", job) in new
    assert stops(new) == []
    room.take_order()
    room.tell(events.JobStopped(job))
    assert room.state(job) == "failed"
    assert error(room, job).kind == "time_limit"
    assert room.models() == ["a"]


def test_one_that_does_not_stop_ends_with_its_worker_and_is_not_tried_again() -> None:
    room = stage(settings=LIMITS)
    room.load("a")
    job = room.submit("a")
    room.later(30.0)
    assert stops(room.later(10.0)) == ["gpu0"]
    assert stops(room.later(10.0)) == []
    room.die()
    assert room.state(job) == "failed"
    assert error(room, job).kind == "time_limit"


def test_one_that_ends_well_after_all_is_done() -> None:
    room = stage(settings=LIMITS)
    room.load("a")
    job = room.submit("a")
    room.later(30.0)
    room.answer()
    assert room.state(job) == "done"
    assert room.job(job).error is None
