"""Fixtures: a server of our own making for the client's parts, and a real one."""

from collections.abc import Iterator

import pytest

from tests.client.fakes import FakeServer
from tests.serverprocess import ServerProcess
from workshop_gpu.client import Client


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.close()


@pytest.fixture
def client(fake: FakeServer) -> Iterator[Client]:
    with fake.client() as client:
        yield client


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as process:
        yield process
