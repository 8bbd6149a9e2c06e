"""Fifty kernels that restart at once, again and again."""

import asyncio

import pytest
from msgspec.structs import replace

from workshop_gpu.api.identity import KernelTokens
from workshop_gpu.api.kernels import Kernels
from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.records import Participant
from workshop_gpu.host.runtime import Runtime, RuntimeSettings
from workshop_gpu.worker.protocol import GenerateParams

KERNELS = [f"kernel-{number:02}" for number in range(50)]
PARAMS = GenerateParams(prompt="x", seed=1, steps=4, guidance=1.0, width=128, height=128)


@pytest.fixture
def runtime(tmp_path):
    settings = RuntimeSettings((DeviceConfig("cpu:0", "CPU", "", 10**9),), tmp_path, threads=1)
    return Runtime(settings, Catalogue(tmp_path / "models.toml", default_dtype="float32"))


def test_what_fifty_kernels_held_goes_and_what_their_next_lives_hold_stays(runtime):
    tokens = KernelTokens()
    kernels = Kernels(runtime, tokens, lambda: "http://localhost/")

    async def begin(kernel):
        token = (await kernels.starting(kernel, f"{kernel}.ipynb"))["WORKSHOP_GPU_TOKEN"]
        person = Participant(kernel, kernel, kernel)
        hold = runtime.take_hold(person, "shapes", 600.0).hold
        job = (await runtime.submit(person, "shapes", PARAMS)).id
        return token, hold, job

    async def again(kernel):
        await kernels.ended(kernel, for_good=False)
        await asyncio.sleep(0)
        return await begin(kernel)

    async def scenario():
        async with runtime.running():
            await runtime.catalogue_read()
            # On a slow machine the worker would be ready before the storm is over, and draw.
            await runtime.change_policy(replace(runtime.policy, paused="a storm"))
            lives = [await asyncio.gather(*map(begin, KERNELS))]
            for _ in range(3):
                lives.append(await asyncio.gather(*map(again, KERNELS)))
            *old, last = lives
            holds = {hold.hold for hold in runtime.snapshot().holds}
            waiting = {job.job for job in runtime.snapshot().jobs}
            assert holds == {hold for _, hold, _ in last}
            assert waiting == {job for _, _, job in last}
            for life in old:
                assert not any(tokens.kernel(token) for token, _, _ in life)
            assert [tokens.kernel(token) for token, _, _ in last] == KERNELS
            for kernel in KERNELS:
                await kernels.ended(kernel, for_good=True)
            assert not runtime.snapshot().holds
            assert not runtime.snapshot().jobs
            assert tokens.kernels() == []

    asyncio.run(asyncio.wait_for(scenario(), 240))
