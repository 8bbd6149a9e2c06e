"""Out of memory and pictures that are none: what is said of it, and that all is well afterwards."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.fake_pool import FakePool
from tests.worker.fresh_pictures import WANTED
from tests.worker.opening import loader, source
from tests.worker.small_pipelines import save_sd1
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, RESIDENT, VAE, Placement

pytestmark = pytest.mark.usefixtures("quiet_libraries")

LOW = Placement(staged=(ENCODERS, VAE), streamed_bytes=10**12)
STAGES = {"encode": "text_encoder", "denoise": "unet", "decode": "vae.decoder"}


@pytest.fixture
def worker() -> Iterator[Any]:
    pool = FakePool()
    yield loader(pool)
    pool.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return save_sd1(tmp_path_factory.mktemp("make") / "sd1")


def load(worker: Any, folder: Path, placement: Placement) -> Any:
    return worker.load(source(folder), lambda *_: None, placement)


def run(worker: Any, model: Any, wanted: Any = WANTED, **loras: Any) -> tuple[Any, str]:
    """One job as the engine runs it: what came of it, and the phase that it came to."""
    (outcome,), phase = run_together(worker, model, wanted, **loras)
    return outcome, phase


def run_together(
    worker: Any,
    model: Any,
    *wanted: Any,
    loras: Any = None,
    lora_files: dict[str, str] | None = None,
) -> tuple[list[Any], str]:
    """Jobs in one batch, as the engine runs them: what came of each, and the phase. `loras` are
    those that the worker knows."""
    from workshop_gpu.worker.batch import Batch, Tools
    from workshop_gpu.worker.compiling import Compiling
    from workshop_gpu.worker.failures import attempt
    from workshop_gpu.worker.images import ImageRecord
    from workshop_gpu.worker.link import Link
    from workshop_gpu.worker.loras import Loras
    from workshop_gpu.worker.previews import PreviewMap
    from workshop_gpu.worker.protocol import BatchMember
    from workshop_gpu.worker.turns import Turns
    from workshop_gpu.worker.writing import Writer

    ours, theirs = socket.socketpair()
    answers: dict[str, Any] = {}
    compiling = Compiling(None, Turns(), "cpu", lambda told: None)
    link = Link(theirs)
    writer = Writer(link)
    tools = Tools(link, Turns(), worker._device, worker.stager, loras or Loras(), compiling, writer)
    members = [
        BatchMember(f"job{number}", each, lora_files=lora_files or {})
        for number, each in enumerate(wanted)
    ]
    batch = Batch(members, tools, answers.__setitem__)

    def record(params: Any, metadata: dict[str, str], **others: Any) -> ImageRecord:
        return ImageRecord(
            model="small",
            params=params,
            metadata=metadata,
            versions={},
            device="CPU",
            **others,
        )

    def draw() -> None:
        batch.start()
        with tools.turns.turn():
            batch.draw(model, PreviewMap(), record)

    failed = attempt(draw)
    ours.close()
    theirs.close()
    return [answers.get(member.job, failed) for member in members], batch.phase


def part(model: Any, path: str) -> Any:
    module = model.pipeline
    for name in path.split("."):
        module = getattr(module, name)
    return module


@contextmanager
def at_each_call(module: Any, action: Any) -> Iterator[None]:
    handle = module.register_forward_hook(action)
    yield
    handle.remove()


@pytest.mark.parametrize("placement", [RESIDENT, LOW, Placement(staged=(DENOISER,))])
@pytest.mark.parametrize("phase", STAGES)
def test_out_of_memory_is_said_with_its_phase_and_leaves_all_as_it_was(
    worker: Any, folder: Path, phase: str, placement: Placement
) -> None:
    import torch

    from workshop_gpu.worker.embeddings import Embeddings
    from workshop_gpu.worker.failures import OutOfMemory, Success

    model = load(worker, folder, placement)
    (first, _), before_bytes = run(worker, model), worker.resident_bytes
    model.embeddings = Embeddings()  # as for another prompt: the encoders have to come

    def no_room(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    with at_each_call(part(model, STAGES[phase]), no_room):
        outcome, reached = run(worker, model)
    assert (outcome, reached) == (OutOfMemory(2 * 2**30), phase)
    assert worker.resident_bytes == before_bytes
    assert isinstance(first, Success)
    lower = load(worker, folder, LOW)
    again, _ = run(worker, lower)
    assert isinstance(again, Success)
    (one,), (other,) = first.value.files, again.value.files
    assert one.result() == other.result(), "one rung down it is the same picture"


def test_a_vae_that_fails_in_half_precision_decodes_once_more_in_float32(
    worker: Any, folder: Path
) -> None:
    import torch

    from workshop_gpu.worker.failures import Success

    model = worker.load(source(folder, dtype="bfloat16"), lambda *_: None, RESIDENT)
    dtypes = []

    def overflows(module: Any, args: Any, output: Any) -> Any:
        dtypes.append(output.dtype)
        return output if output.dtype == torch.float32 else output * torch.nan

    with at_each_call(model.pipeline.vae.decoder, overflows):
        outcome, _ = run(worker, model)
    assert isinstance(outcome, Success)
    assert dtypes[0] == torch.bfloat16
    assert set(dtypes[1:]) == {torch.float32}
    assert len(dtypes) > 2, "tile by tile"
    for component in model.components:
        component.mend()
    assert model.pipeline.vae.dtype == torch.bfloat16
    assert not model.pipeline.vae.use_tiling


def test_the_jobs_next_picture_is_decoded_as_the_first_one_was_to_be(
    worker: Any, folder: Path
) -> None:
    import msgspec
    import torch

    from workshop_gpu.worker.failures import Success

    model = worker.load(source(folder, dtype="bfloat16"), lambda *_: None, RESIDENT)
    dtypes = []

    def overflows(module: Any, args: Any, output: Any) -> Any:
        dtypes.append(output.dtype)
        return output if output.dtype == torch.float32 else output * torch.nan

    with at_each_call(model.pipeline.vae.decoder, overflows):
        outcome, _ = run(worker, model, msgspec.structs.replace(WANTED, images=2))
    assert isinstance(outcome, Success)
    assert len(outcome.value.files) == 2
    assert dtypes.count(torch.bfloat16) == 2, "each is tried in the model's own numbers"


def test_a_neighbour_whose_vae_failed_changes_no_picture_and_each_is_repeated_from_its_record(
    worker: Any, folder: Path
) -> None:
    import msgspec
    import torch

    from workshop_gpu.worker.images import read_record

    model = worker.load(source(folder, dtype="bfloat16"), lambda *_: None, RESIDENT)
    other = msgspec.structs.replace(WANTED, seed=WANTED.seed + 7, prompt="another")

    def fails_for_the_second(module: Any, args: Any, output: Any) -> Any:
        if output.dtype == torch.float32 or len(output) < 2:
            return output
        return torch.stack([output[0], output[1] * torch.nan])

    def drawn(*wanted: Any) -> list[bytes]:
        outcomes, _ = run_together(worker, model, *wanted)
        return [outcome.value.files[0].result() for outcome in outcomes]

    alone, _ = drawn(WANTED, other)
    with at_each_call(model.pipeline.vae.decoder, fails_for_the_second):
        beside, mended = drawn(WANTED, other)
        assert beside == alone, "the neighbour's failure is not its own"
        for picture in (beside, mended):
            assert drawn(read_record(picture).params) == [picture]


@pytest.mark.parametrize("colour", [np.nan, 0.25])
def test_a_picture_that_stays_blank_is_a_failure_and_never_a_success(
    worker: Any, folder: Path, colour: float
) -> None:
    model = load(worker, folder, RESIDENT)
    calls = []

    def blank(module: Any, args: Any, output: Any) -> Any:
        calls.append(output)
        return output * 0 + colour

    with at_each_call(model.pipeline.vae.decoder, blank):
        outcome, _ = run(worker, model)
    assert outcome.kind == "generation_failed"
    assert ("blank" in outcome.message) == (colour == 0.25)
    assert len(calls) > 1, "it was tried again"
