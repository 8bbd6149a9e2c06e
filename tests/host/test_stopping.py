"""Orders to stop what takes too long."""

import asyncio
import logging
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.downloads import Downloads
from workshop_gpu.host.supervisor import Supervisor
from workshop_gpu.host.weight_pool import WeightPool
from workshop_gpu.worker.protocol import Memory, Ready


def test_a_stopped_download_returns_and_its_thread_ends_at_the_next_report():
    started, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

    def run(spec, progress):
        progress(1, 100)
        started.set()
        goes_on.wait(120)
        try:
            progress(2, 100)
        except Exception:
            ended.set()
            raise

    async def scenario():
        downloads = Downloads(lambda: None, run)
        fetching = asyncio.create_task(downloads.fetch(SimpleNamespace(id="shapes")))
        await asyncio.to_thread(started.wait, 120)
        assert downloads.get("shapes") is not None
        downloads.stop("shapes")
        downloads.stop("another one")
        await fetching
        assert downloads.get("shapes") is None
        goes_on.set()
        assert await asyncio.to_thread(ended.wait, 120)

    asyncio.run(scenario())


def test_a_download_that_ends_by_itself_is_not_stopped():
    def run(spec, progress):
        progress(100, 100)
        raise OSError("disk full")

    async def scenario():
        downloads = Downloads(lambda: None, run)
        with pytest.raises(OSError, match="disk full"):
            await downloads.fetch(SimpleNamespace(id="shapes"))
        assert downloads.get("shapes") is None

    asyncio.run(scenario())


class HangingWorker:
    """Is ready, then says nothing more until it is killed."""

    pid = 1

    def __init__(self):
        self._reports = [Ready(1, "CPU", 10**9, Memory(0, 0), {})]
        self._killed = asyncio.Event()

    async def receive(self):
        if self._reports:
            return self._reports.pop(0)
        await self._killed.wait()
        return None

    def kill(self):
        self._killed.set()

    async def end(self):
        return "signal SIGKILL"

    def last_lines(self):
        return ()


def test_a_worker_that_takes_too_long_is_killed_and_the_reason_is_told():
    ends = []

    async def start(device, log_folder, threads):
        if ends:
            raise OSError(28, "No space left on device")
        return HangingWorker()

    async def on_report(device, report):
        supervisor.stop_worker("a load took longer than 600 s")

    supervisor = Supervisor(
        DeviceConfig("cpu:0", "CPU", "", 10**9),
        Path("unused"),
        0,
        WeightPool(10**9),
        on_report=on_report,
        on_end=lambda device, end: ends.append(end.reason),
        log=logging.getLogger("test"),
        start=start,
        pauses_s=(0.0,),
    )
    asyncio.run(supervisor.run())
    assert ends == [
        "a load took longer than 600 s",
        "it could not be started: No space left on device",
    ]
