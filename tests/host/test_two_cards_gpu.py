"""A server with two real cards: one lends the other its memory, and the worker that stands by takes
over whichever lost its own."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.host.test_placements import PARAMS, drawn
from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.catalogue.shipped import ASSETS
from workshop_gpu.conductor.ladder import RUNGS
from workshop_gpu.host.devices import DeviceConfig, find_devices
from workshop_gpu.host.runtime import Runtime, RuntimeSettings

pytestmark = pytest.mark.gpu


@pytest.fixture
def cards() -> tuple[DeviceConfig, DeviceConfig]:
    found = [device for device in find_devices(["auto"]) if device.gpu_uuid]
    if len(found) < 2:
        pytest.skip("this machine has no two NVIDIA GPUs")
    if found[0].name != found[1].name:
        pytest.skip("cards of two kinds round in two ways")
    return found[0], found[1]


def runtime_on(
    cards: tuple[DeviceConfig, ...], folder: Path, *, memory: str = "", spare: bool = False
) -> Runtime:
    models = folder / "models.toml"
    shapes = f'id = "shapes"\nsource = {{ folder = "{ASSETS / "shapes"}" }}'
    models.write_text(f"[[model]]\n{shapes}\n{memory}\n")
    settings = RuntimeSettings(cards, folder / "data", spare_worker=spare)
    return Runtime(settings, Catalogue(models, default_placement="auto"))


def holders_of_weights(runtime: Runtime, card: DeviceConfig) -> list[str]:
    (view,) = (each for each in runtime.snapshot().devices if each.device == card.id)
    return [holder.name for holder in view.holders if holder.kind == "weights"]


def test_the_second_card_is_home_of_encoders_and_source_of_blocks(
    cards: tuple[DeviceConfig, DeviceConfig], tmp_path: Path
) -> None:
    """The picture is the same on every rung, and the second card's account has what it lends."""
    first, second = cards

    async def scenario() -> None:
        memory = f'memory = {{ swap_device = "{second.id}" }}'
        async with runtime_on(cards, tmp_path, memory=memory).running() as it:
            await it.catalogue_read()
            _, resident = await drawn(it, "resident")
            (slot,) = it.snapshot().slots
            assert slot.device == first.id
            for rung in (each for each in RUNGS if each.swaps):
                _, picture = await drawn(it, rung.name)
                (slot,) = it.snapshot().slots
                assert (slot.device, slot.placement) == (first.id, rung.words)
                assert (picture == resident).all(), rung.name
                assert holders_of_weights(it, second) == [f"shapes on {first.id}"]
            it.evict("shapes")
            while it.snapshot().slots:
                position = it.events.position
                await asyncio.wait_for(it.events.grown(position), 60)
            assert holders_of_weights(it, second) == []

    asyncio.run(scenario())


@pytest.mark.parametrize("lost", [0, 1])
def test_the_worker_that_stands_by_takes_over_the_card_whose_worker_ended(
    lost: int, cards: tuple[DeviceConfig, DeviceConfig], tmp_path: Path
) -> None:
    """Which one that is nobody knows before: it must not have chosen a card by then."""

    async def scenario() -> None:
        async with runtime_on(cards, tmp_path, spare=True).running() as it:
            await it.catalogue_read()
            _, before = await drawn(it, params=PARAMS)
            supervisor = it._supervisors[cards[lost].id]
            standing_by, pid = await it.spare.stands_by(), supervisor.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            while supervisor.pid in (pid, None) or any(
                view.state != "ready" for view in it.snapshot().devices
            ):
                position = it.events.position
                await asyncio.wait_for(it.events.grown(position), 120)
            assert supervisor.pid == standing_by
            _, after = await drawn(it, params=PARAMS)
            assert (after == before).all()

    asyncio.run(scenario())
