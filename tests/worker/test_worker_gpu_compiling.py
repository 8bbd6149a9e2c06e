"""Compiled blocks on a card: near to what is drawn without, and the same wherever weights are."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.worker.bare_pipelines import same_pixels
from tests.worker.small_pipelines import save_flux
from tests.worker.test_worker_gpu_placements import save_wide_sd3
from tests.worker.worker_host import FIRST_CARD, START_S, Host, params, source_of
from workshop_gpu.conductor.rungs import ENCODERS, RESIDENT, VAE, Placement
from workshop_gpu.worker import protocol

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("quiet_libraries")]

COMPILED_S = 900.0
WANTED = params(width=128, height=128, steps=6, seed=3, negative_prompt="a star")
SHORT = params(width=128, height=128, steps=1)
OTHER_SIZES = ((96, 128), (64, 64), (128, 64))
"""None is above 128, the largest side for which the small SD3's positions reach."""
PLACEMENTS = {
    "resident": RESIDENT,
    "half streamed": Placement(streamed_bytes=100_000_000),
    "all streamed": Placement(staged=(ENCODERS, VAE), streamed_bytes=10**12),
    "one buffer": Placement(streamed_bytes=10**12, buffers=1),
}


@pytest.fixture(scope="module", params=["sd3", "flux"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save = save_wide_sd3 if request.param == "sd3" else save_flux
        return save(tmp_path_factory.mktemp("make") / request.param)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "compiled"


@pytest.fixture(scope="module")
def card(kept: Path) -> Iterator[Host]:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA card")
    host = Host("--device", "cuda", "--compiled", str(kept), CUDA_VISIBLE_DEVICES=FIRST_CARD)
    if not host.expect(protocol.Ready, START_S).compiles:
        host.close()
        pytest.skip("blocks cannot be compiled here: see `workshop-gpu doctor`")
    yield host
    host.close()


def drawn(
    card: Host, wanted: protocol.GenerateParams = WANTED
) -> tuple[Image.Image, protocol.Done]:
    card.send(protocol.Run("one", "small", wanted, compiles=True))
    done, _ = card.collect(protocol.Done, protocol.Compiled)
    image = Image.open(io.BytesIO(done.images[0]))
    image.load()
    return image, done


def placed(card: Host, folder: Path, placement: Placement = RESIDENT) -> None:
    card.send(protocol.Load(source_of("small", folder, dtype="bfloat16"), placement))
    card.collect(protocol.Loaded, protocol.Compiled)


def sent_away(card: Host) -> None:
    card.send(protocol.Evict("small"))
    card.collect(protocol.Evicted, protocol.Compiled)


def test_compiled_pictures_are_near_the_others_and_the_same_in_every_placement(
    card: Host, folder: Path, kept: Path
) -> None:
    placed(card, folder)
    without, first = drawn(card)
    assert (first.drawn.compiled, first.drawn.to_compile) == (False, True)

    card.send(protocol.Compile("small"))
    for _ in range(3):  # while it is being compiled
        _, done = drawn(card, SHORT)
        assert not done.drawn.compiled
    compiled = card.expect(protocol.Compiled, COMPILED_S)
    assert compiled.ready, compiled.problem

    expected, done = drawn(card)
    assert done.drawn.compiled
    difference = np.abs(np.asarray(expected, np.int16) - np.asarray(without, np.int16))
    assert difference.mean() < 4, "they round otherwise, no more"
    uncompiled, done = drawn(card, params(**{**_fields(WANTED), "compiled": False}))
    assert not done.drawn.compiled
    assert same_pixels(uncompiled, without)

    for name, placement in PLACEMENTS.items():
        placed(card, folder, placement)
        for _ in range(2):
            image, done = drawn(card)
            assert done.drawn.compiled, name
            assert same_pixels(image, expected), name

    there = {path.name for path in kept.rglob("*.inductor")}
    for width, height in OTHER_SIZES:
        image, done = drawn(card, params(width=width, height=height, steps=2, negative_prompt="x"))
        assert (done.drawn.compiled, done.drawn.to_compile) == (True, False), (width, height)
    assert {path.name for path in kept.rglob("*.inductor")} == there, "no size was compiled anew"
    sent_away(card)


def test_a_new_worker_draws_the_same_compiled_picture(card: Host, folder: Path, kept: Path) -> None:
    placed(card, folder)
    expected, done = drawn(card)
    assert done.drawn.compiled
    other = Host("--device", "cuda", "--compiled", str(kept), CUDA_VISIBLE_DEVICES=FIRST_CARD)
    try:
        other.expect(protocol.Ready, START_S)
        placed(other, folder)
        assert other.expect(protocol.Compiled).ready
        image, done = drawn(other)
        assert done.drawn.compiled
        assert same_pixels(image, expected)
    finally:
        other.close()
    sent_away(card)


def _fields(wanted: protocol.GenerateParams) -> dict[str, object]:
    return {name: getattr(wanted, name) for name in wanted.__struct_fields__}
