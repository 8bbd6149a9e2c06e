"""Fixtures: a server of our own making for the client's parts, and a real one."""

from collections.abc import Iterator

import pytest

from tests.client.fakes import WAIT_S, FakeServer
from tests.serverprocess import ServerProcess
from workshop_gpu.client import Client, job_handle


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.close()


@pytest.fixture
def client(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """It does not ask how a job is: a stream that is late on a busy machine would be taken for a
    closed one, and the answer would cross with what the test says there."""
    monkeypatch.setattr(job_handle, "ASK_S", WAIT_S)
    with fake.client() as client:
        yield client


@pytest.fixture
def asks(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks at once while the stream is closed."""
    monkeypatch.setattr(job_handle, "ASK_S", 0.01)


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as process:
        yield process
