"""Blocks that are on the card first and in the pool afterwards; the card itself is left out."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.fake_pool import FakePool
from tests.worker.late_fill_gate import Gate, never
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
        self.parts = Parts(self.pool, on_cpu=False, make_room=never)
        self.told: list[Any] = []
        self.carrier = Carrier(CpuDevice(10**9), never)
        self.late = LateFills(self.parts, self.carrier, self.told.append)

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


STRETCH_BYTES = 2**14


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr("workshop_gpu.worker.carrying._CPU_STRETCH_BYTES", STRETCH_BYTES)
    bench = Bench()
    yield bench
    bench.pool.close()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


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
    bench.late.fill(never)
    assert bench.told == [component.part]
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
    bench.late.fill(never)
    assert bench.told == []
    assert "was changed while it was read" in caplog.text
    part = component.part
    assert (part.host, part.in_pool, part.complete) == (None, False, False)
    assert bench.pool.dropped == [part.key]
    assert component.keeps, "it comes back from its files"


def test_the_twin_of_a_block_here_is_read_into_the_pool_at_once(
    bench: Bench, folder: Path, tmp_path: Path
) -> None:
    bench.owed(folder)
    bench.late.fill(never)
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


def test_what_may_be_a_twin_of_a_block_on_its_way_waits_for_it(
    bench: Bench, folder: Path, tmp_path: Path, gate: Gate
) -> None:
    component = bench.owed(folder)
    bench.late.fill(gate.after(1))
    same, files = bench.component(Path(shutil.copytree(folder, tmp_path / "twin")))
    assert not bench.late.suits(same, files)
    assert bench.told == [component.part], "now their digests can tell"


def test_a_block_on_the_card_stays_itself_where_the_pool_got_its_bytes_in_another_way(
    bench: Bench, folder: Path, tmp_path: Path
) -> None:
    from workshop_gpu.worker.filling import BlockReader

    part = bench.owed(folder).part
    twin, files = bench.component(Path(shutil.copytree(folder, tmp_path / "twin")))
    trip = bench.carrier.carry(
        BlockReader(twin.weights, files), part.size_bytes,
        into=twin.part.host, onto=None, digest=True, on_bytes=lambda size_bytes: None,
    )  # fmt: skip
    bench.parts.filled(twin.part, trip.finish())
    bench.late.fill(never)
    assert part.complete
    assert part.digest == twin.part.digest
    assert part.told_as != twin.part.digest, "on the card it counts for itself"
    assert (part.host.tensor() == twin.part.host.tensor()).all()
    assert len(bench.pool.memory()) == 1


def test_what_is_not_in_the_page_cache_is_read_once(bench: Bench, folder: Path) -> None:
    component, files = bench.component(folder)
    for descriptor in files.descriptors:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    assert not bench.late.suits(component, files)


def test_a_fill_rests_while_somebody_wants_another_model_and_reads_nothing_twice(
    bench: Bench, folder: Path, gate: Gate
) -> None:
    component = bench.owed(folder)
    starts = range(0, component.part.size_bytes, STRETCH_BYTES)
    for stretches in (0, 1, len(starts) // 2):
        bench.late.fill(gate.after(stretches))
        assert bench.late.owes
        assert not component.part.complete
        assert bench.told == []
    assert len(gate.starts) < len(starts)
    bench.late.fill(never)
    assert bench.told == [component.part]
    assert not bench.late.owes
    assert sorted(gate.starts) == list(starts)
    assert in_files(component, folder) in bench.pool.memory().values()


def test_a_block_that_nobody_uses_any_more_is_not_owed(
    bench: Bench, folder: Path, gate: Gate
) -> None:
    component = bench.owed(folder)
    bench.late.fill(gate.after(1))
    bench.parts.let_go(component.part, "model")
    bench.late.forget_closed()
    assert not bench.late.owes
    assert bench.pool.filling == {}
    assert bench.pool.memory() == {}


def test_what_left_and_came_again_is_owed_once(bench: Bench, folder: Path) -> None:
    from workshop_gpu.worker.stored import OpenFiles

    component = bench.owed(folder)
    again = OpenFiles(component.files)
    bench.late.owe("model", component, again)
    bench.late.fill(never)
    assert bench.told == [component.part]
    assert again.descriptors == (), "they were closed"


def test_a_load_that_fails_owes_nothing(bench: Bench, folder: Path) -> None:
    component = bench.owed(folder)
    bench.late.forget("model")
    bench.late.fill(never)
    assert bench.told == []
    assert not component.part.complete
