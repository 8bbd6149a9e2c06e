"""After two workers in a row a device is careful: little on it, one thing at a time."""

from tests.conductor.laddered import LARGE, laddered
from tests.conductor.staging import Stage, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.rungs import RESIDENT, Placement


def careful(*models: events.ModelFacts, gb: float = 80.0) -> Stage:
    """A stage whose worker ended twice in a row."""
    room = stage(*models, gb=gb)
    for _ in range(2):
        room.die()
        room.ready(gb=gb)
    room.said.clear()
    return room


def placement_of(room: Stage) -> Placement:
    """Where the last load was ordered to."""
    return next(
        each for each in reversed(room.said) if isinstance(each, effects.LoadModel)
    ).placement


def notices(room: Stage) -> list[str]:
    return [each.text for each in room.said if isinstance(each, effects.Notice)]


def test_in_safe_mode_a_model_takes_the_lowest_rung_that_draws_the_same_picture() -> None:
    room = careful(laddered("large"))
    room.submit("large")
    found = placement_of(room)
    assert found.exact
    assert found.streamed_bytes >= sum(LARGE[1].blocks_bytes), "no block of the denoiser stays"
    assert "vae" in found.staged


def test_where_only_another_picture_fits_safe_mode_takes_that() -> None:
    settings = MemorySettings(placement="sliced")
    room = careful(laddered("large", settings))
    room.submit("large")
    assert placement_of(room).sliced


def test_safe_mode_is_told_and_ends_with_a_picture() -> None:
    room = stage(laddered("large"))
    room.die()
    room.ready()
    assert notices(room) == []
    room.die()
    (said,) = notices(room)
    assert "safe mode: one job at a time, with as little on the GPU as can be" in said
    room.ready()
    job = room.submit("large")
    room.answer()
    assert room.order() == f"run {job}"
    room.answer()
    assert any("safe mode is over" in text for text in notices(room))
    room.submit("large")
    assert placement_of(room) == RESIDENT, "from then on models are placed as before"


def test_a_job_that_fails_does_not_end_safe_mode() -> None:
    room = careful(laddered("large"))
    room.submit("large")
    room.answer()
    room.fail(kind="generation_failed")
    room.later(1.0)
    room.submit("large")
    assert room.order().startswith("run")
    assert not any("is over" in text for text in notices(room))


def test_in_safe_mode_nothing_is_loaded_beside_a_job() -> None:
    room = careful()
    room.submit("a", "ada")
    room.answer()
    room.submit("b", "bob")
    assert len(room.orders_of()) == 1, "b waits for the end of the job"
    room.answer()
    assert room.orders_of() == ["load b"]


def test_in_safe_mode_no_job_runs_beside_a_load() -> None:
    room = careful()
    for name in ("a", "b"):
        room.tell(events.ModelWanted(name))
    assert room.orders_of() == ["load a"]
    room.answer()
    assert room.orders_of() == ["load b"], "without jobs, models come one by one"
    job = room.submit("a")
    assert room.orders_of() == ["load b"], "its model is ready, and the job waits all the same"
    room.answer()
    assert room.orders_of() == [f"run {job}"]


def test_another_device_is_not_held_back_by_one_in_safe_mode() -> None:
    room = stage(devices=("gpu0", "gpu1"))
    for _ in range(2):
        room.die("gpu0")
        room.ready("gpu0")
    room.load("a", device="gpu0")
    room.load("a", "b", device="gpu1")
    jobs = [room.submit(name, who) for name, who in (("a", "ada"), ("b", "bob"))]
    room.settle()
    assert [room.state(job) for job in jobs] == ["done", "done"]
