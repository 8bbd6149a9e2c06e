"""Compiled blocks in a real worker: nobody waits, all of a job or nothing of it, the same picture.

The backend keeps a block's graph as it was traced: it needs no compiler of C, and rounds as the
block itself does, so that a picture tells whether anything went wrong.
"""

import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.worker.bare_pipelines import same_pixels
from tests.worker.small_pipelines import save_flux
from tests.worker.worker_host import START_S, Host, params, source_of
from workshop_gpu.conductor.rungs import ENCODERS, RESIDENT, VAE, Placement
from workshop_gpu.worker import protocol
from workshop_gpu.worker.images import read_record

WANTED = params(width=64, height=64, steps=2, seed=5)
LOW = Placement(staged=(ENCODERS, VAE), streamed_bytes=10**12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return save_flux(tmp_path_factory.mktemp("make") / "flux")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "compiled"


def started(kept: Path, **environment: str) -> Host:
    host = Host(
        *("--device", "cpu", "--total-bytes", str(10**9), "--threads", "1"),
        *("--compiler", "eager", "--compiled", str(kept)),
        **environment,
    )
    assert host.expect(protocol.Ready, START_S).compiles
    return host


@pytest.fixture(scope="module")
def worker(kept: Path) -> Iterator[Host]:
    host = started(kept)
    yield host
    host.close()


def drawn(
    worker: Host, wanted: protocol.GenerateParams = WANTED, **options: Any
) -> tuple[Image.Image, protocol.Done]:
    run = protocol.Run("one", "small", wanted, **{"compiles": True, **options})
    done = answer(worker, protocol.Done, run)
    image = Image.open(io.BytesIO(done.images[0]))
    image.load()
    assert read_record(done.images[0]).params.compiled is done.drawn.compiled, "the picture says it"
    return image, done


def placed(worker: Host, folder: Path, placement: Placement = RESIDENT) -> protocol.Loaded:
    load = protocol.Load(source_of("small", folder), placement)
    return answer(worker, protocol.Loaded, load)


def answer(worker: Host, kind: Any, *orders: protocol.ToWorker) -> Any:
    """The next report of this kind. That blocks are ready is told at any time."""
    worker.send(*orders)
    return worker.collect(kind, protocol.Compiled)[0]


def test_jobs_draw_compiled_once_that_is_ready_and_never_before(
    worker: Host, folder: Path, kept: Path
) -> None:
    placed(worker, folder)
    expected, first = drawn(worker)
    assert (first.drawn.compiled, first.drawn.to_compile) == (False, True)
    assert list(kept.rglob("*.json")) == [], "nothing is compiled before the host says so"

    worker.send(protocol.Compile("small"))  # which takes far longer than a picture
    meanwhile, second = drawn(worker)
    assert not second.drawn.compiled
    assert same_pixels(meanwhile, expected)
    assert worker.expect(protocol.Compiled, START_S) == protocol.Compiled("small", ready=True)

    image, third = drawn(worker)
    assert (third.drawn.compiled, third.drawn.to_compile) == (True, False)
    assert same_pixels(image, expected)


def test_other_sizes_need_no_other_twins(worker: Host, folder: Path, kept: Path) -> None:
    before = sorted(kept.rglob("*.eager"))
    assert len(before) == 2, "one for each kind of blocks"
    for width, height in ((96, 32), (32, 32), (128, 96)):
        wanted = params(width=width, height=height, steps=2)
        image, done = drawn(worker, wanted)
        assert (done.drawn.compiled, done.drawn.to_compile) == (True, False), (width, height)
        without, done = drawn(worker, params(width=width, height=height, steps=2, compiled=False))
        assert not done.drawn.compiled, "who asks for none gets none"
        assert same_pixels(image, without)
    assert sorted(kept.rglob("*.eager")) == before


def test_weights_that_stream_are_computed_with_by_the_same_twins(
    worker: Host, folder: Path
) -> None:
    expected, _ = drawn(worker, params(width=64, height=64, steps=2, seed=5, compiled=False))
    for placement in (LOW, Placement(streamed_bytes=1, buffers=1), RESIDENT):
        placed(worker, folder, placement)
        assert worker.expect(protocol.Compiled).ready, "told anew with each load"
        for _ in range(2):
            image, done = drawn(worker)
            assert done.drawn.compiled
            assert same_pixels(image, expected), placement


def test_a_call_that_no_twin_holds_for_lets_the_job_begin_anew_without(
    worker: Host, folder: Path
) -> None:
    """Several pictures together: a batch of one was compiled as such."""
    member = protocol.BatchMember("two", WANTED)
    run = protocol.Run("one", "small", WANTED, others=(member,), compiles=True)
    for _ in range(2):
        both = [answer(worker, protocol.Done, run), answer(worker, protocol.Done)]
        assert all((done.drawn.compiled, done.drawn.to_compile) == (False, True) for done in both)
    _, alone = drawn(worker)
    assert alone.drawn.compiled, "what was there before still holds"


def test_the_host_decides_whether_a_job_may(worker: Host, folder: Path) -> None:
    _, done = drawn(worker, compiles=False)
    assert not done.drawn.compiled


def test_what_was_compiled_is_ready_soon_after_the_next_start(folder: Path, kept: Path) -> None:
    there = {path: path.stat().st_mtime_ns for path in kept.rglob("*.eager")}
    host = started(kept)
    try:
        host.send(protocol.Load(source_of("small", folder)))
        host.until(protocol.Loaded)
        assert host.expect(protocol.Compiled) == protocol.Compiled("small", ready=True)
        _, done = drawn(host)
        assert done.drawn.compiled
    finally:
        host.close()
    assert {path: path.stat().st_mtime_ns for path in kept.rglob("*.eager")} == there
