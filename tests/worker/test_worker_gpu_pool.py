"""The weight pool and a real card: nothing that comes and goes changes a picture."""

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.worker.bare_pipelines import bare_picture, same_pixels
from tests.worker.test_worker_gpu import bare_on_card, given_back
from tests.worker.worker_host import ASSETS, FIRST_CARD, POOL_BYTES, START_S, Host, params
from workshop_gpu.host.weight_pool import WeightPool
from workshop_gpu.worker import protocol

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("quiet_libraries")]

MEBIBYTE = 2**20


@pytest.fixture
def pool() -> Iterator[WeightPool]:
    found = WeightPool(POOL_BYTES)
    yield found
    found.close()


def on_card(pool: WeightPool) -> Host:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA card")
    host = Host("--device", "cuda", pool=pool, CUDA_VISIBLE_DEVICES=FIRST_CARD)
    host.expect(protocol.Ready, START_S)
    return host


def drawn(card: Host, model: str, job: str = "job", **changes: object) -> Image.Image:
    done = card.ask(protocol.Run(job, model, params(**changes)), protocol.Done)
    image = Image.open(io.BytesIO(done.images[0]))
    image.load()
    return image


def test_fifty_rounds_of_leaving_and_coming_back_change_nothing(pool: WeightPool) -> None:
    card = on_card(pool)
    expected = bare_picture(bare_on_card("shapes-dit", "bfloat16"), params())
    loaded = card.load("shapes-dit")
    assert loaded.no_pool == "", "host memory is registered with the card"
    assert same_pixels(drawn(card, "shapes-dit"), expected)
    card.ask(protocol.Evict("shapes-dit"), protocol.Evicted)
    start = given_back(card)
    for _ in range(50):
        card.load("shapes-dit")
        card.ask(protocol.Evict("shapes-dit"), protocol.Evicted)
    assert given_back(card).ours_bytes - start.ours_bytes <= 4 * MEBIBYTE
    assert card.load("shapes-dit").no_pool == ""
    assert same_pixels(drawn(card, "shapes-dit"), expected)
    card.close()


def test_the_next_worker_draws_the_same_from_the_pool_alone(
    pool: WeightPool, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(ASSETS / "shapes-dit", tmp_path / "model"))
    first = on_card(pool)
    first.load("model", folder)
    expected = drawn(first, "model")
    first.process.kill()
    first.process.wait()
    pool.release(first.user)
    second = on_card(pool)
    granted = len(pool.state().parts)
    loaded = second.load("model", folder)
    assert len(pool.state().parts) == granted, "nothing was read again"
    assert loaded.no_pool == ""
    assert same_pixels(drawn(second, "model"), expected)
    second.close()
    first.close()


def test_without_a_pool_weights_come_from_the_files_each_time(pool: WeightPool) -> None:
    with_pool, without = on_card(pool), on_card(WeightPool(0))
    with_pool.load("shapes")
    loaded = without.load("shapes")
    assert loaded.no_pool != ""
    expected = drawn(with_pool, "shapes")
    assert same_pixels(drawn(without, "shapes"), expected)
    without.ask(protocol.Evict("shapes"), protocol.Evicted)
    again = without.load("shapes")
    assert again.weights_bytes == loaded.weights_bytes
    assert same_pixels(drawn(without, "shapes"), expected)
    without.close()
    with_pool.close()


def test_models_of_one_family_share_encoders_on_the_card(pool: WeightPool) -> None:
    card = on_card(pool)
    card.load("shapes-dit-turbo", dtype="float32")
    drawn(card, "shapes-dit-turbo")  # libraries keep what their first use takes
    card.ask(protocol.Evict("shapes-dit-turbo"), protocol.Evicted)
    start = given_back(card)
    large = card.load("shapes-dit", dtype="float32")
    turbo = card.load("shapes-dit-turbo", dtype="float32")
    shared = {part.part: part.device_bytes for part in large.parts}
    common = sum(shared.get(part.part, 0) for part in turbo.parts)
    assert common > 0
    expected = drawn(card, "shapes-dit-turbo")
    evicted = card.ask(protocol.Evict("shapes-dit"), protocol.Evicted)
    assert evicted.freed_bytes == large.weights_bytes - common
    assert same_pixels(drawn(card, "shapes-dit-turbo"), expected)
    card.ask(protocol.Evict("shapes-dit-turbo"), protocol.Evicted)
    assert given_back(card).ours_bytes - start.ours_bytes <= 64 * MEBIBYTE
    card.close()


def test_memory_is_kept_for_the_load_that_follows_and_else_given_back(pool: WeightPool) -> None:
    card = on_card(pool)
    large = card.load("shapes-dit", dtype="float32")
    expected = drawn(card, "shapes-dit")
    before = given_back(card)
    leaving = protocol.Evict("shapes-dit", load_follows=True)
    evicted = card.ask(leaving, protocol.Evicted)
    assert evicted.memory.ours_bytes <= before.ours_bytes - large.weights_bytes
    turbo = card.load("shapes-dit-turbo", dtype="float32")  # finds the encoders there
    assert turbo.weights_bytes > 0
    card.ask(protocol.Evict("shapes-dit-turbo", load_follows=True), protocol.Evicted)
    while not isinstance(told := card.receive_any(), protocol.MemoryReading):
        pass  # the load does not come
    assert told.memory.ours_bytes <= before.ours_bytes - large.weights_bytes
    card.load("shapes-dit", dtype="float32")
    assert same_pixels(drawn(card, "shapes-dit"), expected)
    card.close()


def test_a_load_beside_a_picture_changes_neither_the_picture_nor_its_peak(
    pool: WeightPool,
) -> None:
    card = on_card(pool)
    card.load("shapes")
    wanted = params(width=512, height=512, steps=60)
    card.ask(protocol.Run("warm", "shapes", wanted), protocol.Done)
    alone = card.ask(protocol.Run("alone", "shapes", wanted), protocol.Done)
    card.send(protocol.Run("beside", "shapes", wanted))
    card.expect(protocol.Started)
    for _ in range(2):
        card.send(protocol.Load(card_source("shapes-dit")), protocol.Evict("shapes-dit"))
    beside, before = card.collect(protocol.Done, protocol.Loaded, protocol.Evicted)
    assert any(isinstance(report, protocol.Loaded) for report in before)
    one, other = (Image.open(io.BytesIO(done.images[0])) for done in (alone, beside))
    assert same_pixels(one, other)
    assert beside.drawn.peak_bytes == pytest.approx(alone.drawn.peak_bytes, rel=0.05)
    card.close()


def card_source(model: str) -> protocol.ModelSource:
    return protocol.ModelSource(model, "diffusers", str(ASSETS / model), dtype="float32")
