"""A fault in one of the server's tasks ends neither the others nor the task for good."""

import asyncio
import logging
from functools import partial

import pynvml
import pytest

from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.host import gpu_readings
from workshop_gpu.host.enduring import endure
from workshop_gpu.host.runtime import Runtime, RuntimeSettings

LOG = logging.getLogger("workshop_gpu")


def test_a_task_that_breaks_begins_anew_and_says_each_fault_once(caplog):
    faults = [OSError("no such card"), OSError("no such card"), KeyError("one")]

    async def task():
        if faults:
            raise faults.pop(0)

    asyncio.run(asyncio.wait_for(endure("The watch", task, LOG, pause_s=0.0), 20))
    said = [record.exc_info[1] for record in caplog.records]
    assert [repr(each) for each in said] == ["OSError('no such card')", "KeyError('one')"]


@pytest.fixture
def runtime(tmp_path):
    settings = RuntimeSettings((), tmp_path)
    return Runtime(settings, Catalogue(tmp_path / "models.toml", default_dtype="float32"))


def test_what_breaks_in_the_servers_clock_does_not_stop_the_server(runtime, monkeypatch, caplog):
    monkeypatch.setattr("workshop_gpu.host.runtime._TICK_S", 0.0)
    monkeypatch.setattr("workshop_gpu.host.runtime.endure", partial(endure, pause_s=0.0))
    ticked, look_after = asyncio.Event(), runtime.keeper.look_after
    faults = [RuntimeError("a fault of ours")]

    async def breaks_once():
        if faults:
            raise faults.pop()
        await look_after()
        ticked.set()

    monkeypatch.setattr(runtime.keeper, "look_after", breaks_once)

    async def scenario():
        async with runtime.running():
            await asyncio.wait_for(ticked.wait(), 30)

    asyncio.run(scenario())
    assert "The server's clock broke" in caplog.text


def test_a_server_that_cannot_begin_says_why_and_ends_in_order(runtime, monkeypatch, caplog):
    async def breaks():
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(runtime.inputs, "restore", breaks)

    async def scenario():
        async with runtime.running():
            await asyncio.wait_for(runtime._task, 30)
        assert runtime.keeper.journal.closed

    asyncio.run(scenario())
    assert "Permission denied" in caplog.text


class OneOfTwoIsLost:
    """The driver of two cards, of which the first has fallen off the bus."""

    class Memory:
        total, used = 80, 1

    class Process:
        pid, usedGpuMemory = 7, 5

    def nvmlInit(self):
        pass

    nvmlShutdown = nvmlInit

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        if index == 0:
            raise pynvml.NVMLError_GpuIsLost
        return index

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle):
        return "H100"

    def nvmlDeviceGetMemoryInfo(self, handle):
        return self.Memory

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [self.Process]


def test_a_card_that_is_lost_hides_no_other_and_ends_nothing(monkeypatch):
    driver = OneOfTwoIsLost()
    for name in (name for name in dir(driver) if name.startswith("nvml")):
        monkeypatch.setattr(pynvml, name, getattr(driver, name))
    assert [card.uuid for card in gpu_readings.gpus()] == ["GPU-1"]
    assert gpu_readings.gpu_processes() == [gpu_readings.GPUProcess(1, 7, 5)]
    assert gpu_readings.gpus_apart() == []
