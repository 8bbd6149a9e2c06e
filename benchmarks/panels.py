"""What open panels cost the server while things change.

`python -m benchmarks.panels [--panels 50] [--seconds 30]` starts a real Jupyter server, opens as
many event streams as there would be browser tabs, each of another participant, and makes one change
a second (a job that comes, a job that is cancelled). It measures the server's CPU time, against
that without any stream, and how long a change takes to reach the last panel.
"""

import argparse
import asyncio
import json
import time

import httpx
import psutil

from benchmarks.report import Row, at_most, percentile, publish, shown
from tests.serverprocess import ServerProcess

EVERY_S = 1.0
HISTORY_EVERY_S = 10.0
JOB = {"model": "shapes-dit-turbo", "prompt": "a red circle on a blue background"}


def main() -> int:
    """Measures, prints, writes; the exit code is 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--panels", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=30)
    options = parser.parse_args()
    with ServerProcess(devices=("cpu:2GB",)) as server:
        rows = asyncio.run(_measured(server, options.panels, options.seconds))
    notes = f"{options.panels} event streams, one change each second for {options.seconds} s."
    return publish("panels", rows, notes)


async def _measured(server: ServerProcess, panels: int, seconds: int) -> list[Row]:
    headers = {"Authorization": f"token {server.token}"}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=f"{server.url}workshop-gpu/api/",
        headers=headers,
        timeout=60,
        limits=limits,
        trust_env=False,
    ) as http:
        (await http.post("queue/pause")).raise_for_status()
        alone = await _load(server, http, [], seconds)
        readers = [Panel(http, f"person {i}") for i in range(panels)]
        tasks = [asyncio.create_task(reader.show()) for reader in readers]
        await asyncio.gather(*(reader.open.wait() for reader in readers))
        loaded = await _load(server, http, readers, seconds)
        for task in tasks:
            task.cancel()
    delays = [delay for reader in readers for delay in reader.delays_ms]
    expected = seconds * panels
    return [
        at_most(f"server's CPU with {panels} panels", loaded * 100, "% of a core", 10),
        shown("the same without a panel", alone * 100, "% of a core"),
        shown("a change reaches a panel, p50", percentile(delays, 50), "ms"),
        shown("a change reaches a panel, p99", percentile(delays, 99), "ms"),
        at_most("changes that a panel missed", expected - len(delays), "", 0),
    ]


class Panel:
    """One browser tab's stream, read and parsed as the panel does it."""

    changed_at = 0.0

    def __init__(self, http: httpx.AsyncClient, name: str) -> None:
        self._http = http
        self._headers = {"X-Workshop-GPU-Participant": name}
        self.open = asyncio.Event()
        self.delays_ms: list[float] = []
        self._waits_for: str | None = None

    def expect(self, state: str, at: float) -> None:
        """The next job in this state is the change that was made at this time."""
        self._waits_for, self.changed_at = state, at

    async def show(self) -> None:
        """Until it is cancelled."""
        await asyncio.gather(self._read(), self._chart())

    async def _chart(self) -> None:
        latest = 0.0
        while True:
            answer = await self._http.get(f"history?after={latest}", headers=self._headers)
            points = answer.raise_for_status().json()["points"]
            latest = points[-1]["at"] if points else latest
            await asyncio.sleep(HISTORY_EVERY_S)

    async def _read(self) -> None:
        async with self._http.stream("GET", "events", headers=self._headers) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    self._take(json.loads(line[6:]))

    def _take(self, event: dict[str, object]) -> None:
        self.open.set()
        job = event.get("job")
        if isinstance(job, dict) and job["state"] == self._waits_for:
            self.delays_ms.append((time.perf_counter() - self.changed_at) * 1000)
            self._waits_for = None


async def _load(
    server: ServerProcess, http: httpx.AsyncClient, readers: list[Panel], seconds: int
) -> float:
    """The server's CPU seconds for each second, with a change in each."""
    process = psutil.Process(server.pid)
    job = ""
    before, started = _cpu_s(process), time.perf_counter()
    for second in range(seconds):
        for reader in readers:
            reader.expect("cancelled" if job else "queued", time.perf_counter())
        if job:
            (await http.delete(f"jobs/{job}")).raise_for_status()
            job = ""
        else:
            job = (await http.post("jobs", json=JOB)).raise_for_status().json()["id"]
        await asyncio.sleep(max(0.0, started + (second + 1) * EVERY_S - time.perf_counter()))
    used_s = _cpu_s(process) - before
    if job:
        (await http.delete(f"jobs/{job}")).raise_for_status()
    return used_s / (time.perf_counter() - started)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


if __name__ == "__main__":
    raise SystemExit(main())
