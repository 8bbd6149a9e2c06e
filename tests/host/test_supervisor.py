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


class AliveUntilKilled(FakeWorker):
    """Reports, and lives on until it is killed. `then` is called once all was reported."""

    def __init__(self, *reports, then):
        super().__init__(*reports)
        self._then = then
        self._killed = asyncio.Event()

    async def receive(self):
        if self._reports:
            return self._reports.pop(0)
        self._then()
        await self._killed.wait()

    def kill(self):
        self._killed.set()


def lives(*workers, ready_timeout_s=60.0):
    """Runs a supervisor that gives up after two failures: (reason, given up) of each life."""
    return watched(*workers, ready_timeout_s=ready_timeout_s)


def watched(
    *workers,
    ready_timeout_s=60.0,
    made=lambda supervisor: None,
    reported=lambda report: None,
):
    """The same; `made` gets the supervisor before it runs, `reported` each report."""
    ends, coming = [], list(workers)

    async def start(device, log_folder, threads):
        worker = coming.pop(0)
        if isinstance(worker, Exception):
            raise worker
        return worker

    async def on_report(device, report):
        reported(report)

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
    made(supervisor)
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


def test_a_device_that_is_taken_out_is_given_up_at_once_though_its_worker_was_well():
    supervisors = []
    reason = "the driver reported Xid 79"
    worker = AliveUntilKilled(READY, then=lambda: supervisors[0].take_out(reason))
    assert watched(worker, made=supervisors.append) == [(reason, True)]


def test_what_the_driver_said_is_in_the_reason_of_the_end_that_followed():
    supervisors = []

    class Crashing(FakeWorker):
        async def receive(self):
            supervisors[0].note("the driver reported Xid 31")
            return await super().receive()

    ends = watched(Crashing(READY), FakeWorker(), FakeWorker(), made=supervisors.append)
    assert ends[0] == ("exit code 1 (the driver reported Xid 31)", False)


def test_a_fault_over_a_report_ends_that_worker_which_is_told_and_another_one_starts():
    def reported(report):
        raise KeyError("a fault of ours")

    first = FakeWorker(READY)
    ends = watched(first, FakeWorker(hangs=True), ready_timeout_s=0.001, reported=reported)
    assert [given_up for _, given_up in ends] == [False, True]
    assert "KeyError('a fault of ours')" in ends[0][0]
    assert ends[1][0] == "it was not ready within 0.001 s"
