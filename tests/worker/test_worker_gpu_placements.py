"""The rungs of the placement ladder on a card: bit for bit, within what a plan promises."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.worker.bare_pipelines import same_pixels
from tests.worker.small_pipelines import save_flux, save_sd1, save_sd3, save_sdxl
from tests.worker.test_worker_gpu import MEBIBYTE, crowded_card, given_back
from tests.worker.test_worker_placements import EXACT
from tests.worker.worker_host import ASSETS, FIRST_CARD, START_S, Host, params, source_of
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, RESIDENT, ROLES, VAE, Placement
from workshop_gpu.worker import protocol
from workshop_gpu.worker.images import read_record

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("quiet_libraries")]

MAKES = {"sd1": save_sd1, "sdxl": save_sdxl, "sd3": save_sd3, "flux": save_flux}
ALL = 10**12
WANTED = params(steps=6, seed=3, negative_prompt="a star", profile=True)
ALIGNED_BYTES = 2 * 2**20


@pytest.fixture(scope="module")
def card() -> Iterator[Host]:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA card")
    host = Host("--device", "cuda", CUDA_VISIBLE_DEVICES=FIRST_CARD)
    ready = host.expect(protocol.Ready, START_S)
    assert ready.bus_bytes_per_s > 10**9
    yield host
    host.close()


@pytest.fixture(scope="module", params=MAKES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MAKES[request.param](tmp_path_factory.mktemp("make") / request.param)


def placed(card: Host, folder: Path, placement: Placement, dtype: str) -> protocol.Loaded:
    source = source_of("placed", folder, dtype=dtype)
    return card.ask(protocol.Load(source, placement), protocol.Loaded)


def drawn(card: Host, wanted: protocol.GenerateParams = WANTED) -> tuple[Any, protocol.Done]:
    done = card.ask(protocol.Run("one", "placed", wanted), protocol.Done)
    image = Image.open(io.BytesIO(done.images[0]))
    image.load()
    return image, done


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_every_rung_that_moves_weights_draws_the_resident_models_picture(
    card: Host, folder: Path, dtype: str
) -> None:
    placed(card, folder, RESIDENT, dtype)
    expected, _ = drawn(card)
    for number, name in enumerate([*EXACT, *reversed(EXACT)]):
        loaded = placed(card, folder, EXACT[name], dtype)
        for _ in range(2):
            image, done = drawn(card)
            assert same_pixels(image, expected), name
        steps = read_record(done.images[0]).profile
        assert len(steps) >= WANTED.steps
        assert all(step.copy_s >= 0 and step.compute_s > 0 for step in steps)
        if number % 3 == 0:  # the others change in place
            evicted = card.ask(protocol.Evict("placed"), protocol.Evicted)
            assert evicted.freed_bytes == loaded.weights_bytes, name
    card.ask(protocol.Evict("placed"), protocol.Evicted)


def test_encoders_on_the_cpu_draw_nearly_the_same_picture(card: Host, folder: Path) -> None:
    """A CPU sums in another order than a card; in float32 a few of 256 levels bound the rest."""
    placed(card, folder, RESIDENT, "float32")
    expected, _ = drawn(card)
    placed(card, folder, Placement(on_cpu=(ENCODERS,)), "float32")
    image, _ = drawn(card)
    difference = np.abs(np.asarray(image, np.int16) - np.asarray(expected, np.int16))
    assert difference.mean() < 4
    card.ask(protocol.Evict("placed"), protocol.Evicted)


def test_a_cancelled_job_leaves_the_streamed_model_as_it_was(card: Host, folder: Path) -> None:
    placed(card, folder, Placement(staged=(ENCODERS, VAE), streamed_bytes=ALL), "bfloat16")
    expected, _ = drawn(card)
    for _ in range(3):
        card.send(protocol.Run("long", "placed", params(steps=900)))
        card.expect(protocol.Started)
        card.expect(protocol.Progress)
        card.send(protocol.Cancel("long"))
        card.until(protocol.Stopped)
        image, _ = drawn(card)
        assert same_pixels(image, expected)
    card.ask(protocol.Evict("placed"), protocol.Evicted)


def test_out_of_memory_names_its_phase_and_leaves_the_streamed_model_as_it_was(card: Host) -> None:
    low = Placement(staged=(ENCODERS, VAE), streamed_bytes=ALL)
    placed(card, ASSETS / "shapes", low, "bfloat16")
    expected, _ = drawn(card)
    large = protocol.Run("large", "placed", params(width=2048, height=2048, steps=1))
    card.ask(large, protocol.Done)  # its kernels are loaded now; only tensors can be too many
    given_back(card)
    with crowded_card(free_bytes=64 * MEBIBYTE):
        failed = card.ask(large, protocol.Failed)
    assert failed.error.kind == "out_of_memory"
    assert failed.error.facts["phase"] in ("encode", "denoise", "decode")
    image, _ = drawn(card)
    assert same_pixels(image, expected)
    card.ask(protocol.Evict("placed"), protocol.Evicted)


def test_large_blocks_stream_bit_for_bit_within_the_promised_memory(tmp_path: Path) -> None:
    """In this process, so that the allocator's own figures can be read; blocks of 28 MB."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA card")
    from workshop_gpu.worker.devices import CudaDevice
    from workshop_gpu.worker.loading import Loader
    from workshop_gpu.worker.pool import NoPool
    from workshop_gpu.worker.turns import Turns

    folder = save_wide_sd3(tmp_path / "wide")
    worker = Loader(CudaDevice(), Turns(), NoPool("none here"))
    with _loaded(worker, folder, RESIDENT) as model:
        _drawn(worker, model)  # from now on the libraries have their workspaces
    pictures = []
    activations_bytes = 0
    for placement in (
        RESIDENT,
        Placement(streamed_bytes=60 * 10**6),
        Placement(staged=(ENCODERS, VAE), streamed_bytes=ALL),
        Placement(staged=ROLES),
        Placement(staged=(ENCODERS, VAE), streamed_bytes=ALL, buffers=3),
    ):
        before_bytes = torch.cuda.memory_allocated()
        with _loaded(worker, folder, placement) as model:
            taken_bytes = torch.cuda.memory_allocated() - before_bytes
            assert taken_bytes == pytest.approx(model.weights_bytes, abs=16 * ALIGNED_BYTES)
            torch.cuda.reset_peak_memory_stats()
            pictures.append(_drawn(worker, model))
            used_bytes = torch.cuda.max_memory_allocated() - before_bytes
            if placement == RESIDENT:
                activations_bytes = used_bytes - model.weights_bytes
            promised_bytes = model.weights_bytes + max(model.transient_bytes, activations_bytes)
            if DENOISER in placement.staged:  # it is there while it computes
                promised_bytes = model.weights_bytes + model.transient_bytes + activations_bytes
            assert used_bytes <= 1.05 * promised_bytes
        assert torch.cuda.memory_allocated() == before_bytes
    assert all(np.array_equal(each, pictures[0]) for each in pictures)


@contextmanager
def _loaded(worker: Any, folder: Path, placement: Placement) -> Iterator[Any]:
    """The model on the card; afterwards nothing of it is left there."""
    from tests.worker.opening import source

    yield worker.load(source(folder), lambda *_: None, placement)
    worker.evict("small")
    worker.let_linger_go()


def _drawn(worker: Any, model: Any) -> Any:
    from workshop_gpu.worker.course import Course
    from workshop_gpu.worker.drawing import draw

    (picture,) = draw(model, [WANTED], lambda step: None, Course(model, worker.stager))
    return picture.pixels


def save_wide_sd3(folder: Path) -> Path:
    """Stable Diffusion 3's make with eight wide blocks; links to a small one's other parts."""
    import torch
    from diffusers import SD3Transformer2DModel

    save_sd3(folder)
    small = SD3Transformer2DModel.load_config(str(folder / "transformer"))
    for file in (folder / "transformer").glob("*.safetensors*"):
        os.unlink(file)
    torch.manual_seed(8)
    config = {**small, "num_layers": 8, "attention_head_dim": 64, "num_attention_heads": 12}
    wide = SD3Transformer2DModel.from_config({**config, "caption_projection_dim": 768})
    wide.eval().save_pretrained(str(folder / "transformer"))
    return folder
