"""Finding the server that this notebook or script belongs to.

In this order: the environment that our server gives to its kernels; the Jupyter server that
started this kernel; the newest Jupyter server on this machine that has Workshop GPU.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workshop_gpu.client.errors import NoServer

API_PATH = "workshop-gpu/api/"

_BY_HAND = "given by hand"

_NOTHING_FOUND = (
    "no Jupyter server with Workshop GPU runs here. Start one with `workshop-gpu` installed "
    "(`jupyter lab`) and open this notebook in it, or name the server yourself: "
    'wg.connect("http://localhost:8888/", token="...").'
)


@dataclass(frozen=True)
class Server:
    """A server's base URL (it ends in "/"), the token to show it, and how it was found."""

    url: str
    token: str = field(repr=False)
    found_by: str = _BY_HAND

    @property
    def api(self) -> str:
        return self.url + API_PATH

    @property
    def is_own(self) -> bool:
        """Whether it is this kernel's or this machine's server, not one that somebody named."""
        return self.found_by != _BY_HAND


def server_at(url: str, token: str) -> Server:
    """The server at a URL given by hand; `?token=` in the URL serves where `token` is empty."""
    address, _, query = url.partition("?")
    if not address.startswith(("http://", "https://")):
        raise NoServer(f'"{url}" is no address: it must begin with http:// or https://.')
    if not token:
        pairs = (pair.partition("=") for pair in query.split("&"))
        token = next((value for name, _, value in pairs if name == "token"), "")
    for page in ("/lab", "/tree", "/notebooks"):  # people paste what the browser shows
        address = address.partition(f"{page}/")[0].removesuffix(page)
    return Server(address.rstrip("/") + "/", token)


def find_server(
    environ: Mapping[str, str],
    runtime_dir: Path,
    answers: Callable[[Server], bool],
    alive: Callable[[int], bool] | None = None,
) -> Server:
    """The server to talk to. `answers` asks a server whether it has Workshop GPU.

    Raises NoServer where there is none.
    """
    url = environ.get("WORKSHOP_GPU_URL", "")
    if url:
        token = environ.get("WORKSHOP_GPU_TOKEN", "")
        return Server(url.rstrip("/") + "/", token, "the kernel's environment")
    parent = environ.get("JPY_PARENT_PID", "")
    if parent.isdigit():
        server = _read(runtime_dir / f"jpserver-{parent}.json", "the server of this kernel")
        if server is not None and answers(server):
            return server
    for server in _running_servers(runtime_dir, alive or _process_lives):
        if answers(server):
            return server
    raise NoServer(_NOTHING_FOUND)


def _running_servers(runtime_dir: Path, alive: Callable[[int], bool]) -> Iterator[Server]:
    """Servers whose process lives, newest first."""
    found: list[tuple[float, Path]] = []
    for path in runtime_dir.glob("jpserver-*.json"):
        pid = path.stem.removeprefix("jpserver-")
        if pid.isdigit() and alive(int(pid)):
            try:
                found.append((path.stat().st_mtime, path))
            except OSError:  # the server ended just now and took its file along
                continue
    for _, path in sorted(found, reverse=True):
        server = _read(path, "the newest server of this machine")
        if server is not None:
            yield server


def _read(path: Path, found_by: str) -> Server | None:
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
        url, token = info["url"], info.get("token", "")
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        return None
    return Server(url.rstrip("/") + "/", str(token), found_by)


def _process_lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
