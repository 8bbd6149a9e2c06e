import asyncio
import logging
from pathlib import Path

import pytest

from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.supervisor import Supervisor
from workshop_gpu.host.weight_pool import WeightPool
from workshop_gpu.worker.protocol import Memory, MemoryReading, Ready

DEVICE = DeviceConfig("cpu:0", "CPU", "", 10**9)
READY = Ready(1, "CPU", 10**9, Memory(0, 0), {})


class FakeWorker:
    """Gives its reports, then ends; or says nothing for ever."""

    pid = 1

    def __init__(self, *reports, hangs=False):
        self._reports = list(reports)
        self._hangs = hangs

    async def receive(self):
        if self._hangs:
            await asyncio.Event().wait()
        return self._reports.pop(0) if self._reports else None

    async def end(self):
        return "exit code 1"

    def last_lines(self):
        return ()


def lives(*workers, ready_timeout_s=60.0):
    """Runs a supervisor that gives up after two failures: (reason, given up) of each life."""
    ends, coming = [], list(workers)

    async def start(device, log_folder, threads):
        worker = coming.pop(0)
        if isinstance(worker, Exception):
            raise worker
        return worker

    async def on_report(device, report):
        pass

    supervisor = Supervisor(
        DEVICE,
        Path("unused"),
        0,
        WeightPool(10**9),
        on_report=on_report,
        on_end=lambda device, end: ends.append((end.reason, end.given_up)),
        log=logging.getLogger("test"),
        start=start,
        pauses_s=(0.0, 0.0),
        ready_timeout_s=ready_timeout_s,
    )
    asyncio.run(supervisor.run())
    return ends


def test_a_worker_that_cannot_be_started_is_told_and_tried_again():
    full = OSError(28, "No space left on device")
    reason = "it could not be started: No space left on device"
    assert lives(full, full) == [(reason, False), (reason, True)]


def test_a_worker_that_never_becomes_ready_is_ended():
    ends = lives(FakeWorker(hangs=True), FakeWorker(hangs=True), ready_timeout_s=0.001)
    reason = "it was not ready within 0.001 s"
    assert ends == [(reason, False), (reason, True)]


@pytest.mark.parametrize("reports", [(READY,), (READY, MemoryReading(Memory(0, 0)))])
def test_a_worker_that_was_ready_counts_as_no_failure(reports):
    ends = lives(FakeWorker(), FakeWorker(*reports), FakeWorker(), FakeWorker())
    assert [given_up for _, given_up in ends] == [False, False, False, True]
