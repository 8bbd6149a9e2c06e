"""`wg.Status()` without a browser."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.client.fakes import WAIT_S, FakeServer, a_job
from tests.client.test_tables import a_status
from workshop_gpu.api import schemas, schemas_room
from workshop_gpu.client import Client, Status
from workshop_gpu.client.widgets import status as status_widget
from workshop_gpu.client.widgets.status_view import status_view


@pytest.fixture
def status(client: Client, fake: FakeServer) -> Iterator[Status]:
    fake.answers["GET status"] = a_status()
    widget = Status(client)
    yield widget
    widget.close()


def wait_for(status: Status, condition: Callable[[dict[str, Any]], bool]) -> None:
    met = threading.Event()

    def look(change: Any) -> None:
        if condition(change["new"]):
            met.set()

    status.observe(look, "_view")
    if condition(status._view):
        met.set()
    assert met.wait(WAIT_S), status._view


def test_it_shows_the_room_at_once_and_follows_the_stream(status: Status, fake: FakeServer) -> None:
    assert status._view["devices"][0]["free"] == "16.0 of 24.0 GB free"
    stream, _ = fake.next_stream()
    stream.send(schemas.JobEvent(a_job()))
    wait_for(status, lambda view: len(view["queue"]) == 1 and view["live"])
    stream.send(schemas_room.MessageEvent(schemas_room.Message("Hello", "Zoe", 1.0)))
    wait_for(status, lambda view: view["message"] == "Hello")
    assert "you: next" in repr(status)


def test_who_waits_for_a_download_reads_so() -> None:
    fetching = a_status(waiting=[a_job("queued", waiting_for="download")])
    (row,) = status_view(fetching)["queue"]
    assert row["words"] == "its model is being downloaded"


def test_it_says_that_the_server_does_not_answer(status: Status, fake: FakeServer) -> None:
    stream, _ = fake.next_stream()
    stream.send(schemas.JobEvent(a_job()))
    wait_for(status, lambda view: view["live"])
    fake.stream_status = 500
    stream.end()
    wait_for(status, lambda view: not view["live"])


def test_a_closed_one_listens_no_longer(client: Client, fake: FakeServer) -> None:
    fake.answers["GET status"] = a_status()
    widget = Status(client)
    widget.close()
    assert client.events._subscribers == []


def test_a_drawing_that_breaks_is_printed_once_and_the_next_change_is_drawn(
    status: Status,
    fake: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    broke, draw = threading.Event(), status_widget.status_view

    def breaks(*_: Any, **__: Any) -> dict[str, Any]:
        broke.set()
        raise KeyError("a fault of ours")

    stream, _ = fake.next_stream()
    monkeypatch.setattr(status_widget, "status_view", breaks)
    stream.send(schemas.JobEvent(a_job()))
    assert broke.wait(WAIT_S)
    monkeypatch.setattr(status_widget, "status_view", draw)
    stream.send(schemas_room.MessageEvent(schemas_room.Message("Hello", "Zoe", 1.0)))
    wait_for(status, lambda view: view["message"] == "Hello")
    assert capfd.readouterr().err.count("KeyError: 'a fault of ours'") == 1
