"""The one client that `wg.generate` and its kin share."""

from collections.abc import Iterator

import pytest

import workshop_gpu as wg
from tests.serverprocess import ServerProcess
from workshop_gpu.client import session
from workshop_gpu.client.errors import ConnectionLost, NotAllowed


@pytest.fixture(autouse=True)
def _nobody_is_connected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(session._shared, "client", None)
    yield
    if session._shared.client is not None:
        session._shared.client.close()


def test_connecting_to_the_same_server_again_keeps_the_client(server: ServerProcess) -> None:
    client = wg.connect(server.url, server.token)
    assert wg.connect(server.url, server.token) is client
    assert session.current() is client
    client.close()
    assert wg.connect(server.url, server.token) is not client


def test_a_wrong_token_shows_at_once_and_changes_nothing(server: ServerProcess) -> None:
    client = wg.connect(server.url, server.token)
    with pytest.raises(NotAllowed):
        wg.connect(server.url, "wrong")
    with pytest.raises(ConnectionLost):
        wg.connect("http://127.0.0.1:9/", "wrong")
    assert session.current() is client


def test_the_package_shows_its_names() -> None:
    assert {"generate", "Studio", "hold", "again", "connect", "models", "status"} <= set(dir(wg))
    for name in wg.__all__:
        assert getattr(wg, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = wg.nothing
