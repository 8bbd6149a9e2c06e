"""The spare worker and the weight pool, with real processes on the pretended device."""

import asyncio
import os
import signal

import pytest

from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.conductor.states import SlotState
from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.runtime import Runtime, RuntimeSettings

DEVICE = DeviceConfig("cpu:0", "CPU", "", 10**9)


async def until(condition, timeout_s=120.0):
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.02)


def slot_states(runtime, model):
    return [slot.state for slot in runtime.snapshot().slots if slot.model == model]


@pytest.fixture
def runtime(tmp_path):
    settings = RuntimeSettings((DEVICE,), tmp_path, threads=1, spare_worker=True)
    return Runtime(settings, Catalogue(tmp_path / "models.toml", default_dtype="float32"))


def test_the_spare_takes_the_place_of_a_worker_that_died_and_weights_outlive_it(runtime, tmp_path):
    async def scenario():
        async with runtime.running():
            supervisor = runtime._supervisors["cpu:0"]
            await runtime.catalogue_read()
            runtime.load("shapes")
            await until(lambda: SlotState.READY in slot_states(runtime, "shapes"))
            await until(lambda: runtime.spare.pid is not None)
            spare, first, parts = runtime.spare.pid, supervisor.pid, runtime.pool.state().parts
            assert all(part.models == ("shapes",) and part.workers == 1 for part in parts)
            os.kill(first, signal.SIGKILL)
            await until(lambda: supervisor.pid == spare)
            await until(lambda: runtime.spare.pid not in (None, spare))
            runtime.load("shapes")
            await until(lambda: SlotState.READY in slot_states(runtime, "shapes"))
            assert runtime.pool.state().parts == parts
            return first, spare, runtime.spare.pid

    pids = asyncio.run(scenario())
    assert len(set(pids)) == 3
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    assert (tmp_path / "logs" / "worker-cpu-0.previous.log").exists()
