"""What the studio costs: how soon a picture is in the browser, and what it takes of the server.

`python -m benchmarks.widgets [--jobs 20] [--studios 20] [--rest 20]` needs Chromium. It starts a
real JupyterLab with one worker on the CPU and measures:

- the milliseconds from the worker's end of a job to the picture on the screen of a studio in
  JupyterLab: PNG, disk, journal, event stream, kernel, the kernel's WebSocket, decoding;
- the server's CPU time, in percent of one core, with so many open studios: each in a kernel of its
  own, with its event stream, its page played by a WebSocket to the kernel as JupyterLab opens one.
  At rest, and while one of them draws and all others are told how long they would wait.
"""

import argparse
import asyncio
import json
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
from playwright.sync_api import sync_playwright
from tornado.websocket import WebSocketClientConnection, websocket_connect

from benchmarks.report import Row, at_most, percentile, publish, shown
from tests.browser.conftest import FOR_TESTS, write_notebook
from tests.browser.lab import CHROMIUM, FLAGS, SLOW_MS, Lab
from tests.serverprocess import ServerProcess
from workshop_gpu import Client

MODEL = "shapes"
OPEN = f"""
import workshop_gpu as wg
studio = wg.Studio(prompt="a yellow star on a green background", model="{MODEL}", steps=4)
studio
"""
LONG = "studio.steps, studio.width, studio.height = 100, 256, 256; studio.generate().wait()"
WATCH = """() => {
  window.wgSeen = [];
  document.addEventListener("load", ({ target }) => {
    if (target.matches?.(".wg-tiles .wg-image")) {
      requestAnimationFrame(() => window.wgSeen.push(Date.now()));
    }
  }, true);
}"""


def main() -> int:
    """Measures, prints, writes; the exit code is 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--studios", type=int, default=20)
    parser.add_argument("--rest", type=float, default=20.0, help="seconds at rest")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        server = ServerProcess(app="lab", args=FOR_TESTS, folder=Path(name))
        with server, Client(server.url, server.token) as client:
            client.generate("a red circle", model=MODEL, steps=2, progress=False)
            to_screen = _to_the_screen(server, options.jobs)
            at_rest, in_a_job = asyncio.run(_cpu(server, options.studios, options.rest))
    many = f"server with {options.studios} open studios"
    rows: list[Row] = [
        shown("job's end to the picture in the browser, p50", percentile(to_screen, 50), "ms"),
        shown("job's end to the picture in the browser, p99", percentile(to_screen, 99), "ms"),
        at_most(f"{many}, at rest", at_rest, "% of a core", 5),
        shown(f"{many}, while one draws", in_a_job, "% of a core"),
    ]
    notes = (
        f"{options.jobs} pictures of {MODEL}, 128 x 128; at rest for {options.rest:.0f} s; the job "
        "that the CPU is measured in has 100 steps at 256 x 256 and previews."
    )
    return publish("widgets", rows, notes)


def _to_the_screen(server: ServerProcess, jobs: int) -> list[float]:
    """Milliseconds from the worker's end to the frame in which the picture is shown."""
    write_notebook(server.root_dir / "studio.ipynb", [OPEN])
    took: list[float] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        lab = Lab(browser, server, "studio.ipynb")
        lab.run(0)
        lab.page.evaluate(WATCH)
        for number in range(1, jobs + 1):
            lab.studio.get_by_role("button", name="Generate").click()
            lab.page.wait_for_function(
                "(number) => window.wgSeen.length >= number", arg=number, timeout=SLOW_MS
            )
            seen = lab.page.evaluate("window.wgSeen.at(-1)")
            took.append(seen - _latest_end(server) * 1000)
        browser.close()
    return took


def _latest_end(server: ServerProcess) -> float:
    """When the worker ended its last job, in seconds since 1970."""
    with _http(server) as http:
        jobs = http.get("workshop-gpu/api/jobs", params={"all": 1}).json()["jobs"]
    last = max(jobs, key=lambda job: job["started_at"] or 0.0)
    return float(last["started_at"]) + float(last["seconds_s"])


def _http(server: ServerProcess) -> httpx.Client:
    headers = {"Authorization": f"token {server.token}"}
    return httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=60)


async def _cpu(server: ServerProcess, studios: int, rest_s: float) -> tuple[float, float]:
    """Percent of one core that the server's process takes: at rest, and during one job."""
    process = psutil.Process(server.pid)
    async with AsyncExitStack() as stack:
        pages = [await stack.enter_async_context(_page(server)) for _ in range(studios)]
        for page in pages:
            await page.run(OPEN)
        await asyncio.sleep(5)  # what they fetched at their start is not rest
        began, used_s = time.monotonic(), _cpu_s(process)
        await asyncio.sleep(rest_s)
        at_rest = (_cpu_s(process) - used_s) / (time.monotonic() - began)
        began, used_s = time.monotonic(), _cpu_s(process)
        await pages[0].run(LONG)
        in_a_job = (_cpu_s(process) - used_s) / (time.monotonic() - began)
    return 100 * at_rest, 100 * in_a_job


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


class _Page:
    """One kernel with an open WebSocket, read as a page reads it."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self._socket = socket
        self._replies: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read())

    async def run(self, code: str) -> None:
        """Run code, and raise if it does."""
        message = _message("execute_request", {"code": code, "silent": False})
        reply = self._replies[message["header"]["msg_id"]] = asyncio.Future()
        await self._socket.write_message(json.dumps(message))
        content = (await asyncio.wait_for(reply, 120))["content"]
        assert content["status"] == "ok", content

    async def _read(self) -> None:
        while (text := await self._socket.read_message()) is not None:
            if isinstance(text, bytes):  # with buffers: a page takes them in, we need not
                continue
            message = json.loads(text)
            reply = self._replies.pop(message["parent_header"].get("msg_id", ""), None)
            if message["msg_type"] == "execute_reply" and reply is not None:
                reply.set_result(message)
            elif reply is not None:
                self._replies[message["parent_header"]["msg_id"]] = reply

    def close(self) -> None:
        self._reader.cancel()
        self._socket.close()


@asynccontextmanager
async def _page(server: ServerProcess) -> AsyncIterator[_Page]:
    with _http(server) as http:
        name = f"{uuid.uuid4().hex}.ipynb"
        session = {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}}
        kernel = http.post("api/sessions", json=session).raise_for_status().json()["kernel"]["id"]
        address = server.url.replace("http", "ws", 1)
        url = f"{address}api/kernels/{kernel}/channels?token={server.token}"
        page = _Page(await websocket_connect(url, max_message_size=2**30))
        try:
            yield page
        finally:
            page.close()
            http.delete(f"api/kernels/{kernel}")


def _message(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": kind,
        "username": "",
        "session": uuid.uuid4().hex,
        "version": "5.3",
    }
    return {
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": content,
        "channel": "shell",
        "buffers": [],
    }


if __name__ == "__main__":
    raise SystemExit(main())
