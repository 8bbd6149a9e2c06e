"""Holds and their heartbeat."""

import threading
import time
from types import SimpleNamespace

import httpx
import pytest

from tests.client.fakes import WAIT_S, FakeServer
from workshop_gpu.api import schemas
from workshop_gpu.client import Client, heartbeat
from workshop_gpu.client.errors import HoldLost, ModelNotOffered

HOLD = schemas.Hold("h1", "shapes", 120.0)


@pytest.fixture(autouse=True)
def _answers(fake: FakeServer) -> None:
    fake.answers |= {"POST holds": HOLD, "PUT holds/h1": HOLD, "DELETE holds/h1": None}


def test_a_with_block_takes_and_drops(client: Client, fake: FakeServer) -> None:
    with client.hold("shapes") as held:
        assert (held.model, held.state) == ("shapes", "held")
    assert [name for name, _ in fake.requests] == ["POST holds", "DELETE holds/h1"]
    assert held.state == "dropped"
    held.drop()
    assert len(fake.requests) == 2


def test_the_heartbeat_renews_within_the_time_to_live(client: Client, fake: FakeServer) -> None:
    twice, times = threading.Event(), []

    def renewed() -> schemas.Hold:
        times.append(time.monotonic())
        if len(times) == 2:
            twice.set()
        return HOLD

    fake.answers["PUT holds/h1"] = renewed
    with client.hold("shapes", ttl_s=0.06):
        assert twice.wait(WAIT_S)
    assert fake.bodies("PUT holds/h1")[0] == {"ttl_s": 0.06}


@pytest.mark.parametrize("answer", [(410, "hold_ended"), (404, "hold_unknown")])
def test_a_lost_hold_is_told_at_the_end_of_the_block(
    client: Client, fake: FakeServer, answer: tuple[int, str]
) -> None:
    fake.answers["PUT holds/h1"] = answer
    held = client.hold("shapes", ttl_s=0.03)
    held._thread.join(WAIT_S)
    assert held.state == "lost"
    with pytest.raises(HoldLost, match=answer[1]), held:
        pass
    assert "DELETE holds/h1" not in [name for name, _ in fake.requests]


def test_the_blocks_own_error_is_not_hidden_by_a_lost_hold(
    client: Client, fake: FakeServer
) -> None:
    fake.answers["PUT holds/h1"] = (410, "hold_ended")
    held = client.hold("shapes", ttl_s=0.03)
    held._thread.join(WAIT_S)
    with pytest.raises(ZeroDivisionError), held:
        raise ZeroDivisionError


def test_a_server_that_is_silent_for_a_while_does_not_cost_the_hold(
    client: Client, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However late the heartbeat's thread has its turn, no time has passed.
    monkeypatch.setattr(heartbeat, "time", SimpleNamespace(monotonic=lambda: 0.0))
    again = threading.Event()
    answers: list[object] = [httpx.ConnectError("refused"), HOLD]

    def renewed() -> object:
        if len(answers) == 1:
            again.set()
        return answers.pop(0) if len(answers) > 1 else answers[0]

    fake.answers["PUT holds/h1"] = renewed
    with client.hold("shapes", ttl_s=0.03) as held:
        assert again.wait(WAIT_S)
        assert held.state == "held"


def test_a_fault_of_ours_does_not_end_the_heartbeat(
    client: Client, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(heartbeat, "time", SimpleNamespace(monotonic=lambda: 0.0))
    again, faults = threading.Event(), [KeyError("ours"), KeyError("ours")]

    def renew() -> None:
        if faults:
            raise faults.pop()
        again.set()

    with client.hold("shapes", ttl_s=0.03) as held:
        monkeypatch.setattr(held, "renew", renew)
        assert again.wait(WAIT_S)
        assert held.state == "held"
    assert capfd.readouterr().err.count("KeyError: 'ours'") == 1


def test_a_server_silent_for_the_whole_time_to_live_costs_the_hold(
    client: Client, fake: FakeServer
) -> None:
    fake.answers["PUT holds/h1"] = httpx.ConnectError("refused")
    held = client.hold("shapes", ttl_s=0.03)
    held._thread.join(WAIT_S)
    with pytest.raises(HoldLost, match=r'wg\.hold\("shapes"\)'):
        held.check()


def test_a_hold_that_nobody_refers_to_is_not_renewed_for_ever(client: Client) -> None:
    held = client.hold("shapes", ttl_s=30.0)
    thread = held._thread
    del held
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_an_unknown_model_cannot_be_held(client: Client, fake: FakeServer) -> None:
    fake.answers["POST holds"] = (404, "model_unknown")
    with pytest.raises(ModelNotOffered):
        client.hold("nothing")
