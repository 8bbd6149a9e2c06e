"""How long somebody would wait who asked now: told before anybody asks."""

import msgspec
import pytest

from tests.conductor.staging import GB, Stage, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.policy import Policy


def told(new: list[effects.Effect]) -> list[dict[str, float | None]]:
    return [effect.newcomers_s for effect in new if isinstance(effect, effects.AnnounceWaits)]


def waits(room: Stage) -> dict[str, float | None]:
    return room.conductor.snapshot(room.now).newcomers_s


def experienced() -> Stage:
    """A room that has seen a load and a run: 6 and 5 seconds."""
    room = stage()
    room.load("a")
    room.submit("a")
    room.answer()
    return room


def test_nobody_knows_before_a_load_was_seen() -> None:
    assert waits(stage())["a"] is None


def test_a_ready_model_starts_at_once_and_another_after_its_load() -> None:
    now = waits(experienced())
    assert now["a"] == 0.0
    assert now["b"] in (5.0, 7.0)


def test_who_comes_now_waits_for_those_who_run_and_wait() -> None:
    room = experienced()
    for who in ("ada", "bob", "cyd"):
        room.submit("a", who)
    assert waits(room)["a"] == 15.0


def test_what_a_newcomer_is_told_is_how_long_he_waits_then() -> None:
    room = experienced()
    room.submit("a", "ada")
    room.submit("a", "bob")
    foreseen = waits(room)["a"]
    assert room.job(room.submit("a", "cyd")).expected_wait_s == foreseen


def test_it_is_told_with_ticks_and_only_where_it_changed() -> None:
    room = experienced()
    room.later(1.0)
    assert told(room.tell(room.job_submitted("a"))) == []
    (now,) = told(room.later(0.0))
    assert now["a"] == 5.0
    assert told(room.later(0.0)) == []


def test_behind_many_it_is_the_wait_of_the_last() -> None:
    room = experienced()
    for i in range(60):
        room.submit("a", f"p{i}")
    (now,) = told(room.later(0.0))
    assert now["a"] == pytest.approx(300.0, abs=60.0)


def test_a_model_that_is_withdrawn_or_a_queue_that_is_paused_has_no_wait() -> None:
    room = experienced()
    room.tell(events.PolicyChanged(Policy(withdrawn={"a": "later"})))
    assert waits(room)["a"] is None
    assert waits(room)["b"] is not None
    room.tell(events.PolicyChanged(Policy(paused="lunch")))
    assert set(waits(room).values()) == {None}


@pytest.mark.parametrize("because", ["a hold", "foreign memory", "a reservation", "a pause"])
def test_a_job_that_is_kept_out_is_told_no_wait_nor_are_newcomers_for_its_model(
    because: str,
) -> None:
    room = stage(gb=40)
    room.load("b")
    room.load("a")
    match because:
        case "a hold":
            room.hold("a", "eve", ttl_s=3600.0)
        case "a pause":
            policy = room.conductor.snapshot(room.now).policy
            room.tell(events.PolicyChanged(msgspec.structs.replace(policy, paused="lunch")))
        case _:
            room.tell(events.EvictionAsked("a"))
            room.answer()
    if because == "foreign memory":
        room.foreign(30.0)
    if because == "a reservation":
        room.tell(events.ReservationAsked("r", "eve", "kernel-eve", 30 * GB, "gpu0", None))
    job = room.submit("b", "ada")
    room.later(60.0)
    assert room.job(job).waiting_for in ("room", "foreign", "reservation", "pause")
    assert room.job(job).expected_wait_s is None
    snapshot = room.conductor.snapshot(room.now)
    assert snapshot.jobs[0].expected_wait_s is None
    assert snapshot.newcomers_s["b"] is None


def test_who_is_behind_a_job_that_is_kept_out_does_not_wait_for_it() -> None:
    room = stage(gb=40)
    room.load("b")
    room.load("a")
    room.hold("a", "eve", ttl_s=3600.0)
    room.submit("b", "ada")
    running, behind = room.submit("a", "bob"), room.submit("a", "cleo")
    assert room.state(running) == "running"
    assert room.job(behind).position == 2
    assert room.job(behind).expected_wait_s == 5.0


def test_a_model_that_must_be_downloaded_has_no_wait() -> None:
    room = stage(model("a"), model("far", on_disk=False))
    room.load("a")
    assert waits(room)["far"] is None
