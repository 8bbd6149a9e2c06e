"""How long somebody would wait who asked now: told before anybody asks."""

import pytest

from tests.conductor.staging import Stage, model, stage
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


def test_a_model_that_must_be_downloaded_has_no_wait() -> None:
    room = stage(model("a"), model("far", on_disk=False))
    room.load("a")
    assert waits(room)["far"] is None
