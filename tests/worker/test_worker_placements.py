"""The rungs of the placement ladder: the picture stays, bit for bit; what the device holds changes.

The makes are small ones with random weights. The device is the CPU, which pretends to have VRAM:
what comes to it is copied into memory of its own, as on a card.
"""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.worker.fake_pool import FakePool
from tests.worker.fresh_pictures import WANTED
from tests.worker.opening import loader, source
from tests.worker.small_pipelines import save_flux, save_sd1, save_sd3, save_sdxl
from workshop_gpu.conductor.errors import InvalidRequest, OutOfMemory
from workshop_gpu.conductor.rungs import (
    DENOISER,
    ENCODERS,
    RESIDENT,
    ROLES,
    VAE,
    Placement,
    role_of,
)
from workshop_gpu.worker.placements import lacking
from workshop_gpu.worker.protocol import GenerateParams

pytestmark = pytest.mark.usefixtures("quiet_libraries")

MAKES = {"sd1": save_sd1, "sdxl": save_sdxl, "sd3": save_sd3, "flux": save_flux}
ALL = 10**12

EXACT = {
    "encoders staged": Placement(staged=(ENCODERS,)),
    "encoders and VAE staged": Placement(staged=(ENCODERS, VAE)),
    "encoders and denoiser staged": Placement(staged=(ENCODERS, DENOISER)),
    "denoiser staged": Placement(staged=(DENOISER,)),
    "encoders streamed, denoiser staged": Placement(staged=(DENOISER,), streamed=(ENCODERS,)),
    "VAE staged, some streamed": Placement(staged=(VAE,), streamed_bytes=200_000),
    "everything staged": Placement(staged=ROLES),
    "some streamed": Placement(streamed_bytes=200_000),
    "one block streamed": Placement(streamed_bytes=1, buffers=1),
    "all streamed": Placement(streamed_bytes=ALL),
    "all streamed by three buffers": Placement(streamed_bytes=ALL, buffers=3),
    "encoders streamed": Placement(streamed=(ENCODERS,)),
    "encoders streamed by one buffer": Placement(streamed=(ENCODERS,), buffers=1),
    "everything streamed": Placement(streamed=(ENCODERS,), staged=(VAE,), streamed_bytes=ALL),
    "layer by layer": Placement(streamed_bytes=ALL, buffer_bytes=6_000),
    "small blocks together": Placement(
        streamed=(ENCODERS,), streamed_bytes=ALL, buffer_bytes=40_000
    ),
    "some streamed in pieces of one size": Placement(
        streamed_bytes=100_000, buffer_bytes=9_000, buffers=3
    ),
    "staged and streamed": Placement(staged=(ENCODERS, VAE), streamed_bytes=ALL),
}
SLICED_BOUND = 2e-5
"""Of 1.0: attention in slices sums in another order."""


@pytest.fixture(scope="module", params=MAKES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries' advice is no error of ours
        return MAKES[request.param](tmp_path_factory.mktemp("make") / request.param)


@pytest.fixture
def pool() -> Iterator[FakePool]:
    pool = FakePool()
    yield pool
    pool.close()


def load(worker: Any, folder: Path, placement: Placement = RESIDENT, **limits: int) -> Any:
    return worker.load(source(folder), lambda *_: None, placement, **limits)


def drawn(worker: Any, model: Any, **options: bool) -> Any:
    return drawn_as(worker, model, WANTED, **options)


def drawn_as(worker: Any, model: Any, wanted: GenerateParams, **options: bool) -> Any:
    from workshop_gpu.worker.course import Course
    from workshop_gpu.worker.drawing import draw

    course = Course(model, worker.stager, **options)
    (picture,) = draw(model, [wanted], lambda step: None, course)
    return picture.pixels


def hooks(model: Any) -> int:
    return sum(
        len(each._forward_hooks) + len(each._forward_pre_hooks)
        for component in model.components
        for each in component.module.modules()
    )


def test_every_rung_that_moves_weights_draws_the_resident_models_picture(
    folder: Path, pool: FakePool
) -> None:
    """Rung after rung in place, twice, so that each follows another one."""
    worker = loader(pool)
    resident = load(worker, folder)
    expected, whole_bytes = drawn(worker, resident), resident.weights_bytes
    the_libraries_own = hooks(resident)
    for name in [*EXACT, *reversed(EXACT)]:
        model = load(worker, folder, EXACT[name])
        assert worker.resident_bytes == model.weights_bytes, name
        assert np.array_equal(drawn(worker, model), expected), name
        assert worker.resident_bytes == model.weights_bytes, name
        assert model.weights_bytes < whole_bytes or model.rotation is not None, name
    back = load(worker, folder)
    assert (back.weights_bytes, hooks(back)) == (whole_bytes, the_libraries_own)
    assert np.array_equal(drawn(worker, back), expected)
    assert worker.evict("small") == whole_bytes
    assert worker.resident_bytes == 0


def test_a_load_needs_no_more_room_than_the_model_takes(folder: Path, pool: FakePool) -> None:
    """What is there already counts once, beside what still comes."""
    placed = EXACT["some streamed"]
    takes_bytes = load(loader(pool), folder, placed).weights_bytes
    assert load(loader(pool, takes_bytes), folder, placed).weights_bytes == takes_bytes
    with pytest.raises(OutOfMemory):
        load(loader(pool, takes_bytes * 99 // 100), folder, placed)


@pytest.mark.parametrize("pooled", [True, False])
def test_a_rung_can_be_the_first_that_a_model_is_loaded_into(folder: Path, pooled: bool) -> None:
    pool = FakePool(room=10**9 if pooled else 0)
    expected = drawn(worker := loader(pool), load(worker, folder))
    for name in ("everything staged", "staged and streamed", "everything streamed"):
        worker = loader(pool)
        model = load(worker, folder, EXACT[name])
        assert np.array_equal(drawn(worker, model), expected), name
        worker.evict("small")
        assert np.array_equal(drawn(worker, load(worker, folder, EXACT[name])), expected), name
    pool.close()


def test_tiles_and_slices_change_little_and_the_cpu_nothing(folder: Path, pool: FakePool) -> None:
    """Here the device is a CPU too, so an encoder on the CPU gives the very same."""
    worker = loader(pool)
    expected = drawn(worker, load(worker, folder))
    on_cpu = load(worker, folder, Placement(on_cpu=(ENCODERS,)))
    assert np.array_equal(drawn(worker, on_cpu), expected)

    sliced = load(worker, folder, Placement(sliced=True))
    assert np.abs(drawn(worker, sliced) - expected).max() < SLICED_BOUND
    has_switch = hasattr(sliced.pipeline, "unet")
    assert ("sliced" in lacking(sliced.pipeline)) != has_switch
    assert sliced.placement.sliced == has_switch, "it says what was done, not what was asked for"

    tiled = load(worker, folder, Placement(tiled=True, staged=(VAE,)))
    once, again = drawn(worker, tiled), drawn(worker, tiled)
    assert np.array_equal(once, again)
    assert 0 < np.abs(once - expected).mean() < 0.1
    assert not tiled.pipeline.vae.use_tiling, "only while a job draws"
    assert np.array_equal(drawn(worker, load(worker, folder)), expected)


def test_tiles_are_small_also_where_the_model_was_trained_with_large_pictures(
    tmp_path: Path, pool: FakePool
) -> None:
    """Its VAE's own tiles are as large as those pictures, and would leave them whole."""
    folder = save_sd1(tmp_path / "large")
    config = folder / "vae" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"sample_size": 1024}))
    worker = loader(pool)
    tiles = []
    for placement in (RESIDENT, Placement(tiled=True)):
        model = load(worker, folder, placement)
        vae = model.pipeline.vae
        own = vae.tile_sample_min_size, vae.tile_latent_min_size
        hook = vae.decoder.register_forward_hook(
            lambda _, inputs, decoded: tiles.append(decoded.shape[-1])
        )
        drawn_as(worker, model, msgspec.structs.replace(WANTED, width=640, height=64, steps=1))
        hook.remove()
        assert (vae.tile_sample_min_size, vae.tile_latent_min_size) == own
    assert own[0] == 1024
    assert tiles[0] == 640
    assert len(tiles) > 2
    assert max(tiles[1:]) == 512


def test_what_a_model_takes_is_told_by_role_and_moment(folder: Path, pool: FakePool) -> None:
    worker = loader(pool)
    roles = {role.role: role for role in load(worker, folder).roles}
    whole_bytes = worker.resident_bytes
    assert sum(role.size_bytes for role in roles.values()) == whole_bytes
    blocks = roles[DENOISER].blocks_bytes
    assert 0 < sum(blocks) < roles[DENOISER].size_bytes
    layers = roles[ENCODERS].blocks_bytes
    assert 0 < sum(layers) < roles[ENCODERS].size_bytes

    staged = load(worker, folder, EXACT["everything staged"])
    assert staged.weights_bytes == 0
    assert staged.transient_bytes == max(role.size_bytes for role in roles.values())

    streamed = load(worker, folder, EXACT["all streamed"])
    assert streamed.placement.streamed_bytes == sum(blocks)
    buffers_bytes = min(2, len(blocks)) * max(blocks)
    assert streamed.weights_bytes == whole_bytes - sum(blocks) + buffers_bytes
    assert streamed.roles == tuple(roles.values())

    for size_bytes in (3_000, 20_000, 10**6):
        placement = Placement(streamed_bytes=ALL, buffer_bytes=size_bytes)
        model = load(worker, folder, placement)
        role = roles[DENOISER]
        assert model.placement.streamed_bytes >= role.streamable_bytes(size_bytes)
        most_bytes = 2 * role.unit_bytes(size_bytes) - role.streamable_bytes(size_bytes)
        assert model.weights_bytes <= whole_bytes + most_bytes, "no more than a plan counts with"

    passing = load(worker, folder, EXACT["encoders streamed"])
    assert passing.placement.streamed == (ENCODERS,)
    buffers_bytes = 2 * max(layers)
    assert passing.weights_bytes == whole_bytes - roles[ENCODERS].size_bytes + buffers_bytes
    assert passing.transient_bytes == roles[ENCODERS].size_bytes - sum(layers)
    assert passing.roles == tuple(roles.values())


def test_never_more_is_on_the_device_than_the_placement_says(
    folder: Path, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device of just the size that a plan promises is enough to load and to draw."""
    for name in ("everything streamed", "everything staged"):
        plan = load(loader(pool), folder, EXACT[name])
        tight = loader(pool, total_bytes=plan.weights_bytes + plan.transient_bytes)
        assert drawn(tight, load(tight, folder, EXACT[name])).std() > 0, name
    small = loader(pool, total_bytes=plan.transient_bytes - 1)
    model = load(small, folder, EXACT["everything staged"])
    with pytest.raises(OutOfMemory) as caught:
        drawn(small, model)
    assert caught.value.facts["phase"] in ("encode", "denoise", "decode")
    assert small.resident_bytes == 0


def test_the_log_tells_which_component_comes_and_leaves_in_which_phase(
    folder: Path, pool: FakePool, caplog: pytest.LogCaptureFixture
) -> None:
    worker = loader(pool)
    model = load(worker, folder, EXACT["everything staged"])
    with caplog.at_level("DEBUG", logger="workshop_gpu.worker.staging"):
        drawn(worker, model)
    said = [record.getMessage() for record in caplog.records]
    for component in model.components:
        role = role_of(component.name)
        phase = {ENCODERS: "encode", DENOISER: "denoise", VAE: "decode"}[role]
        assert f"{component.name} comes to the device: {phase}" in said
        assert f"{component.name} leaves the device" in said


def test_a_limit_on_the_weights_is_kept_before_anything_comes(folder: Path, pool: FakePool) -> None:
    worker = loader(pool)
    needed = load(worker, folder, EXACT["all streamed"]).weights_bytes
    worker.evict("small")
    with pytest.raises(OutOfMemory) as caught:
        load(worker, folder, EXACT["all streamed"], most_bytes=needed // 2)
    assert caught.value.facts["phase"] == "load"
    assert worker.resident_bytes == 0
    model = load(worker, folder, EXACT["all streamed"], most_bytes=needed)
    assert drawn(worker, model).std() > 0


@pytest.mark.parametrize(
    ("placement", "problem"),
    [
        (Placement(staged=("denoisers",)), "no role denoisers"),
        (Placement(on_cpu=(VAE,)), "only encoders"),
        (Placement(streamed=(VAE,)), "only encoders"),
        (Placement(streamed=(ENCODERS,), buffers=0), "at least 1"),
        (Placement(streamed_bytes=1, buffer_bytes=-1), "negative"),
        (Placement(streamed_bytes=-1), "negative"),
        (Placement(streamed_bytes=1, buffers=0), "at least 1"),
        (Placement(source="gpu7"), 'sees no device "gpu7"'),
        (Placement(elsewhere=(ENCODERS,)), "name the GPU"),
        (Placement(elsewhere=(DENOISER,), source="gpu7"), "only encoders compute on another GPU"),
    ],
)
def test_a_placement_that_cannot_be_is_refused_before_anything_moves(
    tmp_path: Path, placement: Placement, problem: str
) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        load(loader(), tmp_path / "nothing is read from here", placement)
