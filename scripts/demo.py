"""Start JupyterLab with the shipped models and show the first notebook; or check that it runs.

    python scripts/demo.py            starts the server, opens or prints the notebook's address
    python scripts/demo.py --check    runs the notebook once in a real kernel of that server,
                                      prints the path of the picture, and ends

Everything it writes, Jupyter's own settings included, lies in one folder (demo-output/).
"""

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
FIRST = "01-first-image.ipynb"
START_TIMEOUT_S = 120.0
CELL_TIMEOUT_S = 300


class DemoFailed(Exception):
    """The demo does not work; the message says why."""


class Server:
    """A JupyterLab of its own, with its settings, files and log in one folder."""

    def __init__(self, folder: Path, devices: list[str]) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self.token = secrets.token_hex(16)
        self.url = ""
        self._devices = devices
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def runtime_folder(self) -> Path:
        return self.folder / ".jupyter" / "runtime"

    @contextlib.contextmanager
    def running(self) -> Iterator["Server"]:
        """Start it, wait until it answers, and end it with the block. Raises DemoFailed."""
        self._start()
        try:
            self._wait()
            yield self
        finally:
            self._stop()

    def wait_for_end(self) -> None:
        if self._process is not None:
            self._process.wait()

    def _start(self) -> None:
        folders = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "IPYTHONDIR": "ipython",
        }
        settings = {name: str(self.folder / ".jupyter" / sub) for name, sub in folders.items()}
        for path in settings.values():
            Path(path).mkdir(parents=True, exist_ok=True)
        command = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1"),
            f"--ServerApp.root_dir={self.folder}",
            *(f"--WorkshopGPU.devices={device}" for device in self._devices),
        ]
        if os.geteuid() == 0:
            command.append("--allow-root")
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **settings, "JUPYTER_TOKEN": self.token},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait(self) -> None:
        assert self._process is not None
        info = self.runtime_folder / f"jpserver-{self._process.pid}.json"
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            if info.exists() and self._answers(info):
                return
            time.sleep(0.1)
        raise DemoFailed(f"JupyterLab did not start; the end of {self.log}:\n{self._end_of_log()}")

    def _answers(self, info: Path) -> bool:
        try:
            self.url = json.loads(info.read_text())["url"].replace("localhost", "127.0.0.1")
            status = self.request("GET", "workshop-gpu/api/status").status_code
        except (OSError, ValueError, httpx.HTTPError):
            return False
        if status == 404:
            raise DemoFailed(f"JupyterLab runs without Workshop GPU:\n{self._end_of_log()}")
        return status == 200

    def request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"token {self.token}"}
        return httpx.request(
            method, self.url + path, json=body, headers=headers, timeout=60, trust_env=False
        )

    def _end_of_log(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-25:])

    def _stop(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class KernelOfServer(AsyncKernelManager):
    """A kernel that the server started: it is ours to talk to, but not to start or end."""

    @property
    def has_kernel(self) -> bool:
        return True

    async def _async_is_alive(self) -> bool:
        """Its client asks when the kernel takes more than a second to answer."""
        return True

    is_alive = _async_is_alive


def copy_notebooks(folder: Path) -> Path:
    """The notebooks to play with; those that are there already keep what was done to them."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(NOTEBOOKS.glob("*.ipynb")):
        target = folder / source.name
        if not target.exists():
            shutil.copy(source, target)
    first = folder / FIRST
    if not first.exists():
        raise DemoFailed(f"{NOTEBOOKS / FIRST} is missing")
    return first


def show(folder: Path, devices: list[str]) -> None:
    """Serve until Ctrl-C."""
    copy_notebooks(folder)
    with Server(folder, devices).running() as server:
        address = f"{server.url}lab/tree/{FIRST}?token={server.token}"
        print(f"\nThe first notebook:  {address}\nThe server's log:    {server.log}")
        print("Ctrl-C ends the demo.", flush=True)
        if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            webbrowser.open(address)
        with contextlib.suppress(KeyboardInterrupt):
            server.wait_for_end()


def check(folder: Path, devices: list[str]) -> Path:
    """Run the first notebook once and return the picture it made. Raises DemoFailed."""
    shutil.rmtree(folder, ignore_errors=True)
    notebook = copy_notebooks(folder)
    with Server(folder, devices).running() as server:
        session = server.request(
            "POST",
            "api/sessions",
            {"path": FIRST, "name": FIRST, "type": "notebook", "kernel": {"name": "python3"}},
        )
        if session.status_code != 201:
            raise DemoFailed(f"the server started no kernel: {session.text}")
        kernel = session.json()["kernel"]["id"]
        run_notebook(notebook, server.runtime_folder / f"kernel-{kernel}.json")
        server.request("DELETE", f"api/sessions/{session.json()['id']}")
    pictures = sorted(folder.glob("*.png"), key=lambda path: path.stat().st_mtime)
    if not pictures:
        raise DemoFailed("the notebook ran, but no picture was saved")
    return pictures[0]


def run_notebook(path: Path, connection: Path) -> None:
    """Run all cells in the kernel of that connection file, and keep the outputs in the file."""
    manager = KernelOfServer(connection_file=str(connection))
    manager.load_connection_file()
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(notebook, km=manager, timeout=CELL_TIMEOUT_S)
    try:
        asyncio.run(_execute(client, manager))
    except CellExecutionError as error:
        raise DemoFailed(f"a cell of {path.name} failed:\n{error}") from None
    finally:
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


async def _execute(client: NotebookClient, manager: KernelOfServer) -> None:
    client.kc = manager.client()
    client.kc.start_channels()
    await client.kc.wait_for_ready(timeout=60)
    try:
        await client.async_execute()
    finally:
        client.kc.stop_channels()


def main() -> int:
    """Run the demo or its check; returns the exit status."""
    parser = argparse.ArgumentParser(description="The demo of Workshop GPU")
    parser.add_argument("--check", action="store_true", help="run the notebook once, and end")
    parser.add_argument("--folder", type=Path, default=ROOT / "demo-output")
    parser.add_argument("--device", action="append", default=[], help='such as "cpu:2GB"')
    options = parser.parse_args()
    folder = options.folder.resolve()
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)  # whatever ends us ends the server too
    try:
        if options.check:
            print(f"The demo works. Its picture: {check(folder / 'check', options.device)}")
        else:
            show(folder, options.device)
    except DemoFailed as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
