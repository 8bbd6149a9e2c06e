"""Two cards of one machine: the same seed is the same picture on either."""

import io

import pytest
from PIL import Image

from tests.worker.bare_pipelines import same_pixels
from tests.worker.worker_host import MODELS, START_S, Host, params
from workshop_gpu.worker import protocol

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("quiet_libraries")]


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


def test_the_same_seed_is_the_same_picture_on_either_card() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
        pytest.skip("this machine has no two CUDA cards")
    if torch.cuda.get_device_name(0) != torch.cuda.get_device_name(1):
        pytest.skip("cards of two kinds round in two ways")
    for first, second in zip(drawn_on(0), drawn_on(1), strict=True):
        assert same_pixels(first, second)
