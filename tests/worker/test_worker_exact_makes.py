"""Two denoisers of a video model and a causal language model through the worker's loader: bit for
bit the bare library's numbers, whatever happened to the model before.

No worker draws with these makes yet, so they are called as the library calls them, inside the
course of a job. The device is the CPU, which pretends to have VRAM.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.fake_pool import FakePool
from tests.worker.opening import loader, source
from tests.worker.small_pipelines import tokenizer
from tests.worker.test_worker_placements import EXACT, hooks
from tests.worker.test_worker_streamed_models import (
    gemma,
    llama,
    moving_latents,
    video_pipeline,
    written,
)
from workshop_gpu.conductor.rungs import RESIDENT

pytestmark = pytest.mark.usefixtures("quiet_libraries")

ROUNDS = 50
LANGUAGE_MODELS = {"llama": llama, "gemma": gemma}
PLACEMENTS = {"resident": RESIDENT, **EXACT}

Numbers = tuple[Any, Any, Any]
"""A video's latents, a text's tokens and their logits."""


@pytest.fixture(autouse=True)
def _videos_are_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workshop_gpu.worker.pipelines._check_text_to_image", lambda found: None)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Video pipelines, each with another language model in the text encoder's place."""
    import torch

    home = tmp_path_factory.mktemp("makes")
    for number, (name, make) in enumerate(LANGUAGE_MODELS.items()):
        pipeline = video_pipeline()
        torch.manual_seed(20 + number)
        pipeline.register_modules(text_encoder=make().eval(), tokenizer=tokenizer())
        with torch.no_grad():
            for parameter in pipeline.transformer.parameters():
                parameter.add_(0.01 * number)  # each its own
        pipeline.save_pretrained(home / name)
    return {name: home / name for name in LANGUAGE_MODELS}


@pytest.fixture(scope="module")
def expected(folders: dict[str, Path]) -> dict[str, Numbers]:
    """What the library's own loader opens says."""
    import diffusers

    found = {}
    for name, folder in folders.items():
        bare = diffusers.DiffusionPipeline.from_pretrained(str(folder), local_files_only=True)
        found[name] = (moving_latents(bare), *written(bare.text_encoder))
    one, other = found.values()
    assert not any(map(_same, one, other))
    return found


@pytest.fixture(params=[True, False], ids=["pooled", "no pool"])
def pool(request: pytest.FixtureRequest) -> Iterator[FakePool]:
    pool = FakePool(room=10**9 if request.param else 0)
    yield pool
    pool.close()


def load(worker: Any, folders: dict[str, Path], name: str, way: str = "resident") -> Any:
    return worker.load(source(folders[name], name), lambda *_: None, PLACEMENTS[way])


def said(worker: Any, model: Any) -> Numbers:
    """In the course of a job: the language model reads, then the denoisers run."""
    from workshop_gpu.worker.course import Course

    with Course(model, worker.stager):
        text = written(model.pipeline.text_encoder)
        return (moving_latents(model.pipeline), *text)


def _same(one: Any, other: Any) -> bool:
    import torch

    return torch.equal(one, other)


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_loaded_evicted_and_loaded_again_it_says_what_the_bare_library_says(
    folders: dict[str, Path], expected: dict[str, Numbers], pool: FakePool, name: str
) -> None:
    worker = loader(pool)
    for way in PLACEMENTS:
        for _ in range(2):
            model = load(worker, folders, name, way)
            own = hooks(model)
            assert all(map(_same, said(worker, model), expected[name])), way
            assert hooks(model) == own, way
            assert worker.evict(name) == model.weights_bytes, way
            assert worker.resident_bytes == 0, way


def test_fifty_random_rounds_change_no_number_and_leave_nothing_on_the_device(
    folders: dict[str, Path], expected: dict[str, Numbers], pool: FakePool
) -> None:
    chance = random.Random(7)
    worker = loader(pool)
    resident: dict[str, Any] = {}
    for number in range(ROUNDS):
        name, way = chance.choice(sorted(folders)), chance.choice(sorted(PLACEMENTS))
        if name in resident and chance.random() < 0.5:
            worker.evict(name)
            del resident[name]
        else:  # from the files, from the pool, or in place from another placement
            resident[name] = load(worker, folders, name, way)
            if chance.random() < 0.5:
                there = said(worker, resident[name])
                assert all(map(_same, there, expected[name])), (number, name, way)
        whole_bytes = sum(model.weights_bytes for model in resident.values())
        shared = len(resident) == 2  # the VAE and one of the denoisers are the same in both
        there_bytes = worker.resident_bytes
        assert there_bytes == whole_bytes or (shared and there_bytes < whole_bytes), number
    for name, model in resident.items():
        assert all(map(_same, said(worker, model), expected[name])), name
        worker.evict(name)
    assert worker.resident_bytes == 0
