from collections.abc import Iterator

import pytest

from tests.api.kernels import RunningKernel
from tests.api.people import Person
from tests.serverprocess import ServerProcess

ROOM = (
    "--ServerApp.identity_provider_class=tests.api.room.RoomIdentity",
    "--ServerApp.authorizer_class=tests.api.room.RoomAuthorizer",
)


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    """One roomy device, shared by the tests that do not fill it. Jupyter's events go to a file."""
    process = ServerProcess(devices=("cpu:2GB",), args=ROOM)
    process.write_config(
        "import logging",
        f"c.EventLogger.handlers = [logging.FileHandler({str(process.folder / 'events.jsonl')!r})]",
    )
    with process:
        yield process


@pytest.fixture
def person(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[Person]:
    """Somebody with the server's token, another one in each test."""
    with Person(server, request.node.name[:80]) as somebody:
        yield somebody


@pytest.fixture(scope="session")
def kernel(server: ServerProcess) -> Iterator[RunningKernel]:
    """A kernel that tests may use, but neither restart nor end."""
    with RunningKernel(server) as running:
        yield running
