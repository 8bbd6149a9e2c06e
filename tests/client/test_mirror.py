"""The fold over the events of the stream."""

from typing import Any

import pytest

from tests.client.fakes import a_job, a_model, a_slot
from workshop_gpu.api import schemas
from workshop_gpu.client.mirror import KEPT_JOBS, KEPT_PICTURES, Mirror

ME = schemas.Me("me", "me", None, False)
A, B = "a" * 32, "b" * 32


def a_snapshot(*, models: Any = (), mine: Any = ()) -> schemas.SnapshotEvent:
    status = schemas.Status("0", 0.0, ME, [], [], [], [])
    return schemas.SnapshotEvent(status, list(models), list(mine))


def a_mirror(*events: schemas.StreamEvent) -> Mirror:
    mirror = Mirror()
    for event in events:
        mirror.apply(event)
    return mirror


def test_a_job_is_known_as_last_told() -> None:
    mirror = a_mirror(schemas.JobEvent(a_job()), schemas.JobEvent(a_job("running", step=3)))
    assert mirror.jobs["1" * 32].step == 3


def test_an_answer_made_before_the_end_does_not_undo_the_end() -> None:
    mirror = a_mirror(schemas.JobEvent(a_job("done")))
    mirror.learn_job(a_job("running", step=19))
    assert mirror.jobs["1" * 32].state == "done"


def test_a_job_that_a_snapshot_does_not_name_is_doubtful_until_told_again() -> None:
    mirror = a_mirror(
        schemas.JobEvent(a_job(job_id=A)),
        schemas.JobEvent(a_job("done", job_id=B)),
        a_snapshot(),
    )
    assert mirror.doubtful == {A}
    mirror.learn_job(a_job("cancelled", job_id=A))
    assert mirror.doubtful == set()


def test_a_preview_ends_with_its_job() -> None:
    preview = schemas.PreviewEvent(A, 1, 20, 0, "data:image/jpeg;base64,")
    mirror = a_mirror(schemas.JobEvent(a_job(job_id=A)), preview)
    assert mirror.previews[A] is preview
    mirror.apply(schemas.JobEvent(a_job("done", job_id=A)))
    assert mirror.previews == {}


@pytest.mark.parametrize("state", ["loading", "ready", "leaving", "failed"])
def test_a_slot_sets_its_models_state(state: str) -> None:
    mirror = a_mirror(a_snapshot(models=[a_model()]), schemas.SlotEvent(a_slot(state), 0, ""))
    assert mirror.models["shapes"].state == state


def test_a_models_state_is_the_best_of_its_slots() -> None:
    mirror = a_mirror(
        a_snapshot(models=[a_model()]),
        schemas.SlotEvent(a_slot("ready", device="cpu:0"), 0, ""),
        schemas.SlotEvent(a_slot("loading", device="cpu:1", done_bytes=1), 0, ""),
    )
    assert mirror.models["shapes"].state == "ready"
    mirror.apply(schemas.SlotEvent(a_slot("absent", device="cpu:0"), 9_000_000, "room"))
    model = mirror.models["shapes"]
    assert (model.state, model.done_bytes, model.total_bytes) == ("loading", 1, 9_000_000)


def test_a_load_has_a_speed_until_it_is_over() -> None:
    loading = a_slot("loading", done_bytes=1, bytes_per_s=5e6)
    mirror = a_mirror(a_snapshot(models=[a_model()]), schemas.SlotEvent(loading, 0, ""))
    assert mirror.models["shapes"].bytes_per_s == 5e6
    mirror.apply(schemas.SlotEvent(a_slot("ready"), 0, ""))
    assert mirror.models["shapes"].bytes_per_s == 0


def test_a_model_whose_last_slot_left_is_absent() -> None:
    mirror = a_mirror(
        a_snapshot(models=[a_model(state="ready", slots=[a_slot("ready")])]),
        schemas.SlotEvent(a_slot("absent"), 9_000_000, "room"),
    )
    assert (mirror.models["shapes"].state, mirror.models["shapes"].slots) == ("absent", [])


def test_a_slot_of_an_unknown_model_is_no_error() -> None:
    assert a_mirror(schemas.SlotEvent(a_slot("ready", model="x"), 0, "")).models == {}


def test_old_jobs_are_forgotten() -> None:
    mirror = a_mirror(*(schemas.JobEvent(a_job(job_id=str(i))) for i in range(KEPT_JOBS + 5)))
    assert len(mirror.jobs) == KEPT_JOBS
    assert "0" not in mirror.jobs


def test_pictures_wait_for_who_takes_them_and_only_the_newest_do() -> None:
    told = [
        schemas.PictureEvent(f"{number}", index, b"png")
        for number in range(KEPT_PICTURES + 3)
        for index in range(2)
    ]
    mirror = a_mirror(*told, *told[-2:])  # the last job's once more, after a break
    assert list(mirror.pictures) == [f"{number + 3}" for number in range(KEPT_PICTURES)]
    assert all(files == [b"png", b"png"] for files in mirror.pictures.values())
