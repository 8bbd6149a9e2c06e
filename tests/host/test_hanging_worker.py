"""Workers that hang or crash: with fakes, and with real processes that are stopped and broken."""

import asyncio
import logging
import os
import re
import signal
from pathlib import Path

import pytest

from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.conductor import effects
from workshop_gpu.conductor.conductor import Settings
from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.records import Participant
from workshop_gpu.host.runtime import Runtime, RuntimeSettings
from workshop_gpu.host.supervisor import Supervisor
from workshop_gpu.host.watchdog import Watchdog
from workshop_gpu.host.weight_pool import WeightPool
from workshop_gpu.worker.protocol import Done, Drawn, GenerateParams, Heartbeat, Memory, Ready

DEVICE = DeviceConfig("cpu:0", "CPU", "", 10**9)
READY = Ready(1, "CPU", 10**9, Memory(0, 0), {})
SILENCE_S = 4.0
"""The heart beats every second; a busy machine may be late."""


def test_a_watchdog_barks_only_after_looks_in_a_row_without_a_sign_of_life():
    async def scenario():
        watchdog = Watchdog(0.08)
        barks = asyncio.ensure_future(watchdog.silence())
        for _ in range(30):
            watchdog.heard()
            await asyncio.sleep(0.01)
            assert not barks.done()
        await barks

    asyncio.run(scenario())


def test_a_watchdog_without_a_limit_never_barks():
    async def scenario():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Watchdog(0.0).silence(), 0.05)

    asyncio.run(scenario())


class FakeWorker:
    """Reports, beats so many times, then says nothing until it is killed, if that ends it."""

    pid = 1

    def __init__(self, *reports, beats=0, mortal=True):
        self._reports = [READY, *reports]
        self._beats = beats
        self._mortal = mortal
        self._killed = asyncio.Event()

    async def receive(self):
        if self._reports:
            return self._reports.pop(0)
        if self._beats:
            self._beats -= 1
            await asyncio.sleep(0.005)
            return Heartbeat()
        await self._killed.wait()
        return None

    async def kill_hung(self):
        if self._mortal:
            self._killed.set()

    async def end(self):
        return "signal SIGKILL" if self._killed.is_set() else "it does not end"

    def last_lines(self):
        return ("the last line",)


def lives(*workers, silence_limit_s=0.04):
    """Runs a supervisor over these lives: the ends, the reports, and which start each had."""
    coming, ends, reports, starts = list(workers), [], [], []

    def starter(name):
        async def start(device, log_folder, threads):
            starts.append(name)
            if not coming:
                raise OSError(28, "No space left on device")
            return coming.pop(0)()

        return start

    async def on_report(device, report):
        reports.append(report)

    supervisor = Supervisor(
        DEVICE,
        Path("unused"),
        0,
        WeightPool(10**9),
        on_report=on_report,
        on_end=lambda device, end: ends.append(end),
        log=logging.getLogger("test"),
        start=starter("spare"),
        start_fresh=starter("fresh"),
        pauses_s=(0.0,),
        silence_limit_s=silence_limit_s,
    )
    asyncio.run(supervisor.run())
    return ends[:-1], reports, starts


def test_a_silent_worker_is_ended_and_one_that_beats_is_not():
    ends, reports, _ = lives(lambda: FakeWorker(beats=40))
    assert [end.reason for end in ends] == ["it hung: no sign of life for 0.04 s"]
    assert ends[0].log == ("the last line",)
    assert reports == [READY], "heartbeats are the supervisor's own"


def test_a_worker_that_even_a_kill_does_not_end_is_left_behind(monkeypatch):
    monkeypatch.setattr("workshop_gpu.host.supervisor._KILL_TIMEOUT_S", 0.01)
    ends, _, starts = lives(lambda: FakeWorker(mortal=False))
    assert "it hung" in ends[0].reason
    assert len(starts) == 2, "the next one is tried"


def test_after_two_ends_in_a_row_the_next_worker_is_a_fresh_process_until_a_picture():
    done = Done("job", [], Drawn("job", 1.0, 0, Memory(0, 0)))
    _, _, starts = lives(FakeWorker, FakeWorker, FakeWorker, lambda: FakeWorker(done))
    assert starts == ["spare", "spare", "fresh", "fresh", "spare"]


def test_a_device_that_was_given_up_is_tried_again():
    ends, tries = [], []

    async def scenario():
        again = asyncio.Event()

        async def start(device, log_folder, threads):
            tries.append(device)
            if len(tries) == 3:
                again.set()
                await asyncio.Event().wait()
            raise OSError(19, "No such device")

        async def on_report(device, report):
            pass

        supervisor = Supervisor(
            DEVICE,
            Path("unused"),
            0,
            WeightPool(10**9),
            on_report=on_report,
            on_end=lambda device, end: ends.append(end.given_up),
            log=logging.getLogger("test"),
            start=start,
            pauses_s=(0.0, 0.0),
            retry_s=0.0,
        )
        running = asyncio.ensure_future(supervisor.run())
        await asyncio.wait_for(again.wait(), 120)
        running.cancel()

    asyncio.run(scenario())
    assert ends[:2] == [False, True]
    assert len(tries) == 3


@pytest.fixture
def runtime(tmp_path):
    settings = RuntimeSettings((DEVICE,), tmp_path, threads=1, silence_limit_s=SILENCE_S)
    return Runtime(settings, Catalogue(tmp_path / "models.toml", default_dtype="float32"))


def test_a_stopped_and_a_crashed_worker_are_replaced_and_their_end_is_told(runtime, tmp_path):
    """What a stopped process is, a call that keeps the interpreter for good is too."""

    async def state(wanted):
        while (views := runtime.snapshot().devices) and views[0].state != wanted:
            await runtime.events.grown(runtime.events.position)

    async def scenario():
        async with runtime.running():
            supervisor, pids = runtime._supervisors["cpu:0"], []
            for end in (signal.SIGSEGV, signal.SIGSTOP):
                await state("ready")
                pids.append(supervisor.pid)
                os.kill(supervisor.pid, end)
                await state("starting")
            log = runtime.events.after(0)
            return pids, [each.text for _, each in log if isinstance(each, effects.Notice)]

    ends = []
    told = runtime._on_worker_end
    for supervisor in runtime._supervisors.values():
        supervisor._on_end = lambda device, end: (ends.append(end), told(device, end))
    pids, notices = asyncio.run(asyncio.wait_for(scenario(), 500))
    crash, hang = ends
    assert crash.reason == "signal SIGSEGV: Fatal Python error: Segmentation fault"
    assert any("hread" in line for line in crash.log), crash.log
    assert hang.reason == f"it hung: no sign of life for {SILENCE_S:g} s"
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")], "orphans"
    assert any("safe mode" in text for text in notices)


POINT = """
import signal, sys

def wait_for_ever(*_):
    while True:
        signal.pause()

if "workshop_gpu.worker" in sys.orig_argv:
    signal.signal(signal.SIGUSR2, wait_for_ever)
"""
"""As a call of the driver that never returns: the lane that draws waits, other threads go on."""
STALL_S = 15.0
SLOW = GenerateParams(prompt="a circle", seed=7, steps=80, guidance=5.0, width=64, height=64)


def test_a_worker_whose_heart_beats_while_its_job_makes_no_step_is_replaced(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(POINT)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONPATH", path)
    limits = Settings(stall_limit_s=STALL_S)
    settings = RuntimeSettings(
        (DEVICE,), tmp_path, threads=1, silence_limit_s=4 * STALL_S, conductor=limits
    )
    runtime = Runtime(settings, Catalogue(tmp_path / "none.toml", default_dtype="float32"))
    (supervisor,) = runtime._supervisors.values()
    ends, told = [], supervisor._on_end
    supervisor._on_end = lambda device, end: (ends.append(end.reason), told(device, end))

    async def scenario():
        async with runtime.running():
            await runtime.catalogue_read()
            job = (await runtime.submit(Participant("ann", "Ann"), "shapes", SLOW)).id
            while not any(each.step > 2 for each in runtime.snapshot().jobs):
                await runtime.events.grown(runtime.events.position)
            os.kill(supervisor.pid, signal.SIGUSR2)
            assert (await runtime.finished(job)).view.state == "done"
            return list(ends)

    (reason,) = asyncio.run(asyncio.wait_for(scenario(), 500))
    still = re.fullmatch(r"it hung: a job made no step for (\d+) s", reason)
    assert still is not None, reason
    assert int(still[1]) >= STALL_S
