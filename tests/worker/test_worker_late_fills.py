"""Blocks that are on the card first and in the pool afterwards; the card itself is left out."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.fake_pool import FakePool
from tests.worker.worker_host import ASSETS

pytestmark = pytest.mark.usefixtures("quiet_libraries")


class Bench:
    """What the loader has around its late fills."""

    def __init__(self) -> None:
        from workshop_gpu.worker.carrying import Carrier
        from workshop_gpu.worker.devices import CpuDevice
        from workshop_gpu.worker.late_fills import LateFills
        from workshop_gpu.worker.pool import Parts

        self.pool = FakePool()
        self.parts = Parts(self.pool, on_cpu=False, make_room=lambda: False)
        self.late = LateFills(self.parts, Carrier(CpuDevice(10**9), lambda: False))

    def component(self, folder: Path) -> tuple[Any, Any]:
        """A VAE's component, its block in the pool but empty, and its open files."""
        from diffusers import AutoencoderKL

        from workshop_gpu.worker.components import Component
        from workshop_gpu.worker.layout import content_key, split
        from workshop_gpu.worker.skeletons import build_skeleton
        from workshop_gpu.worker.stored import OpenFiles, stored_tensors

        paths = tuple(folder.glob("*.safetensors"))
        dtype = __import__("torch").float32
        skeleton = build_skeleton(AutoencoderKL, folder, stored_tensors(paths), dtype)
        assert skeleton is not None
        weights, computed = split(skeleton)
        part = self.parts.get(content_key(weights, paths, ""), weights.size_bytes, "model")
        component = Component("vae", skeleton.module, weights, computed, part, paths)
        return component, OpenFiles(paths)

    def owed(self, folder: Path) -> Any:
        component, files = self.component(folder)
        assert self.late.suits(component, files)
        self.late.owe("model", component, files)
        return component


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.pool.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ASSETS / "shapes" / "vae", tmp_path / "vae"))


def in_files(component: Any, folder: Path) -> bytes:
    """The block's bytes as they come straight from the files."""
    from workshop_gpu.worker.filling import BlockReader
    from workshop_gpu.worker.stored import opened

    data = bytearray(component.part.size_bytes)
    with opened(component.files) as files:
        BlockReader(component.weights, files).read(0, memoryview(data))
    return bytes(data)


def test_what_is_owed_comes_into_the_pool_and_is_told_under_its_first_name(
    bench: Bench, folder: Path
) -> None:
    component = bench.owed(folder)
    first_name = component.part.digest
    told: list[Any] = []
    bench.late.fill(told.append, lambda: True)
    assert told == [component.part]
    assert component.part.complete
    assert component.part.digest.startswith("xxh3:")
    assert component.part.told_as == first_name
    assert in_files(component, folder) in bench.pool.memory().values()


def test_a_file_that_changed_meanwhile_costs_the_copy_and_not_the_model(
    bench: Bench, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    component = bench.owed(folder)
    (path,) = component.files
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    told: list[Any] = []
    bench.late.fill(told.append, lambda: True)
    assert told == []
    assert "was changed while it was read" in caplog.text
    part = component.part
    assert (part.host, part.in_pool, part.complete) == (None, False, False)
    assert bench.pool.dropped == [part.key]
    assert component.keeps, "it comes back from its files"


def test_the_twin_of_a_block_here_is_read_into_the_pool_at_once(
    bench: Bench, folder: Path, tmp_path: Path
) -> None:
    bench.owed(folder)
    bench.late.fill(lambda part: None, lambda: True)
    twin = Path(shutil.copytree(folder, tmp_path / "twin"))
    same, files = bench.component(twin)
    assert not bench.late.suits(same, files)
    bench.parts.let_go(same.part, "model")
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    (path,) = other.glob("*.safetensors")
    content = bytearray(path.read_bytes())
    for place in range(8 + int.from_bytes(content[:8], "little"), len(content), 2):
        content[place] ^= 1
    path.write_bytes(content)
    assert bench.late.suits(*bench.component(other))


def test_what_is_not_in_the_page_cache_is_read_once(bench: Bench, folder: Path) -> None:
    component, files = bench.component(folder)
    for descriptor in files.descriptors:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    assert not bench.late.suits(component, files)


def test_a_load_that_fails_owes_nothing(bench: Bench, folder: Path) -> None:
    component = bench.owed(folder)
    bench.late.forget("model")
    told: list[Any] = []
    bench.late.fill(told.append, lambda: True)
    assert told == []
    assert not component.part.complete
