"""The server goes away and comes back: the client finds its jobs again, and says what happens."""

import time
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest

from tests.client.fakes import WAIT_S, FakeServer, a_job, a_model, a_png
from tests.client.test_mirror import a_snapshot
from workshop_gpu.api import schemas
from workshop_gpu.client import Client, events
from workshop_gpu.client.connection import Server
from workshop_gpu.client.errors import ConnectionLost, JobUnknown, NoServer
from workshop_gpu.client.http import Http
from workshop_gpu.client.words import Progress, describe

JOB = "1" * 32
LOST = httpx.ReadError("the connection was reset")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "FIRST_PAUSE_S", 0.0)


def in_turn(*answers: Any) -> Callable[[], Any]:
    """Another answer each time; the last one for ever."""
    left = list(answers)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_a_request_whose_answer_was_lost_is_sent_again_as_the_same_job(
    client: Client, fake: FakeServer
) -> None:
    client.me()
    fake.answers["POST jobs"] = in_turn(LOST, LOST, a_job())
    assert client.submit("a red circle", "shapes").id == JOB
    ids = [body["id"] for body in fake.bodies("POST jobs")]
    assert len(ids) == 3
    assert len(set(ids)) == 1
    client.submit("a red circle", "shapes")
    assert fake.bodies("POST jobs")[-1]["id"] != ids[0]


def test_a_server_that_never_answered_is_not_waited_for(fake: FakeServer) -> None:
    fake.answers["POST jobs"] = LOST
    with fake.client() as stranger, pytest.raises(ConnectionLost):
        stranger.submit("a red circle", "shapes")
    assert len(fake.bodies("POST jobs")) == 1


def test_a_request_is_not_sent_again_for_ever(
    client: Client, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workshop_gpu.client.client.RESEND_S", 0.0)
    client.me()
    fake.answers["POST jobs"] = LOST
    with pytest.raises(ConnectionLost):
        client.submit("a red circle", "shapes")
    assert len(fake.bodies("POST jobs")) == 1


@pytest.mark.usefixtures("asks")
def test_a_job_is_found_again_in_the_servers_next_life_and_people_are_told(
    client: Client, fake: FakeServer
) -> None:
    fake.answers["POST jobs"] = a_job()
    fake.answers[f"GET jobs/{JOB}/images/0"] = in_turn(LOST, a_png())
    handle = client.submit("a red circle", "shapes")
    first, _ = fake.next_stream()
    first.send(a_snapshot(models=[a_model()], mine=[a_job("running", step=7)]), "life-1")
    fake.wait_until_heard(client)
    fake.answers[f"GET jobs/{JOB}"] = LOST
    told: list[str] = []

    def watch(progress: Progress) -> None:
        words = describe(progress).line()
        if words in told:
            return
        told.append(words)
        if progress.job.step == 7 and progress.reachable:
            first.end(LOST)
        elif not progress.reachable:
            fake.answers[f"GET jobs/{JOB}"] = a_job()
            second, request = fake.next_stream()
            assert request.headers["Last-Event-ID"] == "life-1"
            second.send(a_snapshot(models=[a_model()], mine=[a_job()]), "next-1")
            streams.append(second)
        elif "restarted" in words:
            streams[0].send(schemas.JobEvent(a_job("done")), "next-2")

    streams: list[Any] = []
    (image,) = handle.wait(WAIT_S, watch)
    assert image.seed == 7
    assert any("does not answer; trying again" in words for words in told)
    assert any("Next in the queue (the server was restarted)" in words for words in told)
    assert client.events.restarts == 1


def test_after_an_hours_sleep_the_job_is_found_though_the_stream_no_longer_tells_of_it(
    client: Client, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept_s, awake = [0.0], time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: awake() + slept_s[0])
    fake.answers["POST jobs"] = a_job()
    fake.answers[f"GET jobs/{JOB}/images/0"] = a_png()
    handle = client.submit("a red circle", "shapes")
    first, _ = fake.next_stream()
    first.send(a_snapshot(models=[a_model()], mine=[a_job("running", step=7)]), "life-1")

    def watch(progress: Progress) -> None:
        if progress.job.step == 7 and not slept_s[0]:
            slept_s[0] = 3600.0
            fake.answers[f"GET jobs/{JOB}"] = a_job("done")
            first.end(httpx.ReadTimeout("nothing came"))
            second, request = fake.next_stream()
            assert request.headers["Last-Event-ID"] == "life-1"
            second.send(a_snapshot(models=[a_model()], mine=[]), "life-9000")

    (image,) = handle.wait(10_000, watch)
    assert image.seed == 7
    assert client.events.restarts == 0


def test_a_job_that_the_server_lost_is_said_to_be_unknown(client: Client, fake: FakeServer) -> None:
    fake.answers["POST jobs"] = a_job()
    handle = client.submit("a red circle", "shapes")
    stream, _ = fake.next_stream()
    fake.answers[f"GET jobs/{JOB}"] = (404, "job_unknown")
    stream.send(a_snapshot(models=[a_model()], mine=[]), "life-1")
    with pytest.raises(JobUnknown):
        handle.wait(WAIT_S)


def test_pauses_grow_and_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "FIRST_PAUSE_S", 0.25)
    pauses = [events.pause_s(failures) for failures in (1, 5, 10_000)]
    assert 0.1 < pauses[0] <= 0.25 < pauses[1] <= 4.0
    assert 5.0 <= pauses[2] <= events.LONGEST_PAUSE_S


def a_moving_server(*, token: str, port: int) -> tuple[httpx.MockTransport, list[str]]:
    """A server that answers at this port, with this token; and what it was asked."""
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url.port}")
        if request.url.port != port:
            raise httpx.ConnectError("refused")
        if request.headers["Authorization"] != f"token {token}":
            return httpx.Response(403, text="Forbidden")
        return httpx.Response(200, content=msgspec.json.encode(schemas.Me("me", "me", None, False)))

    return httpx.MockTransport(handle), asked


OLD, NEW = Server("http://x:1/", "old", "found"), Server("http://x:2/", "new", "found")


@pytest.mark.parametrize("old", [OLD, Server(NEW.url, OLD.token, "found")])
def test_a_server_with_another_port_or_token_is_found_again_by_the_request_itself(
    old: Server,
) -> None:
    network, asked = a_moving_server(token=NEW.token, port=2)
    http = Http(old, network, lambda: NEW)
    assert http.get("me", schemas.Me).name == "me"
    assert http.server == NEW
    http.get("me", schemas.Me)
    assert len(asked) == 3, "from then on it is asked at once"


def test_a_server_that_somebody_named_is_not_looked_for() -> None:
    network, asked = a_moving_server(token=NEW.token, port=2)
    with pytest.raises(ConnectionLost):
        Http(OLD, network).get("me", schemas.Me)
    assert asked == ["GET 1"]


def test_where_no_server_is_found_the_error_is_that_of_the_old_one() -> None:
    def nothing() -> Server:
        raise NoServer("there is none")

    network, asked = a_moving_server(token=NEW.token, port=2)
    with pytest.raises(ConnectionLost, match="http://x:1/ does not answer"):
        Http(OLD, network, nothing).get("me", schemas.Me)
    assert len(asked) == 1
