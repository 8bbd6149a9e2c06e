"""Weights in a pool: read once, shared, kept as they are, and no trace of what went wrong."""

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.bare_pipelines import bare_picture, bare_pipeline, same_pixels
from tests.worker.fake_pool import FakePool
from tests.worker.opening import loader, source
from tests.worker.worker_host import ASSETS, params

pytestmark = pytest.mark.usefixtures("quiet_libraries")

SHAPES = ASSETS / "shapes"
WANTED = params(width=64, height=64, steps=2)


@pytest.fixture
def pool() -> Iterator[FakePool]:
    found = FakePool()
    yield found
    gc.collect()
    found.close()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHAPES, tmp_path / "copy"))


def load(worker: Any, folder: Path, name: str = "small") -> Any:
    return worker.load(source(folder, name), lambda done, total, speed: None)


def drawn(model: Any) -> Any:
    from workshop_gpu.worker.drawing import draw

    (picture,) = draw(model, [WANTED], lambda step: None)
    return picture.image


def expected() -> Any:
    return bare_picture(bare_pipeline("shapes"), WANTED)


def vae_file(folder: Path) -> Path:
    return folder / "vae" / "diffusion_pytorch_model.safetensors"


def test_a_model_comes_back_from_the_pool_without_its_files(pool: FakePool, copy: Path) -> None:
    worker = loader(pool)
    model = load(worker, copy)
    assert same_pixels(drawn(model), expected())
    assert worker.evict("small") == model.weights_bytes
    assert worker.resident_bytes == 0
    for file in copy.rglob("*.safetensors"):
        file.unlink()
    assert load(worker, copy) is model
    assert worker.resident_bytes == model.weights_bytes
    assert same_pixels(drawn(model), expected())


def test_a_model_whose_files_were_replaced_meanwhile_comes_back_from_the_new_ones(
    pool: FakePool, copy: Path
) -> None:
    worker = loader(pool)
    before = load(worker, copy)
    worker.evict("small")
    fresh = shutil.copy(vae_file(copy), copy / "new.safetensors")
    os.replace(fresh, vae_file(copy))
    assert load(worker, copy) is not before
    os.utime(vae_file(copy), (1, 1))
    assert load(worker, copy) is worker.resident("small"), "what draws stays as it is"


def test_the_next_worker_finds_the_bytes_and_writes_none(pool: FakePool, copy: Path) -> None:
    load(loader(pool), copy)
    assert set(pool.granted) == {"empty"}
    before = pool.memory()
    pool.granted.clear()
    other = load(loader(pool), copy)
    assert set(pool.granted) == {"complete"}
    assert same_pixels(drawn(other), expected())
    assert pool.memory() == before


def test_copies_of_a_model_are_kept_once_in_the_pool_and_on_the_device(
    pool: FakePool, copy: Path
) -> None:
    worker = loader(pool)
    first = load(worker, SHAPES)
    parts = len(pool.memory())
    second = load(worker, copy, "copy")
    assert len(pool.memory()) == parts == len(first.components)
    assert worker.resident_bytes - first.weights_bytes == second.computed_bytes
    assert worker.evict("small") == first.computed_bytes, "the copy still needs the rest"
    assert same_pixels(drawn(second), expected())


def test_the_hub_caches_names_of_its_files_spare_reading_them_again(
    pool: FakePool, tmp_path: Path
) -> None:
    """Two snapshots that link to the same blobs, as two revisions do."""
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    snapshots = [Path(shutil.copytree(SHAPES, tmp_path / name)) for name in ("one", "two")]
    for number, file in enumerate(sorted(SHAPES.rglob("*.safetensors"))):
        blob = shutil.copy(file, blobs / f"{number:064x}")
        for snapshot in snapshots:
            link = snapshot / file.relative_to(SHAPES)
            link.unlink()
            link.symlink_to(blob)
    worker = loader(pool)
    load(worker, snapshots[0])
    pool.granted.clear()
    load(worker, snapshots[1], "other")
    assert pool.granted == [], "every part is there already"
    assert all(key.startswith("sha256:") for key in pool.complete)


def test_what_a_pipeline_writes_into_its_weights_stays_its_own(pool: FakePool, copy: Path) -> None:
    import torch

    model = load(loader(pool), copy)
    before = pool.memory()
    with torch.no_grad():
        model.pipeline.vae.decoder.conv_out.bias.add_(1)
    assert pool.memory() == before
    assert same_pixels(drawn(load(loader(pool), copy)), expected())


def spoilt(
    pool: FakePool, folder: Path, spoil: Any, worker: Any = None, error: str = "BadCheckpoint"
) -> str:
    """The message of a load that fails because of what `spoil` does as reading begins."""
    done: list[str] = []

    def once(key: str) -> None:
        if not done:
            done.append(key)
            spoil()

    pool.before = once
    worker = worker or loader(pool)
    with pytest.raises(Exception, match="") as caught:  # noqa: PT011 (its class is checked below)
        load(worker, folder)
    pool.before = None
    assert type(caught.value).__name__ == error, caught.value
    assert worker.resident_bytes == 0
    assert pool.filling == {}, "what is not complete is given back"
    return str(caught.value)


def test_a_file_that_is_replaced_while_it_is_read_fails_the_load_and_not_the_next(
    pool: FakePool, copy: Path
) -> None:
    file = next((copy / "text_encoder").glob("*.safetensors"))

    def replace() -> None:
        fresh = shutil.copy(file, file.with_suffix(".new"))
        os.replace(fresh, file)

    worker = loader(pool)
    message = spoilt(pool, copy, replace, worker)
    assert str(file) in message
    assert "changed" in message
    assert pool.complete == {}, "nobody may take its bytes for the file's"
    assert same_pixels(drawn(load(worker, copy)), expected())


def test_a_file_that_is_cut_off_while_it_is_read_is_named(pool: FakePool, copy: Path) -> None:
    file = next((copy / "text_encoder").glob("*.safetensors"))
    size_bytes = file.stat().st_size
    message = spoilt(pool, copy, lambda: os.truncate(file, size_bytes // 2))
    assert f"{file} is incomplete" in message


def test_a_file_that_may_not_be_read_is_named(
    pool: FakePool, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_open = os.open

    def refuse(path: Any, *options: Any, **more: Any) -> int:
        if path == vae_file(copy):
            raise PermissionError(13, "Permission denied", str(path))
        return really_open(path, *options, **more)

    monkeypatch.setattr(os, "open", refuse)
    message = spoilt(pool, copy, lambda: None)
    assert f"{vae_file(copy)} cannot be read: Permission denied" in message


def test_a_pool_without_the_memory_that_it_promised_fails_the_load(
    pool: FakePool, copy: Path
) -> None:
    pool.read_only = True  # writing fails, as where memory runs out
    assert "the weight pool cannot be filled" in spoilt(pool, copy, lambda: None, None, "NoRoom")


def test_a_full_pool_loses_the_model_that_left_before_the_load_goes_without(
    pool: FakePool, copy: Path
) -> None:
    worker = loader(pool)
    first = load(worker, SHAPES)
    pool.room = len(pool.memory())
    worker.evict("small")
    load(worker, ASSETS / "shapes-dit", "larger")
    assert {component.part.key for component in first.components} <= set(pool.dropped)
    assert worker.no_pool_because == "the pool is full"
    assert worker.resident("larger") is not None
    assert same_pixels(drawn(load(worker, SHAPES)), expected())


def test_fifty_rounds_leave_the_picture_and_the_memory_as_they_were(pool: FakePool) -> None:
    import psutil

    worker = loader(pool)
    model = load(worker, SHAPES)
    other = load(worker, ASSETS / "shapes-dit", "other")
    before = drawn(model)
    assert same_pixels(before, expected())
    resident_bytes = []
    for _ in range(50):
        for name in ("small", "other"):
            worker.evict(name)
        assert load(worker, ASSETS / "shapes-dit", "other") is other
        assert load(worker, SHAPES) is model
        resident_bytes.append(psutil.Process().memory_info().rss)
    assert same_pixels(drawn(model), before)
    assert resident_bytes[-1] <= resident_bytes[4] * 1.01


def test_asked_for_room_a_worker_closes_what_is_not_on_the_device(pool: FakePool) -> None:
    worker = loader(pool)
    load(worker, SHAPES)
    load(worker, ASSETS / "shapes-dit", "other")
    worker.evict("small")
    worker.free(1)
    assert worker.resident("other") is not None
    assert len(pool.dropped) == 3, "three components had left"
    worker.free(10**12)
    assert worker.resident("other") is not None
    assert same_pixels(drawn(load(worker, SHAPES)), expected())
