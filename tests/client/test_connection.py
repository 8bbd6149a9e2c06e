"""Finding the server."""

import json
import os
from pathlib import Path

import pytest

from workshop_gpu.client.connection import Server, find_server, server_at
from workshop_gpu.client.errors import NoServer
from workshop_gpu.client.http import Http


def write(folder: Path, pid: int, url: str, *, age_s: float = 0.0) -> None:
    path = folder / f"jpserver-{pid}.json"
    path.write_text(json.dumps({"url": url, "token": f"token-{pid}", "pid": pid}))
    os.utime(path, (1e9 - age_s, 1e9 - age_s))


def yes(server: Server) -> bool:
    return True


def alive(pid: int) -> bool:
    return True


def test_the_kernels_environment_comes_first_and_is_not_doubted(tmp_path: Path) -> None:
    write(tmp_path, 1, "http://localhost:1/")
    env = {
        "WORKSHOP_GPU_URL": "http://127.0.0.1:8888/base",
        "WORKSHOP_GPU_TOKEN": "mine",
        "JPY_PARENT_PID": "1",
    }
    server = find_server(env, tmp_path, lambda server: False)
    assert (server.url, server.token) == ("http://127.0.0.1:8888/base/", "mine")
    assert server.api == "http://127.0.0.1:8888/base/workshop-gpu/api/"


def test_the_kernels_parent_comes_before_newer_servers(tmp_path: Path) -> None:
    write(tmp_path, 1, "http://localhost:1/", age_s=100)
    write(tmp_path, 2, "http://localhost:2/")
    server = find_server({"JPY_PARENT_PID": "1"}, tmp_path, yes, alive)
    assert (server.url, server.token) == ("http://localhost:1/", "token-1")


def test_the_newest_living_server_that_has_the_extension_is_taken(tmp_path: Path) -> None:
    write(tmp_path, 1, "http://localhost:1/", age_s=100)
    write(tmp_path, 2, "http://localhost:2/", age_s=50)
    write(tmp_path, 3, "http://localhost:3/", age_s=10)
    write(tmp_path, 4, "http://localhost:4/")
    server = find_server({}, tmp_path, lambda server: server.url[-2] in "124", lambda pid: pid != 4)
    assert server.url == "http://localhost:2/"


def test_broken_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "jpserver-1.json").write_text("{")
    (tmp_path / "jpserver-2.json").write_text('{"url": 5}')
    (tmp_path / "jpserver-3.json").write_text('["url"]')
    write(tmp_path, 4, "http+unix://socket")
    (tmp_path / "jpserver-x.json").write_text("{}")
    with pytest.raises(NoServer, match=r"wg\.connect"):
        find_server({"JPY_PARENT_PID": "1"}, tmp_path, yes, alive)


def test_a_missing_folder_means_no_server(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="jupyter lab"):
        find_server({}, tmp_path / "nowhere", yes)


@pytest.mark.parametrize(
    "pasted",
    [
        "http://host:8888/base",
        "http://host:8888/base/",
        "http://host:8888/base/lab?token=abc",
        "http://host:8888/base/lab/tree/a.ipynb?token=abc",
        "http://host:8888/base/tree",
    ],
)
def test_an_address_pasted_from_the_browser_is_understood(pasted: str) -> None:
    server = server_at(pasted, "" if "token" in pasted else "abc")
    assert (server.url, server.token) == ("http://host:8888/base/", "abc")


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(NoServer, match="http://"):
        server_at("localhost:8888", "")


@pytest.mark.parametrize(
    ("server", "direct"),
    [
        (Server("http://10.0.0.5/", "", "the kernel's environment"), True),
        (Server("http://localhost/", ""), True),
        (Server("http://[::1]/", ""), True),
        (Server("http://far.example/", ""), False),
    ],
)
def test_no_proxy_comes_between_a_kernel_and_its_own_server(
    server: Server, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    http = Http(server)
    assert http._http.trust_env is not direct
    http.close()


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(Server("http://x/", "secret"))
