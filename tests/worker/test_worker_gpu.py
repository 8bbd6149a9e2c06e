"""The worker on a real card: pictures bit for bit, memory given back, out of memory survived."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from PIL import Image

from tests.worker.bare_pipelines import bare_picture, same_pixels
from tests.worker.worker_host import ASSETS, FIRST_CARD, MODELS, START_S, Host, params, source_of
from workshop_gpu.worker import protocol

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("quiet_libraries")]

MEBIBYTE = 2**20


@pytest.fixture(scope="module")
def card() -> Iterator[Host]:
    """A worker on the first card."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA card")
    host = Host("--device", "cuda", CUDA_VISIBLE_DEVICES=FIRST_CARD)
    ready = host.expect(protocol.Ready, START_S)
    assert ready.total_bytes > 2**30
    assert ready.memory.ours_bytes > 0, "a CUDA context takes memory"
    assert ready.memory.ours_bytes <= ready.memory.used_bytes
    yield host
    host.close()


def given_back(card: Host) -> protocol.Memory:
    """The memory once the worker has returned what it keeps for a moment for the next model."""
    card.ask(protocol.Evict("nothing"), protocol.Evicted)
    readings: list[protocol.Memory] = []
    while len(readings) < 2:  # the first may have been under way
        if isinstance(report := card.receive_any(), protocol.MemoryReading):
            readings.append(report.memory)
    return readings[-1]


def test_a_context_that_was_measured_before_counts_where_the_driver_gives_no_figures(
    card: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a worker that took over while the card's last one gave its memory back."""
    import torch

    from workshop_gpu.worker.devices import CudaDevice, Nvml

    monkeypatch.setattr(Nvml, "bytes_of_this_process", lambda self, uuid, least_bytes: None)
    memory = CudaDevice(context_bytes=MEBIBYTE).memory(0)
    assert memory.ours_bytes == torch.cuda.memory_reserved() + MEBIBYTE


def bare_on_card(model: str, dtype: str) -> Any:
    import diffusers
    import torch

    pipeline = diffusers.DiffusionPipeline.from_pretrained(
        str(ASSETS / model), torch_dtype=getattr(torch, dtype), local_files_only=True
    ).to("cuda")
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def picture(png: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(png))
    image.load()
    return image


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_picture_equals_the_bare_pipelines_on_the_card(
    card: Host, model: str, dtype: str
) -> None:
    loaded = card.load(model, dtype=dtype)
    assert loaded.weights_bytes > 0
    bare = bare_on_card(model, dtype)
    for wanted in (params(), params(negative_prompt="a star", seed=5, width=64, height=96)):
        done = card.ask(protocol.Run("equal", model, wanted), protocol.Done)
        assert same_pixels(picture(done.images[0]), bare_picture(bare, wanted))
    card.ask(protocol.Evict(model), protocol.Evicted)


def test_the_default_on_a_card_is_bfloat16(card: Host) -> None:
    half = card.load("shapes").weights_bytes
    full = card.load("shapes", dtype="float32").weights_bytes
    assert 0.45 < half / full < 0.6
    card.ask(protocol.Evict("shapes"), protocol.Evicted)


def test_memory_is_back_after_every_eviction(card: Host) -> None:
    """The first round compiles kernels and fills libraries' workspaces; later ones add nothing."""
    readings = []
    for _ in range(4):
        for model in MODELS:
            card.load(model)
            done = card.ask(protocol.Run("round", model, params()), protocol.Done)
            assert done.drawn.peak_bytes > 0
        for model in MODELS:
            evicted = card.ask(protocol.Evict(model), protocol.Evicted)
            assert evicted.freed_bytes > 0
        readings.append(given_back(card))
    assert readings[-1].ours_bytes - readings[0].ours_bytes <= 4 * MEBIBYTE, readings
    assert readings[-1].used_bytes - readings[0].used_bytes <= 64 * MEBIBYTE, readings


def test_the_bytes_freed_are_the_bytes_that_loading_took(card: Host) -> None:
    loaded = card.load("shapes-dit", dtype="float32")
    evicted = card.ask(protocol.Evict("shapes-dit"), protocol.Evicted)
    assert evicted.freed_bytes == pytest.approx(loaded.weights_bytes, rel=0.02)


def test_the_peak_grows_with_the_picture(card: Host) -> None:
    card.load("shapes")
    small = card.ask(protocol.Run("small", "shapes", params()), protocol.Done)
    large = card.ask(
        protocol.Run("large", "shapes", params(width=512, height=512, steps=1)), protocol.Done
    )
    assert large.drawn.peak_bytes > 4 * small.drawn.peak_bytes > 0
    card.ask(protocol.Evict("shapes"), protocol.Evicted)


@contextmanager
def crowded_card(free_bytes: int) -> Iterator[None]:
    """A tensor of ours fills the card but for so much, as another process would."""
    import torch

    torch.cuda.empty_cache()
    ballast_bytes = torch.cuda.mem_get_info()[0] - free_bytes
    ballast = torch.empty(ballast_bytes, dtype=torch.uint8, device="cuda")
    try:
        yield
    finally:
        del ballast
        torch.cuda.empty_cache()


def test_out_of_memory_is_said_with_numbers_and_the_next_job_draws_as_ever(card: Host) -> None:
    card.load("shapes")
    before = card.ask(protocol.Run("before", "shapes", params()), protocol.Done)
    large = protocol.Run("large", "shapes", params(width=2048, height=2048, steps=1))
    card.ask(large, protocol.Done)  # its kernels are loaded now; only tensors can be too many
    given_back(card)
    with crowded_card(free_bytes=64 * MEBIBYTE):
        failed = card.ask(large, protocol.Failed)
    assert failed.error.kind == "out_of_memory"
    assert int(str(failed.error.facts["needed_bytes"])) > 0
    after = card.ask(protocol.Run("after", "shapes", params()), protocol.Done)
    assert after.images == before.images
    assert failed.memory.ours_bytes - before.drawn.memory.ours_bytes <= 64 * MEBIBYTE
    card.ask(large, protocol.Done)
    card.ask(protocol.Evict("shapes"), protocol.Evicted)


def test_out_of_memory_in_a_load_leaves_nothing_and_the_neighbour_whole(card: Host) -> None:
    start = given_back(card)
    card.load("shapes")
    expected = card.ask(protocol.Run("before", "shapes", params()), protocol.Done)
    source = source_of("shapes-dit", dtype="float32")
    given_back(card)
    with crowded_card(free_bytes=6 * MEBIBYTE):
        failed = card.ask(protocol.Load(source), protocol.LoadFailed)
    assert failed.error.kind == "out_of_memory"
    after = card.ask(protocol.Run("after", "shapes", params()), protocol.Done)
    assert after.images == expected.images
    card.ask(protocol.Load(source), protocol.Loaded)
    card.ask(protocol.Evict("shapes-dit"), protocol.Evicted)
    card.ask(protocol.Evict("shapes"), protocol.Evicted)
    assert given_back(card).ours_bytes - start.ours_bytes <= 64 * MEBIBYTE


def test_a_cancelled_job_gives_its_memory_back(card: Host) -> None:
    card.load("shapes")
    card.ask(protocol.Run("warm", "shapes", params(width=512, height=512)), protocol.Done)
    card.send(protocol.Run("long", "shapes", params(width=512, height=512, steps=900)))
    card.expect(protocol.Started)
    card.expect(protocol.Progress)
    card.send(protocol.Cancel("long"))
    stopped = card.until(protocol.Stopped)
    evicted = card.ask(protocol.Evict("shapes"), protocol.Evicted)
    assert evicted.freed_bytes > 0
    assert stopped.memory.ours_bytes - given_back(card).ours_bytes < 64 * MEBIBYTE


def test_a_worker_that_ends_gives_everything_back() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA card")
    torch.zeros(1, device="cuda")
    free_before = torch.cuda.mem_get_info()[0]
    host = Host("--device", "cuda", CUDA_VISIBLE_DEVICES=FIRST_CARD)
    host.expect(protocol.Ready, START_S)
    host.load("shapes-dit", dtype="float32")
    host.send(protocol.Run("running", "shapes-dit", params(steps=900)))
    host.expect(protocol.Started)
    host.expect(protocol.Progress)
    host.connection.close()
    assert host.exit_code() == 0
    host.close()
    assert free_before - torch.cuda.mem_get_info()[0] <= 64 * MEBIBYTE
