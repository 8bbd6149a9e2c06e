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


async def until_ready(runtime, model, ready=True):
    """Waits until the model stands ready, or does so no longer."""
    while True:
        position = runtime.events.position
        slots = [slot for slot in runtime.snapshot().slots if slot.model == model]
        if any(slot.state is SlotState.READY for slot in slots) is ready:
            return
        await runtime.events.grown(position)


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
            await until_ready(runtime, "shapes")
            spare, first, parts = (
                await runtime.spare.stands_by(),
                supervisor.pid,
                runtime.pool.state().parts,
            )
            assert {(part.models, part.workers) for part in parts} == {(("shapes",), 1)}
            os.kill(first, signal.SIGKILL)
            await until_ready(runtime, "shapes", ready=False)
            runtime.load("shapes")
            await until_ready(runtime, "shapes")
            assert supervisor.pid == spare
            assert runtime.pool.state().parts == parts
            return first, spare, await runtime.spare.stands_by()

    pids = asyncio.run(scenario())
    assert len(set(pids)) == 3
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    assert (tmp_path / "logs" / "worker-cpu-0.previous.log").exists()
