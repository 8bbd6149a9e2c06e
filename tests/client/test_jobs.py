"""Waiting for a job, with the stream and without it."""

import httpx
import pytest

from tests.client.fakes import WAIT_S, FakeServer, a_job, a_model, a_png
from tests.client.test_mirror import a_snapshot
from workshop_gpu.api import schemas
from workshop_gpu.client import Client, job_handle
from workshop_gpu.client.errors import (
    ConnectionLost,
    Interrupted,
    JobCancelled,
    JobFailed,
    NeverFits,
    NotRepeatable,
    QueueFull,
    TimedOut,
)
from workshop_gpu.client.job_handle import JobHandle
from workshop_gpu.client.waiting import wait_with_bar
from workshop_gpu.client.words import Progress, describe
from workshop_gpu.conductor.errors import ErrorReport

JOB = "1" * 32
IMAGE = f"GET jobs/{JOB}/images/0"


@pytest.fixture
def handle(client: Client, fake: FakeServer) -> JobHandle:
    fake.answers["POST jobs"] = a_job()
    fake.answers[IMAGE] = a_png()
    return client.submit("a red circle", "shapes")


def test_the_stream_brings_each_change_and_the_picture_follows(
    handle: JobHandle, fake: FakeServer
) -> None:
    stream, _ = fake.next_stream()
    stream.send(a_snapshot(models=[a_model()], mine=[a_job()]))
    told: list[tuple[str, int]] = []
    # Each change is sent when the one before it was told, so that none may be skipped.
    rest: list[schemas.StreamEvent] = [
        schemas.JobEvent(a_job("running", step=1)),
        schemas.PreviewEvent(JOB, 1, 20, 0, "data:image/jpeg;base64,eA=="),
        schemas.JobEvent(a_job("done")),
    ]

    def watch(progress: Progress) -> None:
        told.append((progress.job.state.value, progress.job.step))
        if progress.model is not None and rest:
            stream.send(rest.pop(0))

    (image,) = handle.wait(watch=watch)
    assert image.seed == 7
    assert told[-3:] == [("running", 1), ("running", 1), ("done", 20)]
    assert handle.images() == [image]
    assert "done" in repr(handle)


def test_again_asks_for_the_manner_in_which_the_picture_was_made(
    client: Client, fake: FakeServer
) -> None:
    fake.answers["POST jobs"] = a_job("done")
    fake.answers[IMAGE] = a_png()
    made = a_png(batch=2, place=1, manner="tiled")
    client.again(made, progress=False)
    client.again(made, exactly=False, progress=False)
    asked = [(body["batch"], body["place"], body["manner"]) for body in fake.bodies("POST jobs")]
    assert asked == [(2, 1, "tiled"), (2, 1, "")]
    fake.answers["POST jobs"] = (422, "not_repeatable")
    with pytest.raises(NotRepeatable):
        client.again(made, progress=False)


def test_small_pictures_come_along_and_are_not_asked_for(
    handle: JobHandle, fake: FakeServer
) -> None:
    stream, request = fake.next_stream()
    assert int(request.url.params["pictures"]) > 100_000
    infos = [schemas.ImageInfo(index, 7 + index, f"{index}") for index in range(2)]
    stream.send(schemas.PictureEvent(JOB, 0, a_png(seed=7)))
    stream.send(schemas.PictureEvent(JOB, 1, a_png(seed=8)))
    stream.send(schemas.JobEvent(a_job("done", images=infos)))
    made = handle.wait()
    assert [image.seed for image in made] == [7, 8]
    assert handle.wait() == made
    assert not fake.bodies(IMAGE)


def test_a_picture_that_came_without_its_sister_is_asked_for_with_her(
    handle: JobHandle, fake: FakeServer
) -> None:
    stream, _ = fake.next_stream()
    fake.answers[f"GET jobs/{JOB}/images/1"] = a_png(seed=8)
    urls = [f"/base/workshop-gpu/api/jobs/{JOB}/images/{index}" for index in range(2)]
    infos = [schemas.ImageInfo(index, 7 + index, url) for index, url in enumerate(urls)]
    stream.send(schemas.PictureEvent(JOB, 1, a_png(seed=8)))
    stream.send(schemas.JobEvent(a_job("done", images=infos)))
    assert [image.seed for image in handle.wait()] == [7, 8]
    assert len(fake.bodies(IMAGE)) == 1


@pytest.mark.usefixtures("asks")
def test_without_the_stream_it_asks(client: Client, fake: FakeServer) -> None:
    fake.stream_status = 500
    fake.answers["POST jobs"] = a_job()
    fake.answers[IMAGE] = a_png()
    answers = [a_job(), a_job("running", step=2), a_job("done")]
    fake.answers[f"GET jobs/{JOB}"] = lambda: answers.pop(0)
    told: list[str] = []
    handle = client.submit("a red circle", "shapes")
    handle.wait(WAIT_S, lambda progress: told.append(progress.job.state.value))
    assert told[-2:] == ["running", "done"]


def test_a_job_that_a_new_snapshot_does_not_name_is_asked_for(
    handle: JobHandle, fake: FakeServer
) -> None:
    stream, _ = fake.next_stream()
    fake.answers[f"GET jobs/{JOB}"] = a_job("done")
    stream.send(a_snapshot(models=[a_model()]))
    assert len(handle.wait(WAIT_S)) == 1


@pytest.mark.usefixtures("asks")
def test_a_silent_server_is_waited_for_and_said_so(client: Client, fake: FakeServer) -> None:
    fake.stream_status = 500
    fake.answers["POST jobs"] = a_job()
    fake.answers[IMAGE] = a_png()
    answers = [httpx.ConnectError("refused"), httpx.ConnectError("refused"), a_job("done")]
    fake.answers[f"GET jobs/{JOB}"] = lambda: answers.pop(0)
    told: list[bool] = []
    handle = client.submit("a red circle", "shapes")
    handle.wait(WAIT_S, lambda progress: told.append(progress.reachable))
    assert False in told
    assert told[-1] is True


@pytest.mark.usefixtures("asks")
def test_a_server_that_stays_silent_is_given_up(
    client: Client, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_handle, "GIVE_UP_S", 0.0)
    fake.stream_status = 500
    fake.answers["POST jobs"] = a_job()
    fake.answers[f"GET jobs/{JOB}"] = httpx.ConnectError("refused")
    with pytest.raises(ConnectionLost, match="still running"):
        client.submit("a red circle", "shapes").wait(WAIT_S)


def test_the_wait_counts_down_while_nothing_else_happens(
    handle: JobHandle, fake: FakeServer
) -> None:
    stream, _ = fake.next_stream()
    stream.send(schemas.JobEvent(a_job(position=2, expected_wait_s=800.0)))
    told: list[float] = []

    def watch(progress: Progress) -> None:
        words = describe(progress)
        if words.wait_s is not None:
            assert words.text == "Position 2 in the queue"
            told.append(words.wait_s)
        if progress.passed_s:
            stream.send(schemas.JobEvent(a_job("done")))

    handle.wait(WAIT_S, watch)
    assert told[0] > told[-1] > 600.0
    assert told == sorted(set(told), reverse=True), "each second, or as often as there was time"


def test_a_failed_job_raises_its_own_kind(handle: JobHandle, fake: FakeServer) -> None:
    stream, _ = fake.next_stream()
    error = ErrorReport("out_of_memory", "Out of GPU memory.", {"free_bytes": 5})
    stream.send(schemas.JobEvent(a_job("failed", error=error)))
    with pytest.raises(JobFailed, match="Out of GPU memory") as caught:
        handle.wait(WAIT_S)
    assert (caught.value.kind, caught.value.facts) == ("out_of_memory", {"free_bytes": 5})


def test_a_cancelled_job_says_so(handle: JobHandle, fake: FakeServer) -> None:
    stream, _ = fake.next_stream()
    stream.send(schemas.JobEvent(a_job("cancelled")))
    with pytest.raises(JobCancelled):
        handle.wait(WAIT_S)


def test_an_interrupt_cancels_the_job_on_the_server(handle: JobHandle, fake: FakeServer) -> None:
    fake.answers[f"DELETE jobs/{JOB}"] = a_job("cancelled")

    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    handle.wait = interrupt  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt, match="cancelled") as caught:
        wait_with_bar(handle, show=False)
    assert isinstance(caught.value, Interrupted)
    assert len(caught.value._render_traceback_()) == 1
    assert fake.requests[-1][0] == f"DELETE jobs/{JOB}"


def test_cancelling_what_is_over_is_no_error(handle: JobHandle, fake: FakeServer) -> None:
    fake.answers[f"DELETE jobs/{JOB}"] = (409, "job_ended")
    fake.answers[f"GET jobs/{JOB}"] = a_job("done")
    handle.cancel()
    assert handle.job.state == "done"


def test_time_may_run_out(handle: JobHandle, fake: FakeServer) -> None:
    fake.answers[f"GET jobs/{JOB}"] = a_job()
    with pytest.raises(TimedOut, match=r"still queued.*job\.cancel"):
        handle.wait(0.02)


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [(429, "queue_full", QueueFull), (422, "model_too_large", NeverFits)],
)
def test_a_refusal_is_an_error_of_its_own_class(
    client: Client, fake: FakeServer, status: int, kind: str, error: type[Exception]
) -> None:
    fake.answers["POST jobs"] = (status, kind)
    with pytest.raises(error, match=f"{kind}!"):
        client.submit("a red circle", "shapes")


def test_again_asks_for_the_same_and_says_when_a_picture_is_foreign(
    client: Client, fake: FakeServer
) -> None:
    fake.answers["POST jobs"] = a_job("done")
    fake.answers[IMAGE] = a_png()
    client.again(a_png("a blue star", 11), progress=False)
    (body,) = fake.bodies("POST jobs")
    assert (body["prompt"], body["seed"], body["model"]) == ("a blue star", 11, "shapes")
    assert (body["width"], body["height"], body["images"]) == (32, 32, 1)
    assert (body["batch"], body["place"]) == (1, 0)


def test_again_asks_for_as_many_as_the_picture_was_drawn_with(
    client: Client, fake: FakeServer
) -> None:
    fake.answers["POST jobs"] = a_job("done")
    fake.answers[IMAGE] = a_png()
    client.again(a_png(batch=4, place=2), progress=False)
    (body,) = fake.bodies("POST jobs")
    assert (body["batch"], body["place"]) == (4, 2)
