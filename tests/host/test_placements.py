"""Models on every rung of the ladder, through the real worker: the picture is the same."""

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image

from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.catalogue.shipped import ASSETS
from workshop_gpu.conductor.errors_placement import NotRepeatable
from workshop_gpu.conductor.ladder import RUNGS
from workshop_gpu.conductor.rungs import Rung, Streams
from workshop_gpu.host.devices import find_devices
from workshop_gpu.host.records import JobRecord, Participant
from workshop_gpu.host.runtime import Runtime, RuntimeSettings
from workshop_gpu.worker.images import read_record
from workshop_gpu.worker.protocol import GenerateParams

ANN = Participant("ann", "Ann")
PARAMS = GenerateParams(prompt="a red circle", seed=7, steps=4, guidance=5.0, width=64, height=64)
ROOMY, TIGHT = "cpu:500MB", "cpu:24MB"
RESIDENT_MB = 21.2
"""What the shipped model's weights take as a whole."""


def runtime_on(device: str, folder: Path) -> Runtime:
    catalogue = Catalogue(default_placement="auto")
    settings = RuntimeSettings(tuple(find_devices([device])), folder, threads=1)
    return Runtime(settings, catalogue)


async def drawn(
    runtime: Runtime, placement: str = "", params: GenerateParams = PARAMS
) -> tuple[JobRecord, np.ndarray]:
    record = await runtime.submit(ANN, "shapes", params, placement=placement)
    record = await asyncio.wait_for(runtime.finished(record.id), 500)
    assert record.view is not None
    assert record.view.error is None, record.view.error
    with Image.open(runtime.images.path(record.id, 0)) as picture:
        return record, np.asarray(picture).astype(int)


def placements_of(runtime: Runtime) -> list[str]:
    return [slot.placement for slot in runtime.snapshot().slots]


def words(rung: Rung) -> str:
    """How a slot names it: two rungs that differ in how much they stream have one name."""
    return next(each.words for each in RUNGS if _alike(each, rung))


def _alike(one: Rung, other: Rung) -> bool:
    streams = (Streams.NOTHING in {one.streams, other.streams}) and one.streams != other.streams
    return (one.placement, one.swaps) == (other.placement, other.swaps) and not streams


@pytest.fixture(scope="module")
def resident(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    async def scenario() -> np.ndarray:
        async with runtime_on(ROOMY, tmp_path_factory.mktemp("roomy")).running() as runtime:
            await runtime.catalogue_read()
            picture = (await drawn(runtime))[1]
            assert placements_of(runtime) == ["everything on the GPU"]
            return picture

    return asyncio.run(scenario())


def test_a_model_larger_than_the_device_draws_the_same_picture(
    tmp_path: Path, resident: np.ndarray
) -> None:
    async def scenario() -> None:
        async with runtime_on(TIGHT, tmp_path).running() as runtime:
            await runtime.catalogue_read()
            record, picture = await drawn(runtime)
            with Image.open(runtime.images.path(record.id, 0)) as made:
                assert "placement" in str(made.text)  # type: ignore[attr-defined]
            (slot,) = runtime.snapshot().slots
            assert slot.placement != "everything on the GPU"
            assert slot.bytes < RESIDENT_MB * 1e6
            assert (picture == resident).all()

    asyncio.run(scenario())


def test_every_rung_by_name_one_after_the_other(tmp_path: Path, resident: np.ndarray) -> None:
    """In place, without a load in between; all that only move weights to the last bit."""

    async def scenario() -> None:
        async with runtime_on(ROOMY, tmp_path).running() as runtime:
            await runtime.catalogue_read()
            for rung in (each for each in RUNGS if not each.swaps):
                _, picture = await drawn(runtime, rung.name)
                assert placements_of(runtime) == [words(rung)], rung.name
                if rung.placement.exact:
                    assert (picture == resident).all(), rung.name
                else:
                    assert abs(picture - resident).max() <= 32, rung.name
            _, picture = await drawn(runtime, "resident")
            assert (picture == resident).all()

    asyncio.run(scenario())


def test_a_combination_by_hand_draws_as_its_words_say(tmp_path: Path, resident: np.ndarray) -> None:
    models = tmp_path / "models.toml"
    models.write_text(
        f'[[model]]\nid = "shapes"\nsource = {{ folder = "{ASSETS / "shapes"}" }}\n'
        'memory = { placement = { encoders = "staged", denoiser = "streamed" } }\n'
    )
    settings = RuntimeSettings(tuple(find_devices([ROOMY])), tmp_path, threads=1)

    async def scenario() -> None:
        async with Runtime(settings, Catalogue(models)).running() as runtime:
            await runtime.catalogue_read()
            _, picture = await drawn(runtime)
            said = ["text encoders staged, the denoiser partly streamed"]
            assert placements_of(runtime) == said
            assert (picture == resident).all()
            _, picture = await drawn(runtime, "encoders=streamed,denoiser=staged")
            assert placements_of(runtime) == ["text encoders streamed, the denoiser staged"]
            assert (picture == resident).all()
            _, picture = await drawn(runtime, "encoders=cpu,vae=staged+tiled")
            assert placements_of(runtime) == ["text encoders on the CPU, VAE staged, VAE tiling"]
            assert abs(picture - resident).max() <= 32
            _, picture = await drawn(runtime)
            assert placements_of(runtime) == said
            assert (picture == resident).all()

    asyncio.run(scenario())


def test_another_device_is_home_of_the_text_encoders_and_source_of_blocks(
    tmp_path: Path, resident: np.ndarray
) -> None:
    """Its account has every byte of that, until the model leaves or its worker ends."""
    models = tmp_path / "models.toml"
    models.write_text(
        f'[[model]]\nid = "shapes"\nsource = {{ folder = "{ASSETS / "shapes"}" }}\n'
        'memory = { swap_device = "cpu:1" }\n'
    )
    devices = tuple(find_devices([ROOMY, ROOMY]))

    def lent(runtime: Runtime) -> list[str]:
        (view,) = (each for each in runtime.snapshot().devices if each.device == "cpu:1")
        return [holder.name for holder in view.holders if holder.kind == "weights"]

    async def scenario() -> None:
        settings = RuntimeSettings(devices, tmp_path / "data", threads=1)
        async with Runtime(settings, Catalogue(models, default_placement="auto")).running() as it:
            await it.catalogue_read()
            for rung in (each for each in RUNGS if each.swaps):
                _, picture = await drawn(it, rung.name)
                (slot,) = it.snapshot().slots
                assert (slot.device, slot.placement) == ("cpu:0", rung.words)
                assert (picture == resident).all(), rung.name
                assert lent(it) == ["shapes on cpu:0"]
            position, pid = it.events.position, it._supervisors["cpu:0"].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            while it.snapshot().slots:
                await asyncio.wait_for(it.events.grown(position), 240)
                position = it.events.position
            assert lent(it) == []

    asyncio.run(scenario())


def test_a_picture_is_made_again_in_the_manner_in_which_it_was_made(
    tmp_path: Path, resident: np.ndarray
) -> None:
    """Whichever way the model is placed by then; where that is not possible it is refused."""

    async def scenario() -> None:
        async with runtime_on(ROOMY, tmp_path).running() as runtime:
            await runtime.catalogue_read()
            record, picture = await drawn(runtime, "sliced")
            (slot,) = runtime.snapshot().slots
            made = read_record(runtime.images.path(record.id, 0).read_bytes()).params
            assert made.manner == "tiled+sliced+cpu-encoders"
            await drawn(runtime, "resident")
            _, again = await drawn(runtime, params=made)
            assert (again == picture).all()
            assert placements_of(runtime) == [slot.placement]
            _, again = await drawn(runtime, params=msgspec.structs.replace(PARAMS, manner="exact"))
            assert (again == resident).all()
            sliced = msgspec.structs.replace(PARAMS, manner="sliced")
            with pytest.raises(NotRepeatable, match="never placed so"):
                await runtime.submit(ANN, "shapes", sliced)

    asyncio.run(scenario())
