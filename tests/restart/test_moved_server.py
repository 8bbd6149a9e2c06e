"""The server starts again at another port and with another token: who found it finds it again."""

from pathlib import Path

import pytest

from tests.serverprocess import ServerProcess
from workshop_gpu.client import Client
from workshop_gpu.client.errors import ConnectionLost
from workshop_gpu.client.words import Progress

PROMPT = "a red circle on a blue background"


def test_a_client_finds_its_job_on_the_server_that_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ServerProcess(folder=tmp_path)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    for name in ("WORKSHOP_GPU_URL", "JPY_PARENT_PID"):
        monkeypatch.delenv(name, raising=False)

    def move(progress: Progress) -> None:
        if progress.job.step and len(lives) == 1:
            server.kill()
            server.token = "another-token"
            lives.append(server.start().url)

    with server, Client() as client:
        lives = [server.url]
        named = Client(server.url, server.token)
        job = client.submit(PROMPT, "shapes", steps=40, seed=1)
        (image,) = job.wait(500.0, move)
        assert image.seed == 1
        assert lives[0] != lives[1]
        assert (client.server.url, client.server.token) == (lives[1], "another-token")
        with named, pytest.raises(ConnectionLost):
            named.me()
