"""Orders to stop what takes too long."""

import asyncio
import logging
import threading
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from tests.host.test_runtime import runtime_with
from workshop_gpu.catalogue.catalogue import Catalogue
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


def test_a_part_that_is_stuck_does_not_hold_up_the_servers_end(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("workshop_gpu.host.runtime._TICK_S", 0.0)
    monkeypatch.setattr("workshop_gpu.host.runtime._END_S", 0.0)
    runtime = runtime_with(tmp_path, Catalogue(tmp_path / "models.toml"))

    async def scenario():
        stuck, goes_on = asyncio.Event(), asyncio.Event()

        async def look_after():
            with anyio.CancelScope(shield=True):
                stuck.set()
                await goes_on.wait()

        monkeypatch.setattr(runtime.keeper, "look_after", look_after)
        runtime.start()
        with anyio.fail_after(60):
            await stuck.wait()
            await runtime.stop()
            assert runtime.keeper.journal.closed
            assert not runtime._task.done()
            goes_on.set()
            await runtime._task

    asyncio.run(scenario())
    assert "a part of it is stuck" in caplog.text


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
