"""LoRAs on a card: the bare pipeline's picture on every rung, and no byte stays behind."""

import io
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.worker import test_worker_gpu_placements as on_a_card
from tests.worker.bare_pipelines import same_pixels
from tests.worker.gguf_files import write_gguf
from tests.worker.small_loras import bare_picture_with
from tests.worker.test_worker_loras import EXACT, MAKES, Kit
from tests.worker.test_worker_quantized import denoiser_of
from tests.worker.worker_host import Host, params, source_of
from workshop_gpu.conductor.rungs import ENCODERS, RESIDENT, Placement
from workshop_gpu.worker import protocol

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("quiet_libraries")]

card, drawn, placed = on_a_card.card, on_a_card.drawn, on_a_card.placed
PLAIN = params(steps=6, seed=3, negative_prompt="a star")
WITH = params(steps=6, seed=3, negative_prompt="a star", loras={"one": 0.8})


@pytest.fixture(scope="module", params=MAKES)
def kit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield Kit(request.param, tmp_path_factory.mktemp("kit"))


def drawn_with(card: Host, file: Path) -> tuple[Image.Image, protocol.Done]:
    run = protocol.Run("one", "placed", WITH, lora_files={"one": str(file)})
    done = card.ask(run, protocol.Done)
    image = Image.open(io.BytesIO(done.images[0]))
    image.load()
    return image, done


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_every_rung_draws_the_bare_pipelines_picture_with_a_lora(
    card: Host, kit: Kit, dtype: str
) -> None:
    """On the card as on a CPU: with a LoRA and without in turn, rung after rung."""
    expected = bare_picture_with(kit.folder, WITH, {kit.one: 0.8}, dtype, "cuda")
    placed(card, kit.folder, RESIDENT, dtype)
    plain, _ = drawn(card, PLAIN)
    for name in EXACT:
        placed(card, kit.folder, EXACT[name], dtype)
        image, done = drawn_with(card, kit.one)
        assert same_pixels(image, expected), name
        image, after = drawn(card, PLAIN)
        assert same_pixels(image, plain), name
        more = "a LoRA's bytes are the job's working memory"
        assert done.drawn.peak_bytes >= after.drawn.peak_bytes, more
    placed(card, kit.folder, Placement(on_cpu=(ENCODERS,)), dtype)
    image, _ = drawn_with(card, kit.one)
    assert image.size == (WITH.width, WITH.height)
    card.ask(protocol.Evict("placed"), protocol.Evicted)


def test_a_lora_leaves_nothing_on_the_card(card: Host, kit: Kit) -> None:
    placed(card, kit.folder, RESIDENT, "bfloat16")
    drawn(card, PLAIN)
    drawn_with(card, kit.one)
    before = card.ask(protocol.Run("two", "placed", PLAIN), protocol.Done).drawn.memory
    for _ in range(5):
        drawn_with(card, kit.one)
        drawn_with(card, kit.other)
    after = card.ask(protocol.Run("two", "placed", PLAIN), protocol.Done).drawn.memory
    assert after.ours_bytes <= before.ours_bytes
    card.ask(protocol.Evict("placed"), protocol.Evicted)


@pytest.mark.parametrize("kit", ["flux"], indirect=True)
def test_a_quantized_denoiser_draws_with_a_lora_the_same_on_every_rung(
    card: Host, kit: Kit, tmp_path: Path
) -> None:
    write_gguf(denoiser_of(kit.folder), gguf := tmp_path / "small.gguf")
    source = source_of("placed", kit.folder, dtype="bfloat16", gguf=str(gguf))
    card.ask(protocol.Load(source, RESIDENT), protocol.Loaded)
    plain, _ = drawn(card, PLAIN)
    expected, _ = drawn_with(card, kit.one)
    assert not same_pixels(expected, plain)
    for name in EXACT:
        card.ask(protocol.Load(source, EXACT[name]), protocol.Loaded)
        image, _ = drawn_with(card, kit.one)
        assert same_pixels(image, expected), name
        image, _ = drawn(card, PLAIN)
        assert same_pixels(image, plain), name
    card.ask(protocol.Evict("placed"), protocol.Evicted)
