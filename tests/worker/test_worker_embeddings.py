"""A prompt that was read before costs no text encoder where they have to come for it, and changes
no bit of the picture."""

import io
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image

from tests.worker import test_worker_placements as on_rungs
from tests.worker.bare_pipelines import same_pixels
from tests.worker.fake_pool import FakePool
from tests.worker.opening import loader
from tests.worker.small_loras import bare_picture_with, save_lora
from tests.worker.test_worker_healing import run
from tests.worker.test_worker_placements import ALL, WANTED, drawn_as, hooks, load
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, RESIDENT, VAE, Placement
from workshop_gpu.worker.protocol import GenerateParams

pytestmark = pytest.mark.usefixtures("quiet_libraries")

folder = on_rungs.folder

AWAY = {
    "staged": Placement(staged=(ENCODERS,)),
    "streamed": Placement(staged=(VAE,), streamed=(ENCODERS,)),
    "with the denoiser streamed": Placement(staged=(ENCODERS, VAE), streamed_bytes=ALL),
    "everything staged": Placement(staged=(ENCODERS, DENOISER, VAE)),
    "on the CPU": Placement(on_cpu=(ENCODERS,)),
}


@pytest.fixture
def worker() -> Iterator[Any]:
    pool = FakePool()
    yield loader(pool)
    pool.close()


class Encoders:
    """Counts the calls of a model's text encoders, and how often one comes to the device."""

    def __init__(self, worker: Any, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = self.visits = 0
        bring = worker.stager.bring

        def brought(component: Any, phase: str) -> None:
            self.visits += component in model.with_role(ENCODERS)
            bring(component, phase)

        monkeypatch.setattr(worker.stager, "bring", brought)
        for component in model.with_role(ENCODERS):
            component.module.register_forward_pre_hook(self._called)

    def _called(self, *_: object) -> None:
        self.calls += 1

    @property
    def idle(self) -> bool:
        """Whether they had nothing to do since the last question."""
        idle = not (self.calls or self.visits)
        self.calls = self.visits = 0
        return idle


def drawn(worker: Any, model: Any, wanted: GenerateParams = WANTED) -> Any:
    return drawn_as(worker, model, wanted, embeddings=model.embeddings)


def other(**changes: Any) -> GenerateParams:
    return msgspec.structs.replace(WANTED, **changes)


@pytest.mark.parametrize("way", AWAY)
def test_a_prompt_that_was_read_is_not_read_again_and_the_picture_is_the_same(
    folder: Path, worker: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    again, larger = other(seed=WANTED.seed + 1), other(steps=WANTED.steps + 1)
    bare = load(worker, folder)
    expected = [drawn_as(worker, bare, each) for each in (WANTED, again, larger)]
    if way == "on the CPU":  # which rounds in its own way
        model = load(worker, folder, AWAY[way])
        expected = [drawn_as(worker, model, each) for each in (WANTED, again, larger)]
    model = load(worker, folder, AWAY[way])
    own = hooks(model)
    encoders = Encoders(worker, model, monkeypatch)
    found = drawn(worker, model)
    assert not encoders.idle
    assert np.array_equal(found, expected[0])
    for wanted, picture in zip((again, WANTED, larger), (1, 0, 2), strict=True):
        assert np.array_equal(drawn(worker, model, wanted), expected[picture])
        assert encoders.idle
    assert hooks(model) == own + len(model.with_role(ENCODERS)), "the counter's alone"


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": "a blue square"},
        {"negative_prompt": "a blue square"},
        {"guidance": 1.0},
    ],
    ids=["another prompt", "another negative prompt", "no guidance"],
)
@pytest.mark.parametrize("folder", ["sd1", "sd3"], indirect=True)
def test_what_is_asked_for_the_first_time_is_read(
    folder: Path, worker: Any, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = drawn_as(worker, load(worker, folder), other(**changes))
    model = load(worker, folder, AWAY["staged"])
    drawn(worker, model)
    encoders = Encoders(worker, model, monkeypatch)
    assert np.array_equal(drawn(worker, model, other(**changes)), expected)
    assert not encoders.idle
    assert np.array_equal(drawn(worker, model, other(**changes)), expected)
    assert encoders.idle
    drawn(worker, model)
    assert encoders.idle, "the first is known still"


@pytest.mark.parametrize("folder", ["sd3"], indirect=True)
def test_where_encoders_stay_on_the_device_nothing_is_kept(folder: Path, worker: Any) -> None:
    model = load(worker, folder, RESIDENT)
    drawn(worker, model)
    assert model.embeddings.size_bytes == 0


@pytest.mark.parametrize("folder", ["sd3"], indirect=True)
def test_a_model_that_leaves_keeps_no_prompts(folder: Path, worker: Any) -> None:
    model = load(worker, folder, AWAY["staged"])
    assert worker.embeddings_bytes == 0
    drawn(worker, model)
    assert worker.embeddings_bytes == model.embeddings.size_bytes > 0
    worker.evict("small")
    assert (worker.embeddings_bytes, model.embeddings.size_bytes) == (0, 0)


@pytest.mark.parametrize("folder", ["sd3"], indirect=True)
def test_a_prompt_that_was_pushed_out_is_read_again(
    folder: Path, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workshop_gpu.worker.embeddings import Embeddings

    model = load(worker, folder, AWAY["staged"])
    expected = drawn(worker, model)
    model.embeddings = Embeddings(model.embeddings.size_bytes)
    encoders = Encoders(worker, model, monkeypatch)
    drawn(worker, model)
    assert not encoders.idle
    drawn(worker, model, other(prompt="a blue square"))
    assert not encoders.idle
    assert np.array_equal(drawn(worker, model), expected)
    assert not encoders.idle


@pytest.mark.parametrize("folder", ["sd3"], indirect=True)
def test_a_call_that_fails_keeps_nothing(folder: Path, worker: Any) -> None:
    from workshop_gpu.worker.course import Course
    from workshop_gpu.worker.drawing import draw

    model = load(worker, folder, AWAY["staged"])

    def broken(step: Any) -> None:
        raise RuntimeError("amid the steps")

    course = Course(model, worker.stager, embeddings=model.embeddings)
    with pytest.raises(RuntimeError, match="amid"):
        draw(model, [WANTED], broken, course)
    assert model.embeddings.size_bytes == 0
    assert course.encoded


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("folder", ["sd3"], indirect=True)
def test_nothing_of_a_course_is_held_until_python_looks_for_cycles(
    folder: Path, worker: Any
) -> None:
    from workshop_gpu.worker.course import Course
    from workshop_gpu.worker.drawing import draw

    model = load(worker, folder, AWAY["staged"])
    for _ in range(2):
        course = Course(model, worker.stager, embeddings=model.embeddings)
        draw(model, [WANTED], lambda step: None, course)
        gone = weakref.ref(course)
        del course
        assert gone() is None


def test_only_what_says_all_of_itself_makes_a_key() -> None:
    import torch

    from workshop_gpu.worker.embeddings import key_of

    told = {"prompt": ["a", "b"], "device": torch.device("cpu"), "scale": 1.0, "clip_skip": None}
    assert key_of(told) == key_of(dict(told)) != ""
    assert key_of({**told, "prompt": ["a,b"]}) != key_of(told)
    assert key_of({**told, "prompt": "a"}) != key_of({**told, "prompt": ["a"]})
    assert key_of(1) != key_of(1.0) != key_of(True)
    assert key_of({**told, "image": torch.zeros(1)}) == ""
    assert key_of({**told, "image": object()}) == ""


def test_only_tensors_that_come_back_as_they_were_are_kept() -> None:
    import torch

    from workshop_gpu.worker.embeddings import copied

    row = torch.arange(6.0).reshape(2, 3)
    assert copied((row, None, [row])) is not None
    assert copied((row.T, None)) is None, "another order in memory"
    assert copied((row, object())) is None


@pytest.mark.parametrize("folder", ["sd3"], indirect=True)
def test_in_another_placement_a_prompt_is_read_again(
    folder: Path, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a card the numbers differ in their last bits from those of a CPU."""
    model = load(worker, folder, AWAY["staged"])
    encoders = Encoders(worker, model, monkeypatch)
    for way in ("staged", "on the CPU", "streamed", "staged"):
        assert load(worker, folder, AWAY[way]) is model
        drawn(worker, model)
        assert not encoders.idle, way
        drawn(worker, model)
        assert encoders.idle, way


def test_whoever_writes_to_what_was_read_changes_it_for_nobody_else() -> None:
    import torch

    from workshop_gpu.worker.embeddings import Embeddings, Reading

    kept = Embeddings()
    for _ in range(3):
        reading = Reading(kept)
        found = reading.read(lambda: (torch.ones(2), None), ("a",), {})
        assert found[0].tolist() == [1.0, 1.0]
        assert found[1] is None
        found[0].zero_()
        reading.end(well=True)


def test_an_encoder_that_somebody_else_calls_has_to_come_again() -> None:
    import torch

    from workshop_gpu.worker.embeddings import Embeddings, Reading

    kept = Embeddings()
    for elsewhere in (False, True):
        reading = Reading(kept)
        reading.of({"prompt": str(elsewhere)})
        reading.read(lambda: torch.ones(2), (str(elsewhere),), {})
        if elsewhere:  # as for the picture that it begins with
            reading.encoder_is_called()
        reading.end(well=True)
        reading = Reading(kept)
        reading.of({"prompt": str(elsewhere)})
        assert reading.is_known is not elsewhere


def images_of(drawn: Any) -> list[Image.Image]:
    return [Image.open(io.BytesIO(file.result())) for file in drawn.files]


def done(worker: Any, model: Any, wanted: GenerateParams, **loras: Any) -> Any:
    """A job as the engine runs it."""
    from workshop_gpu.worker.failures import Success

    outcome, _ = run(worker, model, wanted, **loras)
    assert isinstance(outcome, Success), outcome
    return outcome.value


@pytest.mark.parametrize("folder", ["sd1"], indirect=True)
def test_a_lora_of_the_encoders_reads_the_prompt_anew(
    folder: Path, worker: Any, tmp_path: Path
) -> None:
    from workshop_gpu.worker.loras import Loras

    lora, loras = save_lora(folder, tmp_path / "one.safetensors"), Loras()
    with_lora = other(loras={"one": 0.8})
    expected = bare_picture_with(folder, with_lora, {lora: 0.8})
    model = load(worker, folder, AWAY["staged"])
    (first,) = images_of(done(worker, model, WANTED, loras=loras))
    assert not same_pixels(first, expected)
    for _ in range(2):
        files = {"one": str(lora)}
        drawn = done(worker, model, with_lora, loras=loras, lora_files=files)
        assert drawn.encoded
        assert same_pixels(*images_of(drawn), expected)
        drawn = done(worker, model, WANTED, loras=loras)
        assert not drawn.encoded
        assert same_pixels(*images_of(drawn), first)


@pytest.mark.parametrize("folder", ["sd3"], indirect=True)
def test_a_jobs_further_pictures_read_nothing_and_its_seconds_say_so(
    folder: Path, worker: Any
) -> None:
    """What it took besides its steps is another time what it takes with the encoders."""
    model = load(worker, folder, AWAY["staged"])
    three = done(worker, model, other(images=3))
    assert not three.encoded
    assert done(worker, model, other(prompt="a blue square")).encoded
    last = done(worker, model, other(seed=WANTED.seed + 2))
    assert not last.encoded
    assert same_pixels(*images_of(last), images_of(three)[2])
