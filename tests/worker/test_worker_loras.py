"""LoRAs: what the bare pipeline draws with them, in every placement, and nothing left of it."""

import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.worker.bare_pipelines import same_pixels
from tests.worker.fake_pool import FakePool
from tests.worker.fresh_pictures import WANTED
from tests.worker.gguf_files import write_gguf
from tests.worker.opening import loader, source
from tests.worker.small_loras import bare_picture_with, save_lora
from tests.worker.small_pipelines import save_flux, save_sdxl
from tests.worker.test_worker_placements import EXACT
from tests.worker.test_worker_quantized import denoiser_of
from workshop_gpu.conductor.rungs import ENCODERS, RESIDENT, Placement

pytestmark = pytest.mark.usefixtures("quiet_libraries")

MAKES = {"sdxl": save_sdxl, "flux": save_flux}
"""The shipped models stand for Stable Diffusion 1 and 3 (tests/api/test_loras.py)."""


class Kit:
    """A model's folder and two LoRAs for it."""

    def __init__(self, make: str, folder: Path) -> None:
        self.folder = MAKES[make](folder / make)
        self.one = save_lora(self.folder, folder / "one.safetensors")
        self.other = save_lora(self.folder, folder / "other.safetensors", seed=2, rank=2)


@pytest.fixture(scope="module", params=MAKES)
def kit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries' advice is no error of ours
        return Kit(request.param, tmp_path_factory.mktemp("kit"))


@pytest.fixture
def pool() -> Iterator[FakePool]:
    pool = FakePool()
    yield pool
    pool.close()


def load(worker: Any, folder: Path, placement: Placement = RESIDENT) -> Any:
    return worker.load(source(folder), lambda *_: None, placement)


def drawn(worker: Any, model: Any, loras: Any, wanted: dict[Path, float]) -> Any:
    from workshop_gpu.worker.course import Course
    from workshop_gpu.worker.drawing import draw
    from workshop_gpu.worker.loras import Wanted

    uses = [Wanted(file.stem, file, scale) for file, scale in wanted.items()]
    with loras.on(model, uses):
        (picture,) = draw(model, [WANTED], lambda step: None, Course(model, worker.stager))
    return picture


def wrapped(model: Any) -> int:
    from peft.tuners.tuners_utils import BaseTunerLayer

    return sum(
        isinstance(each, BaseTunerLayer)
        for component in model.components
        for each in component.module.modules()
    )


def test_a_picture_is_the_bare_pipelines_with_the_same_loras(kit: Kit, pool: FakePool) -> None:
    from workshop_gpu.worker.loras import Loras, Wanted

    worker, loras = loader(pool), Loras()
    model = load(worker, kit.folder)
    before = pool.memory()
    plain = drawn(worker, model, loras, {})
    for wanted in ({kit.one: 0.8}, {kit.other: -1.0, kit.one: 0.5}, {kit.one: 1.0}):
        expected = bare_picture_with(kit.folder, WANTED, wanted)
        picture = drawn(worker, model, loras, wanted)
        assert same_pixels(picture.image, expected), wanted
        assert not np.array_equal(picture.pixels, plain.pixels), wanted
    assert wrapped(model) == 0
    assert np.array_equal(drawn(worker, model, loras, {}).pixels, plain.pixels)
    assert pool.memory() == before
    assert loras.kept(model) == ("other", "one")
    twice = [Wanted(name, kit.one, 1.0) for name in ("a", "b")]
    with loras.on(model, [*twice, Wanted("c", kit.other, 1.0)]) as digests:
        assert digests["a"] == digests["b"] != digests["c"], "they tell files, whatever the name"


def test_every_rung_draws_the_same_picture_with_a_lora(kit: Kit, pool: FakePool) -> None:
    """With and without in turn, rung after rung in place, and after it left and came back."""
    from workshop_gpu.worker.loras import Loras

    worker, loras = loader(pool), Loras()
    model = load(worker, kit.folder)
    plain = drawn(worker, model, loras, {}).pixels
    with_one = drawn(worker, model, loras, {kit.one: 0.8}).pixels
    before = pool.memory()
    for name in [*EXACT, "encoders on the CPU"]:
        model = load(worker, kit.folder, EXACT.get(name, Placement(on_cpu=(ENCODERS,))))
        weights_bytes = worker.resident_bytes
        assert np.array_equal(drawn(worker, model, loras, {kit.one: 0.8}).pixels, with_one), name
        assert np.array_equal(drawn(worker, model, loras, {}).pixels, plain), name
        assert worker.resident_bytes == weights_bytes, name
    worker.evict("small")
    model = load(worker, kit.folder)
    assert np.array_equal(drawn(worker, model, loras, {kit.one: 0.8}).pixels, with_one)
    worker.evict("small")
    worker.close("small")
    model = load(worker, kit.folder, EXACT["staged and streamed"])
    assert np.array_equal(drawn(worker, model, loras, {kit.one: 0.8}).pixels, with_one)
    assert pool.memory() == before, "the weights that all models share"


def test_without_a_pool_it_is_the_same(kit: Kit) -> None:
    from workshop_gpu.worker.loras import Loras

    worker, loras = loader(), Loras()
    expected = drawn(worker, load(worker, kit.folder), loras, {kit.one: 1.5}).pixels
    worker = loader()
    model = load(worker, kit.folder, EXACT["staged and streamed"])
    assert np.array_equal(drawn(worker, model, loras, {kit.one: 1.5}).pixels, expected)


@pytest.mark.parametrize("kit", ["flux"], indirect=True)
def test_what_was_not_used_for_longest_is_forgotten_beyond_so_many_bytes(
    kit: Kit, pool: FakePool
) -> None:
    """Of all models together; what a job wants stays, and a picture is the same when it is back."""
    from workshop_gpu.worker.loras import Loras

    worker, loras = loader(pool), Loras(most_kept_bytes=kit.one.stat().st_size)
    model = load(worker, kit.folder)
    expected = drawn(worker, model, loras, {kit.one: 0.8}).pixels
    drawn(worker, model, loras, {kit.other: 0.8})
    assert loras.kept(model) == ("one", "other"), "one fits beside the one in use"
    second = worker.load(
        msgspec.structs.replace(source(kit.folder), model="second"), lambda *_: None, RESIDENT
    )
    drawn(worker, second, loras, {kit.one: 0.8, kit.other: 0.5})
    assert (loras.kept(model), loras.kept(second)) == (("other",), ("one", "other"))
    assert np.array_equal(drawn(worker, model, loras, {kit.one: 0.8}).pixels, expected)


@pytest.mark.parametrize("kit", ["flux"], indirect=True)
def test_a_quantized_denoiser_takes_loras_as_well(kit: Kit, pool: FakePool, tmp_path: Path) -> None:
    from workshop_gpu.worker.loras import Loras

    write_gguf(denoiser_of(kit.folder), gguf := tmp_path / "small.gguf")
    worker, loras = loader(pool), Loras()
    pictures = []
    for placement in (RESIDENT, EXACT["staged and streamed"]):
        order = source(kit.folder, gguf=str(gguf))
        model = worker.load(order, lambda *_: None, placement)
        pictures.append(
            [drawn(worker, model, loras, wanted).pixels for wanted in ({kit.one: 1}, {})]
        )
    (with_one, plain), (streamed_with_one, streamed_plain) = pictures
    assert np.array_equal(with_one, streamed_with_one)
    assert np.array_equal(plain, streamed_plain)
    assert not np.array_equal(with_one, plain)


@pytest.mark.parametrize("kit", ["flux"], indirect=True)
def test_what_the_host_wants_forgotten_goes_at_once_but_for_what_is_in_use(
    kit: Kit, pool: FakePool
) -> None:
    """Also while a job draws, from another thread; what is told of it is always what is kept."""
    from workshop_gpu.worker.loras import Loras, Wanted

    told: list[Any] = [()]
    worker, loras = loader(pool), Loras(tell=told.append)
    model = load(worker, kit.folder)
    expected = drawn(worker, model, loras, {kit.one: 0.8}).pixels
    (one,) = told[-1]
    assert (one.lora, one.model, one.in_use) == ("one", "small", False)
    sizes = {kept.size_bytes for kept in told[-1]}
    assert all(0.5 < size / kit.one.stat().st_size < 2 for size in sizes)

    with loras.on(model, [Wanted("other", kit.other, 0.5)]):
        other = told[-1][-1]
        assert [(kept.lora, kept.in_use) for kept in told[-1]] == [("one", False), ("other", True)]
        thread = threading.Thread(target=loras.forget, args=[(one.key, other.key)])
        thread.start()
        thread.join(60)
        assert [kept.lora for kept in told[-1]] == ["other"]
    assert not told[-1][0].in_use
    assert loras.kept(model) == ("other",)
    again = drawn(worker, model, loras, {kit.one: 0.8, kit.other: 0.0}).pixels
    assert np.array_equal(again, expected)
    loras.closed(model)
    assert told[-1] == ()
    assert np.array_equal(drawn(worker, model, loras, {kit.one: 0.8}).pixels, expected)
