"""Two cards of one machine: the same seed is the same picture on either, and from either's
memory."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.worker.bare_pipelines import same_pixels
from tests.worker.fresh_pictures import WANTED
from tests.worker.test_worker_gpu_placements import save_wide_sd3
from tests.worker.worker_host import ASSETS, MODELS, START_S, Host, params, source_of
from workshop_gpu.conductor.rungs import ENCODERS, RESIDENT, VAE, Placement
from workshop_gpu.worker import protocol

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("quiet_libraries", "two_cards")]

OTHER = "cuda:1"
ALL = 10**12
MIB = 2**20
A_CONTEXT_BYTES = 100 * MIB
"""Less than any context takes, and more than the driver's figures move by themselves."""
WORKSPACES_BYTES = 40 * MIB
PLACEMENTS = (
    Placement(streamed_bytes=ALL, source=OTHER),
    Placement(elsewhere=(ENCODERS,), source=OTHER),
    Placement(staged=(VAE,), elsewhere=(ENCODERS,), streamed_bytes=ALL, source=OTHER),
    Placement(streamed_bytes=60 * 10**6, buffers=3, source=OTHER),
)


@pytest.fixture(scope="module")
def two_cards() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
        pytest.skip("this machine has no two CUDA cards")


@pytest.fixture
def cards_of_one_kind(two_cards: None) -> None:
    import torch

    if torch.cuda.get_device_name(0) != torch.cuda.get_device_name(1):
        pytest.skip("cards of two kinds round in two ways")


def free_on_other() -> int:
    import torch

    return int(torch.cuda.mem_get_info(1)[0])


def drawn_on(card: int) -> list[Image.Image]:
    """A picture of each model by a worker of its own."""
    host = Host("--device", "cuda", CUDA_VISIBLE_DEVICES=str(card))
    try:
        host.expect(protocol.Ready, START_S)
        pictures = []
        for model in MODELS:
            host.load(model)
            done = host.ask(protocol.Run(model, model, params()), protocol.Done)
            pictures.append(Image.open(io.BytesIO(done.images[0])).convert("RGB"))
        return pictures
    finally:
        host.close()


@pytest.mark.usefixtures("cards_of_one_kind")
def test_the_same_seed_is_the_same_picture_on_either_card() -> None:
    for first, second in zip(drawn_on(0), drawn_on(1), strict=True):
        assert same_pixels(first, second)


@pytest.mark.usefixtures("cards_of_one_kind")
def test_large_blocks_and_encoders_of_the_other_card_draw_the_same_picture(tmp_path: Path) -> None:
    """In this process, so that the allocator's own figures can be read; blocks of 28 MB."""
    import torch

    from tests.worker.opening import source
    from workshop_gpu.worker.course import Course
    from workshop_gpu.worker.devices import CudaDevice
    from workshop_gpu.worker.drawing import draw
    from workshop_gpu.worker.loading import Loader
    from workshop_gpu.worker.neighbours import Neighbours
    from workshop_gpu.worker.pool import NoPool
    from workshop_gpu.worker.turns import Turns

    folder = save_wide_sd3(tmp_path / "wide")
    neighbours = Neighbours([OTHER], on_card=True)
    worker = Loader(CudaDevice(), Turns(), NoPool("none here"), None, neighbours)
    pictures, kept = [], []
    for placement in (RESIDENT, *PLACEMENTS, Placement(streamed_bytes=ALL), *PLACEMENTS):
        before = [torch.cuda.memory_allocated(card) for card in (0, 1)]
        model = worker.load(source(folder), lambda *_: None, placement)
        taken = torch.cuda.memory_allocated(1) - before[1]
        assert taken == pytest.approx(worker.elsewhere_bytes.get(OTHER, 0), abs=MIB)
        assert bool(taken) == bool(placement.source)
        for _ in range(3):
            course = Course(model, worker.stager)
            (picture,) = draw(model, [WANTED], lambda step: None, course)
            pictures.append(picture.pixels)
        worker.evict("small")
        worker.let_linger_go()
        kept.append([torch.cuda.memory_allocated(card) for card in (0, 1)])
    assert max(kept[0]) < WORKSPACES_BYTES, "what libraries keep from their first use on"
    assert kept[-1] == kept[len(PLACEMENTS)], "each placement was taken by then, and again since"
    assert all(np.array_equal(each, pictures[0]) for each in pictures)


@pytest.mark.usefixtures("cards_of_one_kind")
def test_a_worker_uses_the_other_card_only_for_models_that_ask_for_it() -> None:
    """Without one there is not even a context there; afterwards nothing but the context is left."""
    untouched = free_on_other()
    host = Host("--device", "cuda", "--neighbours", OTHER, CUDA_VISIBLE_DEVICES="0,1")
    try:
        host.expect(protocol.Ready, START_S)
        model = "shapes-dit"
        loaded = host.load(model)
        run = protocol.Run(model, model, params())
        expected = Image.open(io.BytesIO(host.ask(run, protocol.Done).images[0])).convert("RGB")
        assert loaded.memory.elsewhere == {}
        assert free_on_other() > untouched - A_CONTEXT_BYTES
        for placement in (PLACEMENTS[2], RESIDENT, PLACEMENTS[1]):
            order = protocol.Load(source_of(model, ASSETS / model), placement)
            loaded = host.ask(order, protocol.Loaded)
            done = host.ask(run, protocol.Done)
            image = Image.open(io.BytesIO(done.images[0])).convert("RGB")
            assert same_pixels(image, expected)
            assert done.drawn.memory.elsewhere.keys() == {OTHER}, "its context stays there"
            assert done.drawn.memory.elsewhere[OTHER] < 2_000 * MIB
        assert free_on_other() < untouched - A_CONTEXT_BYTES
        host.ask(protocol.Evict(model), protocol.Evicted)
    finally:
        host.close()
    assert free_on_other() > untouched - A_CONTEXT_BYTES, "its worker ended, and all is back"
