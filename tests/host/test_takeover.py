"""The spare opens the device of a worker that dies while that one still goes: with fakes for the
order of things, and with real processes."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.exiting import is_exiting
from workshop_gpu.host.records import Participant
from workshop_gpu.host.runtime import Runtime, RuntimeSettings
from workshop_gpu.host.supervisor import Supervisor
from workshop_gpu.host.weight_pool import WeightPool
from workshop_gpu.host.worker_process import WorkerProcess
from workshop_gpu.worker.protocol import Done, Drawn, GenerateParams, Memory, Ready

DEVICE = DeviceConfig("cpu:0", "CPU", "", 10**9)
DONE = Done("job", [], Drawn("job", 1.0, 0, Memory(0, 0)))


def ready(ours_bytes=0):
    return Ready(1, "CPU", 10**9, Memory(ours_bytes, ours_bytes), {})


class FakeWorker:
    """Reports, and then goes in three steps, each when it is told to: it is seen to die, its socket
    closes, its process is gone."""

    pid = 1

    def __init__(self, name, story, *reports):
        self.name, self._story = name, story
        self.reports = list(reports)
        self.dying, self.closed, self.gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.ending, self.begun = asyncio.Event(), asyncio.Event()

    def goes_at_once(self):
        for step in (self.dying, self.closed, self.gone):
            step.set()
        return self

    async def receive(self):
        if self.reports:
            return self.reports.pop(0)
        await self.closed.wait()

    async def dies(self):
        await self.dying.wait()

    async def end(self):
        self.ending.set()
        await self.gone.wait()
        self._story.append(f"{self.name} is gone")
        return "signal SIGKILL"

    def begin(self):
        self._story.append(f"{self.name} begins")
        self.begun.set()

    def kill(self):
        self.dying.set()

    def last_lines(self):
        return ()


class Stage:
    """A supervisor whose workers and heirs are given in advance; what happens is its story."""

    def __init__(self, heirs=0):
        self.story = []
        self.told_bytes = []
        self.old = FakeWorker("the old one", self.story, ready(500))
        self.starts = [self.old]
        self.heirs = [FakeWorker(f"heir {number}", self.story, ready()) for number in range(heirs)]
        self.ready, self.taken, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.supervisor = Supervisor(
            DEVICE,
            Path("unused"),
            0,
            WeightPool(10**9),
            on_report=self._on_report,
            on_end=lambda device, end: self.story.append(f"told: {end.reason}"),
            log=logging.getLogger("test"),
            start=self._starter("started"),
            start_fresh=self._starter("started afresh"),
            take_spare=self._take_spare,
            pauses_s=(0.0, 0.0),
        )

    async def _on_report(self, device, report):
        self.ready.set()

    def _starter(self, word):
        async def start(device, log_folder, threads):
            if not self.starts:
                raise OSError(28, "No space left on device")
            self.story.append(word)
            return self.starts.pop(0)

        return start

    async def _take_spare(self, device, log_folder, context_bytes):
        self.told_bytes.append(context_bytes)
        if not self.coming:
            return None
        heir = self.coming.pop(0)
        self.story.append(f"{heir.name} opens the device")
        self.taken.set()
        return heir

    async def _supervises(self):
        await self.supervisor.run()
        self.over.set()

    async def plays(self, scenario):
        """The server ends when the scenario does."""
        self.coming = list(self.heirs)
        workers = [*self.starts, *self.heirs]
        with anyio.fail_after(30):
            async with anyio.create_task_group() as server:
                server.start_soon(self._supervises)
                await scenario()
                server.cancel_scope.cancel()
                for worker in workers:
                    worker.goes_at_once()
        return self.story


@pytest.mark.parametrize("seen", ["dying", "closed"])
def test_the_heir_opens_the_device_at_once_and_begins_when_the_old_one_is_gone_and_told(seen):
    """Where the system does not tell that a process dies, its socket's end does."""

    async def play():
        stage = Stage(heirs=1)
        old, (heir,) = stage.old, stage.heirs

        async def scenario():
            getattr(old, seen).set()
            await stage.taken.wait()
            old.closed.set()
            await old.ending.wait()
            assert stage.story == ["started", "heir 0 opens the device"]
            old.gone.set()
            await heir.begun.wait()

        return await stage.plays(scenario)

    assert asyncio.run(play())[2:5] == [
        "the old one is gone",
        "told: signal SIGKILL",
        "heir 0 begins",
    ]


def test_a_planned_restart_is_the_heirs_too():
    async def play():
        stage = Stage(heirs=1)

        async def scenario():
            await stage.ready.wait()
            stage.supervisor.stop_worker("a planned restart")
            await stage.taken.wait()
            stage.old.goes_at_once()
            await stage.heirs[0].begun.wait()

        return await stage.plays(scenario)

    assert asyncio.run(play())[2:5] == [
        "the old one is gone",
        "told: a planned restart",
        "heir 0 begins",
    ]


def test_an_heir_whose_device_is_taken_out_meanwhile_is_ended_and_never_begins():
    async def play():
        stage = Stage(heirs=1)

        async def scenario():
            stage.old.dying.set()
            await stage.taken.wait()
            stage.supervisor.take_out("the driver reported Xid 79")
            stage.old.goes_at_once()
            stage.heirs[0].goes_at_once()
            await stage.over.wait()

        return await stage.plays(scenario)

    assert asyncio.run(play())[2:] == [
        "the old one is gone",
        "told: the driver reported Xid 79",
        "heir 0 is gone",
    ]


def test_a_server_that_ends_meanwhile_ends_the_heir_too():
    async def play():
        stage = Stage(heirs=1)

        async def scenario():
            stage.old.closed.set()
            await stage.old.ending.wait()

        return await stage.plays(scenario)

    story = asyncio.run(play())[2:]
    assert sorted(story) == ["heir 0 is gone", "the old one is gone", "told: signal SIGKILL"]


def test_the_heir_ends_beside_the_old_one_when_both_are_stuck_in_the_driver():
    """One after the other they would take longer than a server has for its end."""

    async def play():
        stage = Stage(heirs=1)
        old, (heir,) = stage.old, stage.heirs
        stage.coming = list(stage.heirs)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as server:
                server.start_soon(stage.supervisor.run)
                old.closed.set()
                await old.ending.wait()
                server.cancel_scope.cancel()
                try:
                    with anyio.fail_after(10, shield=True):
                        await heir.ending.wait()
                    assert "the old one is gone" not in stage.story
                finally:
                    old.goes_at_once()
                    heir.goes_at_once()

    asyncio.run(play())


def test_after_an_heir_that_died_meanwhile_another_worker_is_started():
    async def play():
        stage = Stage(heirs=1)
        another = FakeWorker("another", stage.story)
        stage.starts.append(another)
        stage.heirs[0].reports.clear()
        stage.heirs[0].goes_at_once()
        another.closed.set()

        async def scenario():
            stage.old.goes_at_once()
            await another.ending.wait()

        return await stage.plays(scenario)

    story = asyncio.run(play())
    assert story[story.index("heir 0 begins") :][:4] == [
        "heir 0 begins",
        "heir 0 is gone",
        "told: signal SIGKILL",
        "started",
    ]


def test_where_no_spare_stands_by_the_next_worker_starts_when_the_old_one_is_gone():
    async def play():
        stage = Stage()
        another = FakeWorker("another", stage.story)
        stage.starts.append(another)
        another.closed.set()

        async def scenario():
            stage.old.goes_at_once()
            await another.ending.wait()

        return await stage.plays(scenario)

    story = asyncio.run(play())
    assert story[:4] == ["started", "the old one is gone", "told: signal SIGKILL", "started"]


def test_in_safe_mode_the_next_worker_is_a_fresh_process_and_no_heir():
    async def play():
        stage = Stage(heirs=2)
        stage.heirs[0].goes_at_once()

        async def scenario():
            stage.old.goes_at_once()
            await stage.over.wait()  # the next ones cannot be started

        return await stage.plays(scenario)

    story = asyncio.run(play())
    assert "heir 0 begins" in story
    assert "heir 1 opens the device" not in story


def test_a_worker_that_never_was_ready_has_no_heir():
    async def play():
        stage = Stage(heirs=1)
        stage.old.reports.clear()

        async def scenario():
            stage.old.goes_at_once()
            await stage.over.wait()

        return await stage.plays(scenario)

    assert "heir 0 opens the device" not in asyncio.run(play())


def test_each_heir_is_told_what_the_first_worker_held_before_it_had_models():
    """An heir's own figure holds what it was told: it would grow with each of them."""

    async def play():
        stage = Stage(heirs=2)
        stage.heirs[0].reports[:] = [ready(600), DONE]
        stage.heirs[0].goes_at_once()

        async def scenario():
            stage.old.goes_at_once()
            await stage.heirs[1].begun.wait()

        await stage.plays(scenario)
        return stage.told_bytes

    assert asyncio.run(play())[:2] == [500, 500]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells")
def test_a_process_that_was_killed_is_on_its_way_out_and_one_that_lives_is_not():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert not is_exiting(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_exiting(process.pid)
    assert not is_exiting(process.pid), "nobody is there any more"


POINT = """
import os, signal, socket, sys

def wait_for_ever(*_):
    while True:
        signal.pause()

def close_and_stay(*_):
    os._exit = wait_for_ever
    number = int(sys.argv[sys.argv.index("--fd") + 1])
    socket.socket(fileno=os.dup(number)).shutdown(socket.SHUT_WR)
    wait_for_ever()

if "workshop_gpu.worker" in sys.orig_argv:
    signal.signal(signal.SIGUSR2, close_and_stay)
"""
"""As a process whose end the driver holds up: its socket is closed, and it is still there."""
CIRCLE = GenerateParams(prompt="a circle", seed=7, steps=2, guidance=5.0, width=64, height=64)


def test_while_the_old_process_does_not_end_the_heir_has_the_device_open_and_does_not_begin(
    tmp_path, monkeypatch
):
    (tmp_path / "sitecustomize.py").write_text(POINT)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONPATH", path)
    settings = RuntimeSettings((DEVICE,), tmp_path, threads=1, spare_worker=True)
    runtime = Runtime(settings, Catalogue(tmp_path / "none.toml", default_dtype="float32"))
    (supervisor,) = runtime._supervisors.values()
    story = []

    def noting(name, method):
        def noted(self, *args):
            states = [device.state for device in runtime.snapshot().devices]
            story.append((name, self.pid, os.path.exists(f"/proc/{old}"), states))
            return method(self, *args)

        return noted

    for name in ("take_over", "begin"):
        monkeypatch.setattr(WorkerProcess, name, noting(name, getattr(WorkerProcess, name)))

    async def scenario():
        nonlocal old
        async with runtime.running():
            await runtime.catalogue_read()
            heir = await runtime.spare.stands_by()
            old = supervisor.pid
            os.kill(old, signal.SIGUSR2)
            job = (await runtime.submit(Participant("ann", "Ann"), "shapes", CIRCLE)).id
            assert (await runtime.finished(job)).view.state == "done"
            assert supervisor.pid == heir
            return heir

    old = 0
    heir = asyncio.run(asyncio.wait_for(scenario(), 240))
    assert story == [("take_over", heir, True, ["ready"]), ("begin", heir, False, ["starting"])]
    logs = sorted(path.name for path in (tmp_path / "logs").glob("worker-cpu-0*"))
    assert logs == ["worker-cpu-0.log", "worker-cpu-0.previous.log"]


def test_a_server_that_ends_between_a_workers_death_and_its_heirs_begin_leaves_no_process(
    tmp_path, monkeypatch
):
    settings = RuntimeSettings((DEVICE,), tmp_path, threads=1, spare_worker=True)
    runtime = Runtime(settings, Catalogue(tmp_path / "none.toml", default_dtype="float32"))
    (supervisor,) = runtime._supervisors.values()
    take_over, begun = WorkerProcess.take_over, []

    async def scenario():
        taken = asyncio.Event()

        def noting(self, *args):
            taken.set()
            take_over(self, *args)

        monkeypatch.setattr(WorkerProcess, "take_over", noting)
        monkeypatch.setattr(WorkerProcess, "begin", begun.append)
        async with runtime.running():
            pids = [await runtime.spare.stands_by(), supervisor.pid]
            os.kill(supervisor.pid, signal.SIGKILL)
            await taken.wait()
            runtime._stopping.set()
        return pids

    pids = asyncio.run(asyncio.wait_for(scenario(), 240))
    assert begun == []
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
