"""GPU memory for a kernel's own code."""

import threading
from typing import Any

import httpx
import msgspec
import pytest

from tests.client.fakes import WAIT_S, FakeServer
from tests.client.test_tables import a_status
from workshop_gpu.api import schemas
from workshop_gpu.client import Client
from workshop_gpu.client.errors import BadRequest, Interrupted, NeverFits, ReservationLost
from workshop_gpu.client.reservations import Reserved, parse_gb
from workshop_gpu.client.words import Words, describe_reservation

GRANTED = schemas.Reservation(
    id="r1",
    participant="me",
    mine=True,
    device="cuda:0",
    size_bytes=8_000_000_000,
    whole=False,
    state="granted",
    position=0,
    expected_wait_s=None,
    expires_in_s=120.0,
)
WAITING = msgspec.structs.replace(
    GRANTED, device=None, state="waiting", position=2, expected_wait_s=40.0
)


@pytest.fixture(autouse=True)
def _answers(fake: FakeServer) -> None:
    fake.answers |= {
        "GET status": a_status(),
        "POST reservations": GRANTED,
        "GET reservations/r1": GRANTED,
        "PUT reservations/r1": GRANTED,
        "DELETE reservations/r1": None,
    }


def names(fake: FakeServer) -> list[str]:
    return [name for name, _ in fake.requests]


def test_a_with_block_reserves_and_gives_back(client: Client, fake: FakeServer) -> None:
    with client.reserve(gb=8, progress=False) as reserved:
        assert (reserved.device, reserved.size_bytes) == ("cuda:0", 8_000_000_000)
        assert reserved.state == "granted"
    assert names(fake)[-1] == "DELETE reservations/r1"
    assert reserved.state == "dropped"
    (body,) = fake.bodies("POST reservations")
    assert body == {"size_bytes": 8_000_000_000, "device": None, "ttl_s": 120.0}


def test_a_whole_gpu_has_no_number_of_bytes(client: Client, fake: FakeServer) -> None:
    client.reserve_all(progress=False).drop()
    assert fake.bodies("POST reservations")[0]["size_bytes"] is None


def test_the_gpu_is_named_by_number_or_id(client: Client, fake: FakeServer) -> None:
    devices = fake.answers["GET status"].devices
    for gpu in (0, devices[0].id):
        client.reserve(gb=1, gpu=gpu, progress=False).drop()
    sent = [body["device"] for body in fake.bodies("POST reservations")]
    assert sent == [devices[0].id] * 2


@pytest.mark.parametrize("gpu", [7, -1, True, "cuda:9", 0.5, "<b>"])
def test_an_unknown_gpu_is_told_with_those_that_are_there(
    client: Client, fake: FakeServer, gpu: Any
) -> None:
    with pytest.raises(BadRequest, match=fake.answers["GET status"].devices[0].id):
        client.reserve(gb=1, gpu=gpu)
    assert "POST reservations" not in names(fake)


@pytest.mark.parametrize(
    "gb", [0, -3, float("nan"), float("inf"), 1e12, True, "8", None, [8], "x" * 10_000]
)
def test_a_size_that_is_none_is_refused_before_anything_is_sent(
    client: Client, fake: FakeServer, gb: Any
) -> None:
    with pytest.raises(BadRequest, match="how many GB") as caught:
        client.reserve(gb=gb)
    assert len(caught.value.message) < 300
    assert fake.requests == []


def test_half_a_gb_is_a_size() -> None:
    assert parse_gb(0.5) == 500_000_000
    assert parse_gb(1e-12) == 1


def test_more_than_the_card_has_is_refused_by_the_server(client: Client, fake: FakeServer) -> None:
    fake.answers["POST reservations"] = (422, "reservation_too_large")
    with pytest.raises(NeverFits):
        client.reserve(gb=500)


def test_the_wait_is_shown_and_ends_with_the_event(client: Client, fake: FakeServer) -> None:
    fake.answers |= {"POST reservations": WAITING, "GET reservations/r1": WAITING}
    reserved = Reserved(client._http, 8_000_000_000, None)
    said: list[Words] = []

    def say(words: Words) -> None:
        said.append(words)
        if len(said) == 1:
            stream, _ = fake.next_stream()
            moved = msgspec.structs.replace(WAITING, position=1, expected_wait_s=10.0)
            stream.send(schemas.ReservationEvent(moved, ""))
            stream.send(schemas.ReservationEvent(GRANTED, ""))

    reserved.wait(client.events, say)
    lines = [words.line() for words in said]
    assert lines[0] == "Waiting for 8.0 GB (position 2), about 40 s"
    assert lines[-2:] == ["Waiting for 8.0 GB, about 10 s", "Reserved 8.0 GB on cuda:0"]
    reserved.drop()


def test_without_a_stream_it_asks(
    client: Client, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workshop_gpu.client.reservations.ASK_S", 0.01)
    fake.stream_status = 500
    answers = [WAITING, WAITING, GRANTED]
    fake.answers |= {
        "POST reservations": WAITING,
        "GET reservations/r1": lambda: answers.pop(0) if len(answers) > 1 else answers[0],
    }
    assert client.reserve(gb=8, progress=False).state == "granted"


def test_an_interrupt_gives_the_place_in_the_queue_back(
    client: Client, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.answers |= {"POST reservations": WAITING, "GET reservations/r1": WAITING}

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Reserved, "_follow", interrupted)
    with pytest.raises(Interrupted, match="no longer wait"):
        client.reserve(gb=8, progress=False)
    assert names(fake)[-1] == "DELETE reservations/r1"


def test_who_waited_long_enough_gives_up(client: Client, fake: FakeServer) -> None:
    fake.answers |= {"POST reservations": WAITING, "GET reservations/r1": WAITING}
    with pytest.raises(TimeoutError):
        client.reserve(gb=8, progress=False, timeout_s=0.0)
    assert names(fake)[-1] == "DELETE reservations/r1"


def test_one_that_the_instructor_ends_while_it_waits_is_told(
    client: Client, fake: FakeServer
) -> None:
    fake.answers |= {
        "POST reservations": WAITING,
        "GET reservations/r1": (410, "reservation_ended"),
    }
    with pytest.raises(ReservationLost):
        client.reserve(gb=8, progress=False)


def test_the_reason_why_one_ended_while_it_waited_is_told(client: Client, fake: FakeServer) -> None:
    fake.answers |= {"POST reservations": WAITING, "GET reservations/r1": WAITING}
    reserved = Reserved(client._http, 8_000_000_000, None)
    ended = msgspec.structs.replace(WAITING, state="ended")

    def say(words: Words) -> None:
        stream, _ = fake.next_stream()
        stream.send(schemas.ReservationEvent(ended, "no GPU here has so much memory"))

    with pytest.raises(ReservationLost, match=r"has ended: no GPU here has so much memory\. Ask"):
        reserved.wait(client.events, say)
    assert reserved.state == "lost"


def test_the_heartbeat_renews_and_a_lost_one_is_told_at_the_end_of_the_block(
    client: Client, fake: FakeServer
) -> None:
    renewed = threading.Event()
    answers: list[Any] = [GRANTED, (410, "reservation_ended")]

    def answer() -> Any:
        if len(answers) == 1:
            renewed.set()
        return answers.pop(0) if len(answers) > 1 else answers[0]

    fake.answers["PUT reservations/r1"] = answer
    reserved = Reserved(client._http, 1, None, ttl_s=0.03)
    assert renewed.wait(WAIT_S)
    reserved._thread.join(WAIT_S)
    assert reserved.state == "lost"
    with pytest.raises(ReservationLost), reserved:
        pass


def test_a_server_silent_for_the_whole_time_to_live_costs_the_reservation(
    client: Client, fake: FakeServer
) -> None:
    fake.answers["PUT reservations/r1"] = httpx.ConnectError("refused")
    reserved = Reserved(client._http, 1, None, ttl_s=0.03)
    reserved._thread.join(WAIT_S)
    with pytest.raises(ReservationLost, match=r"wg\.reserve"):
        reserved.check()


def test_one_that_nobody_refers_to_is_not_renewed_for_ever(client: Client) -> None:
    reserved = client.reserve(gb=8, progress=False)
    thread = reserved._thread
    del reserved
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_its_words_say_what_and_where() -> None:
    whole = msgspec.structs.replace(WAITING, size_bytes=None, whole=True, device="cuda:1")
    assert describe_reservation(whole, 35).line() == (
        "Waiting for the whole GPU on cuda:1 (position 2), about 5 s"
    )
    ended = msgspec.structs.replace(GRANTED, state="ended")
    assert describe_reservation(ended).line() == "The reservation of 8.0 GB on cuda:0 is over"
