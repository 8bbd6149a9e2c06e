"""The thread that reads the event stream."""

import threading

import httpx
import pytest

from tests.client.fakes import WAIT_S, FakeServer, a_job, a_model
from tests.client.test_mirror import a_snapshot
from workshop_gpu.api import schemas
from workshop_gpu.client import Client, events
from workshop_gpu.client.errors import NotAllowed
from workshop_gpu.client.mirror import Mirror

JOB = "1" * 32


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "FIRST_PAUSE_S", 0.0)


def wait_for_job(client: Client, state: str) -> None:
    seen = -1
    for _ in range(100):
        job = client.events.look(JOB).job
        if job is not None and job.state == state:
            return
        seen = client.events.wait(seen, WAIT_S)
    raise AssertionError(f"never {state}")


def test_what_the_server_announces_is_known(client: Client, fake: FakeServer) -> None:
    client.events.start()
    stream, request = fake.next_stream()
    assert request.headers["Authorization"] == "token secret"
    assert "Last-Event-ID" not in request.headers
    stream.send(a_snapshot(models=[a_model()]))
    stream.send(schemas.JobEvent(a_job("running")))
    wait_for_job(client, "running")
    assert client.events.live
    assert client.events.age_s < WAIT_S
    assert [model.id for model in client.events.models()] == ["shapes"]


def test_after_a_break_it_reads_on_from_the_last_id(client: Client, fake: FakeServer) -> None:
    client.events.start()
    stream, _ = fake.next_stream()
    stream.send(schemas.JobEvent(a_job("queued")), "life-41")
    stream.send_raw(b"id: life-42\ndata: half of an ev")
    stream.end(httpx.ReadError("reset"))
    stream, request = fake.next_stream()
    assert request.headers["Last-Event-ID"] == "life-41"
    stream.send(schemas.JobEvent(a_job("done")), "life-42")
    wait_for_job(client, "done")


def test_an_unknown_or_broken_event_is_passed_over(client: Client, fake: FakeServer) -> None:
    client.events.start()
    stream, _ = fake.next_stream()
    stream.send_raw(b'data: {"event": "from the future"}\n\ndata: {\n\n')
    stream.send(schemas.JobEvent(a_job("done")))
    wait_for_job(client, "done")


def test_a_fault_of_ours_over_an_event_does_not_end_the_stream_for_good(
    client: Client,
    fake: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    apply, faults = Mirror.apply, [KeyError("ours")]

    def breaks_once(mirror: Mirror, event: schemas.StreamEvent) -> None:
        if faults:
            raise faults.pop()
        apply(mirror, event)

    monkeypatch.setattr(Mirror, "apply", breaks_once)
    client.events.start()
    stream, _ = fake.next_stream()
    stream.send(schemas.JobEvent(a_job("running")), "life-7")
    stream, request = fake.next_stream()
    assert request.headers["Last-Event-ID"] == "life-7", "it goes on behind that one"
    assert not client.events.live
    stream.send(schemas.JobEvent(a_job("done")), "life-8")
    wait_for_job(client, "done")
    assert "KeyError: 'ours'" in capsys.readouterr().err


def test_a_subscriber_that_fails_does_not_end_the_stream(
    client: Client, fake: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[schemas.StreamEvent] = []
    both = threading.Event()

    def fails(event: schemas.StreamEvent) -> None:
        raise ValueError("mine")

    def hears(event: schemas.StreamEvent) -> None:
        heard.append(event)
        if len(heard) == 2:
            both.set()

    end = client.events.subscribe(fails)
    client.events.subscribe(hears)
    stream, _ = fake.next_stream()
    stream.send(schemas.JobEvent(a_job("running")))
    stream.send(schemas.JobEvent(a_job("done")))
    assert both.wait(WAIT_S)
    assert "ValueError: mine" in capsys.readouterr().err
    end()
    end()


def test_a_refused_token_is_not_shown_again_and_again(client: Client, fake: FakeServer) -> None:
    fake.stream_status = 403
    client.events.start()
    thread = client.events._thread
    assert thread is not None
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert not client.events.live


def test_the_refusal_says_what_to_do() -> None:
    fake = FakeServer()
    fake.answers["GET me"] = (401, "forbidden")
    with fake.client() as client, pytest.raises(NotAllowed):
        client.me()


def test_closing_ends_the_thread(client: Client, fake: FakeServer) -> None:
    client.events.start()
    stream, _ = fake.next_stream()
    client.events.close()
    stream.send_raw(b": ping\n\n")
    thread = client.events._thread
    assert thread is not None
    thread.join(WAIT_S)
    assert not thread.is_alive()
