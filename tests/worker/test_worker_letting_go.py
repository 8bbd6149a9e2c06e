"""What a model, a load or a job took is free once it is over.

Python looks for cycles when it likes, and a card's gigabytes must not wait for that: here it never
does. The lanes of a worker, in this process, over a pretended card.
"""

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.worker.fake_pool import FakePool
from tests.worker.late_fill_gate import Gate, never
from tests.worker.opening import source
from tests.worker.pretended_card import CardMemory, pretended_card
from tests.worker.worker_host import ASSETS, params
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, RESIDENT, VAE, Placement
from workshop_gpu.worker import protocol

pytestmark = pytest.mark.usefixtures("no_collector", "quiet_libraries")

OUTLINE = ASSETS / "loras" / "shapes-outline" / "pytorch_lora_weights.safetensors"
PLACEMENTS = {
    "resident": RESIDENT,
    "staged": Placement(staged=(ENCODERS, DENOISER, VAE)),
    "streamed": Placement(staged=(ENCODERS, VAE), streamed_bytes=10**12),
    "encoders streamed": Placement(streamed=(ENCODERS,), streamed_bytes=1, buffers=2),
    "tiled": Placement(tiled=True, sliced=True),
    "elsewhere": Placement(elsewhere=(ENCODERS,), streamed_bytes=1, source="other"),
}


class Worker:
    """Both lanes, without their threads: an order is done when its call returns."""

    def __init__(self, card: Any, memory: CardMemory, pool: FakePool, kept: Path) -> None:
        from workshop_gpu.worker.ahead import Ahead
        from workshop_gpu.worker.compiling import Compiling
        from workshop_gpu.worker.engine import Engine
        from workshop_gpu.worker.link import Link
        from workshop_gpu.worker.loras import Loras
        from workshop_gpu.worker.moving import Mover
        from workshop_gpu.worker.neighbours import Neighbours
        from workshop_gpu.worker.turns import Turns
        from workshop_gpu.worker.twin_store import TwinStore

        self.memory, self.pool, self.turns = memory, pool, Turns()
        self.reports: list[protocol.FromWorker] = []
        self.link = Link(None)  # type: ignore[arg-type]
        self.link.send = self._told  # type: ignore[method-assign]
        self.cancels = False
        self.process: Any = _Compiler()
        store = TwinStore(kept, "CPU", "eager")
        self.compiling = Compiling(store, self.turns, "cpu", self.link.send, self.process)
        self.mover = Mover(
            card, self.link, self.turns, pool, Ahead(self.turns), self.compiling,
            Neighbours(["other"]), Loras(),
        )  # fmt: skip
        self.engine = Engine(card, self.link, self.mover, self.turns, self.compiling)
        self.loader = self.mover._loader

    def _told(self, report: protocol.FromWorker) -> None:
        self.reports.append(report)
        if self.cancels and isinstance(report, protocol.Progress):
            self.link.cancellations.cancel(report.job)

    def load(self, folder: Path, placement: Placement = RESIDENT, most_bytes: int = 0) -> Any:
        self.mover._load(protocol.Load(source(folder, folder.name), placement, most_bytes))
        told = (protocol.Loaded, protocol.LoadFailed)
        return [report for report in self.reports if isinstance(report, told)][-1]

    def draw(self, model: str, **loras: Path) -> Any:
        wanted = params(width=64, height=64, steps=2, loras=dict.fromkeys(loras, 1.0))
        files = {name: str(file) for name, file in loras.items()}
        self.link.cancellations.arrived("job")
        self.engine._run(protocol.Run("job", model, wanted, lora_files=files))
        self.engine._writer._telling.submit(lambda: None).result()  # behind the job's own files
        return self.reports[-1]

    def evict(self, model: str) -> Any:
        self.mover._evict(model, load_follows=False)
        return self.reports[-1]

    def shown(self, descriptors: set[int]) -> set[int]:
        """Which of these pieces of the pool's memory this process still maps, by their inodes."""
        maps = Path("/proc/self/maps").read_text().splitlines()
        return descriptors & {int(line.split()[4]) for line in maps}


class _Compiler:
    """Does what a test wants done while a compiler works."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] = lambda: None

    def run(self, task: Any, arrived: Any) -> str:
        self.meanwhile()
        return "it was only pretended"

    def halted(self) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    pool = FakePool()
    yield Worker(*pretended_card(monkeypatch), pool, tmp_path / "compiled")
    pool.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ASSETS / "shapes", tmp_path / "shapes"))


def tensors() -> set[int]:
    """All tensors' memory in this process, by its address."""
    import torch

    there = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    return {each.untyped_storage().data_ptr() for each in there if not each.is_meta}


def inodes(descriptors: Any) -> set[int]:
    return {os.fstat(descriptor).st_ino for descriptor in descriptors}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_model_that_was_drawn_with_leaves_nothing_on_the_card(
    worker: Worker, folder: Path, placement: str
) -> None:
    for _ in range(2):
        loaded = worker.load(folder, PLACEMENTS[placement])
        assert isinstance(loaded, protocol.Loaded)
        between_bytes = worker.memory.taken_bytes
        for loras in ({}, {"outline": OUTLINE}, {}):
            assert isinstance(worker.draw("shapes", **loras), protocol.Done)
        assert worker.memory.taken_bytes == between_bytes, "what was staged is gone between jobs"
        evicted = worker.evict("shapes")
        assert worker.memory.taken == {}
        assert evicted.memory == protocol.Memory(0, 0), "neither here nor elsewhere"
        worker.loader.fill_pool(never)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_load_that_failed_leaves_nothing_on_the_card(
    worker: Worker, folder: Path, placement: str
) -> None:
    (file,) = (folder / "vae").glob("*.safetensors")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1000])
    assert isinstance(worker.load(folder, PLACEMENTS[placement]), protocol.LoadFailed)
    assert worker.memory.taken == {}
    file.write_bytes(whole)
    assert isinstance(worker.load(folder, PLACEMENTS[placement]), protocol.Loaded)
    assert isinstance(worker.load(folder, Placement(tiled=True), 1000), protocol.LoadFailed)
    assert worker.memory.taken == {}


@pytest.mark.parametrize("placement", ["resident", "streamed"])
@pytest.mark.parametrize("ending", ["done", "cancelled", "failed"])
def test_a_job_leaves_no_tensor_however_it_ends(
    worker: Worker, folder: Path, placement: str, ending: str
) -> None:
    import torch

    def no_room(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    worker.load(folder, PLACEMENTS[placement])
    for _ in range(2):
        worker.draw("shapes")  # what is made once is there
    before = tensors()
    worker.cancels = ending == "cancelled"
    handles = []
    if ending == "failed":
        unet = worker.mover.pipeline("shapes").unet
        handles.append(unet.conv_out.register_forward_hook(no_room))
    answer = worker.draw("shapes")
    for handle in handles:
        handle.remove()
    kinds = {"done": protocol.Done, "cancelled": protocol.Stopped, "failed": protocol.Failed}
    assert isinstance(answer, kinds[ending])
    assert tensors() - before == set()
    worker.evict("shapes")
    assert worker.memory.taken == {}


def test_a_model_does_not_leave_while_what_a_cancelled_job_began_is_still_computed(
    worker: Worker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.load(folder)
    model, stays = worker.loader.resident("shapes"), []
    card = worker.mover._device
    monkeypatch.setattr(card, "settle", lambda: stays.append(model.in_use.locked()))
    worker.cancels = True
    assert isinstance(worker.draw("shapes"), protocol.Stopped)
    assert stays == [True]


def test_a_model_that_is_closed_lets_go_of_the_pools_memory(worker: Worker, folder: Path) -> None:
    worker.load(folder, PLACEMENTS["staged"])
    worker.draw("shapes", outline=OUTLINE)
    worker.evict("shapes")
    there = inodes(worker.pool.complete.values())
    assert worker.shown(there) == there
    worker.loader.close("shapes")
    assert worker.shown(there) == set()


def test_it_does_so_too_while_its_blocks_are_compiled_or_read(worker: Worker, folder: Path) -> None:
    worker.load(folder, PLACEMENTS["staged"])
    worker.draw("shapes")
    worker.evict("shapes")
    there = inodes(worker.pool.complete.values())
    assert worker.compiling.wants("shapes")
    shown = []

    def close() -> None:
        worker.loader.close("shapes")
        shown.append(worker.shown(there))

    worker.process.meanwhile = close
    worker.compiling._compile("shapes")
    assert shown == [set()]
    assert worker.reports[-1] == protocol.Compiled("shapes", False, "it was only pretended")


def test_a_model_that_is_away_does_not_hold_memory_that_the_pool_exchanges(
    worker: Worker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker was first to bring the same into the pool."""
    worker.load(folder)
    worker.loader.fill_pool(never)
    worker.evict("shapes")
    worker.loader.close("shapes")
    folder = folder.rename(folder.with_name("again"))
    for file in folder.rglob("*.safetensors"):
        os.utime(file, (1, 1))  # the pool does not know yet that it is the same
    worker.load(folder)
    worker.loader.fill_pool(Gate(monkeypatch).after(2))
    assert worker.loader.fills_pool
    fresh = inodes(worker.pool.filling.values())
    assert fresh
    worker.evict("again")
    worker.loader.fill_pool(never)
    assert worker.shown(fresh) == set()


def test_what_was_kept_for_a_load_makes_way_for_a_model_that_only_streams(
    worker: Worker, folder: Path
) -> None:
    """The host was told that its memory is free."""
    worker.load(folder, PLACEMENTS["streamed"])
    worker.evict("shapes")
    worker.loader.close("shapes")  # all of it is in the pool, from where it is opened again
    worker.load(ASSETS / "shapes-dit")
    worker.mover._evict("shapes-dit", load_follows=True)
    assert worker.reports[-1].memory.used_bytes == 0
    assert worker.memory.taken_bytes > 0
    worker.memory.most_bytes = 0
    worker.load(folder, PLACEMENTS["streamed"])
    assert worker.memory.most_bytes == worker.memory.taken_bytes


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_all_that_a_model_leaves_for_the_next_load_counts_as_free_and_goes_back_if_none_comes(
    worker: Worker, folder: Path, placement: str
) -> None:
    """Parts that others may want, and buffers and tensors of its own that nobody wants."""
    worker.load(folder, PLACEMENTS[placement])
    worker.draw("shapes")
    worker.mover._evict("shapes", load_follows=True)
    assert worker.reports[-1].memory == protocol.Memory(0, 0)
    assert worker.memory.reserved_bytes > 0, "it is kept"
    worker.mover._keep_no_longer()
    assert worker.reports[-1] == protocol.MemoryReading(protocol.Memory(0, 0))
    assert worker.memory.reserved_bytes == 0
