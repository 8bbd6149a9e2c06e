"""Quantized denoisers: GGUF files are pooled, placed and streamed as they are."""

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.fake_pool import FakePool
from tests.worker.gguf_files import write_gguf
from tests.worker.opening import loader, source
from tests.worker.small_pipelines import save_flux
from tests.worker.test_worker_placements import ALL, drawn
from workshop_gpu.catalogue.files import LocalState, inspect
from workshop_gpu.catalogue.gguf_header import tensor_bytes
from workshop_gpu.catalogue.spec import ModelSpec, Source
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, RESIDENT, ROLES, VAE, Placement

pytestmark = pytest.mark.usefixtures("quiet_libraries")

KINDS = ("Q8_0", "Q4_0", "BF16")
PLACEMENTS = (
    Placement(staged=ROLES),
    Placement(streamed_bytes=1, buffers=1),
    Placement(staged=(VAE,), streamed=(ENCODERS,), streamed_bytes=ALL),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries' advice is no error of ours
        return save_flux(tmp_path_factory.mktemp("make") / "flux")


@pytest.fixture
def pool() -> Iterator[FakePool]:
    pool = FakePool()
    yield pool
    pool.close()


def denoiser_of(folder: Path) -> Any:
    from diffusers import FluxTransformer2DModel

    return FluxTransformer2DModel.from_pretrained(str(folder / "transformer"))


def without_weights(folder: Path, target: Path) -> Path:
    """The pipeline's folder as people have it beside a GGUF file: without the large weights."""
    shutil.copytree(folder, target)
    for weights in (target / "transformer").glob("*.safetensors*"):
        weights.unlink()
    return target


def load(worker: Any, folder: Path, gguf: Path, placement: Placement = RESIDENT) -> Any:
    return worker.load(source(folder, gguf=str(gguf)), lambda *_: None, placement)


@pytest.mark.parametrize("kind", KINDS)
def test_a_quantized_denoiser_draws_the_same_on_every_rung_and_what_its_numbers_say(
    folder: Path, tmp_path: Path, pool: FakePool, kind: str
) -> None:
    denoiser = denoiser_of(folder)
    numbers = write_gguf(denoiser, tmp_path / "small.gguf", kind)
    beside = without_weights(folder, tmp_path / "pipeline")

    worker = loader(pool)
    expected = drawn(worker, load(worker, beside, tmp_path / "small.gguf"))
    for placement in PLACEMENTS:
        model = load(worker, beside, tmp_path / "small.gguf", placement)
        assert np.array_equal(drawn(worker, model), expected), placement.name
    worker.evict("small")
    back = load(worker, beside, tmp_path / "small.gguf")
    assert np.array_equal(drawn(worker, back), expected)
    assert all(component.part.in_pool for component in back.components)

    denoiser.load_state_dict(numbers)
    plain = tmp_path / "unpacked"
    shutil.copytree(beside, plain)
    denoiser.save_pretrained(str(plain / "transformer"))
    unpacked = loader().load(source(plain), lambda *_: None)
    assert np.abs(drawn(worker, unpacked) - expected).max() < 1e-3


def test_quantized_layers_stay_as_small_as_their_file_and_are_counted_so(
    folder: Path, tmp_path: Path
) -> None:
    from workshop_gpu.worker.layout import aligned

    sizes = {}
    for kind in KINDS:
        file = tmp_path / f"{kind}.gguf"
        write_gguf(denoiser_of(folder), file, kind)
        worker = loader()
        model = load(worker, folder, file)
        roles = {role.role: role for role in model.roles}
        spec = ModelSpec(id="small", source=Source(folder=str(folder), gguf=str(file)))
        local = inspect(spec, tmp_path)
        assert local.state is LocalState.READY, local.problem
        foretold = next(each for each in local.components if each.name == "transformer")
        tensors = tensor_bytes(file, 4)
        assert foretold.loaded_bytes == sum(size for _, size in tensors) < file.stat().st_size
        assert roles[DENOISER].size_bytes == sum(aligned(size) for _, size in tensors)
        sizes[kind] = foretold.loaded_bytes
    assert sizes["Q4_0"] < sizes["Q8_0"] < sizes["BF16"]


def test_a_file_that_lacks_a_tensor_or_is_none_is_refused(folder: Path, tmp_path: Path) -> None:
    from workshop_gpu.worker.checkpoints import BadCheckpoint

    denoiser = denoiser_of(folder)
    del denoiser.proj_out
    write_gguf(denoiser, tmp_path / "lacks.gguf")
    with pytest.raises(BadCheckpoint, match=r"lacks\.gguf does not hold a FluxTransformer2DModel"):
        load(loader(), folder, tmp_path / "lacks.gguf")
    write_gguf(denoiser_of(folder).transformer_blocks, tmp_path / "odd.gguf")
    with pytest.raises(BadCheckpoint, match=r"odd\.gguf does not hold a FluxTransformer2DModel"):
        load(loader(), folder, tmp_path / "odd.gguf")
    (tmp_path / "other.gguf").write_bytes(b"PK\x03\x04" * 20)
    with pytest.raises(BadCheckpoint, match=r"other\.gguf is damaged"):
        load(loader(), folder, tmp_path / "other.gguf")
    with pytest.raises(BadCheckpoint, match="cannot be read"):
        load(loader(), folder, tmp_path / "none.gguf")
