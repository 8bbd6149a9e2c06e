"""Pictures from a real worker: the bare pipeline's, bit for bit, with their story inside."""

import io
from collections.abc import Iterator

import msgspec
import pytest
from PIL import Image

from tests.worker.bare_pipelines import bare_picture, bare_pipeline, same_pixels
from tests.worker.worker_host import MODELS, Host, params, source_of
from workshop_gpu.worker import protocol
from workshop_gpu.worker.images import ImageRecord, read_record


@pytest.fixture(scope="module")
def loaded(worker: Host) -> Iterator[Host]:
    for model in MODELS:
        worker.load(model)
    yield worker
    for model in MODELS:
        worker.ask(protocol.Evict(model), protocol.Evicted)


def picture(png: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(png))
    image.load()
    return image


def run(host: Host, job: str, model: str, wanted: protocol.GenerateParams) -> protocol.Done:
    return host.ask(protocol.Run(job, model, wanted), protocol.Done)


@pytest.mark.usefixtures("quiet_libraries")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "wanted",
    [
        params(),
        params(negative_prompt="a yellow star", guidance=4.5, seed=2**40),
        params(guidance=1.0, steps=3),
        params(width=64, height=96, seed=0),
    ],
    ids=["plain", "negative", "without guidance", "another size"],
)
def test_a_picture_equals_the_bare_pipelines_bit_for_bit(
    loaded: Host, model: str, wanted: protocol.GenerateParams
) -> None:
    done = run(loaded, "equal", model, wanted)
    assert same_pixels(picture(done.images[0]), bare_picture(bare_pipeline(model), wanted))


@pytest.mark.usefixtures("quiet_libraries")
@pytest.mark.parametrize("steps", [1, 8])
def test_flow_matching_takes_more_or_fewer_steps_than_it_was_made_for(
    loaded: Host, steps: int
) -> None:
    wanted = params(steps=steps, guidance=1.0)
    done = run(loaded, "other steps", "shapes-dit-turbo", wanted)
    bare = bare_picture(bare_pipeline("shapes-dit-turbo"), wanted)
    assert same_pixels(picture(done.images[0]), bare)


@pytest.mark.usefixtures("quiet_libraries")
def test_a_prompt_longer_than_the_tokenizer_is_cut_as_the_bare_pipeline_cuts_it(
    loaded: Host,
) -> None:
    wanted = params(prompt="a red circle " * 400)
    done = run(loaded, "long", "shapes", wanted)
    assert same_pixels(picture(done.images[0]), bare_picture(bare_pipeline("shapes"), wanted))


def test_three_images_equal_three_jobs_with_the_following_seeds(loaded: Host) -> None:
    together = run(loaded, "three", "shapes", params(images=3, seed=40))
    alone = [run(loaded, f"one {i}", "shapes", params(seed=40 + i)) for i in range(3)]
    assert together.images == [done.images[0] for done in alone]
    assert len({picture(png).tobytes() for png in together.images}) == 3


def test_the_same_job_after_others_gives_the_same_file(loaded: Host) -> None:
    first = run(loaded, "first", "shapes-dit", params())
    run(loaded, "between", "shapes-dit", params(guidance=7.0, steps=6, seed=1))
    run(loaded, "elsewhere", "shapes", params())
    assert run(loaded, "again", "shapes-dit", params()).images == first.images


def test_a_picture_carries_all_it_takes_to_make_it_again(loaded: Host) -> None:
    wanted = params(prompt="ein blauer Stern ★ \u0000", images=2, seed=9)
    run_order = protocol.Run("story", "shapes", wanted, {"participant": "Zoë", "job": "story"})
    done = loaded.ask(run_order, protocol.Done)
    record = read_record(done.images[1])
    assert record.model == "shapes"
    assert record.params == msgspec.structs.replace(
        wanted, seed=10, images=1, manner="exact", compiled=False
    )
    assert record.metadata == {"participant": "Zoë", "job": "story"}
    assert set(record.versions) >= {"torch", "diffusers"}
    assert record.device == "CPU"
    again = run(loaded, "again", record.model, record.params)
    assert same_pixels(picture(again.images[0]), picture(done.images[1]))


def test_a_picture_says_to_other_programs_how_it_was_made(loaded: Host) -> None:
    done = run(loaded, "readable", "shapes", params(negative_prompt="green"))
    text = picture(done.images[0]).info["parameters"]
    assert text.startswith("a red circle on a blue background\nNegative prompt: green\nSteps: 4")
    assert "Seed: 7" in text


def test_steps_are_counted_over_the_whole_job(loaded: Host) -> None:
    loaded.send(protocol.Run("counted", "shapes", params(images=2, steps=3)))
    done, before = loaded.collect(protocol.Done)
    assert before[0] == protocol.Started("counted")
    progress = [report for report in before if isinstance(report, protocol.Progress)]
    told = [p.step for p in progress]
    # Steps that follow each other closely are told together.
    assert told == sorted(set(told))
    assert (told[0], told[-1]) == (1, 6)
    assert all(p.steps == 6 and p.image == (p.step - 1) // 3 for p in progress)
    assert 0 < done.drawn.steps_s < done.drawn.seconds_s


def test_a_long_job_shows_small_previews_as_it_forms(loaded: Host) -> None:
    loaded.send(protocol.Run("seen", "shapes-dit", params(steps=40)))
    _, before = loaded.collect(protocol.Done)
    previews = [r.preview for r in before if isinstance(r, protocol.Progress) and r.preview]
    assert previews
    for preview in previews:
        image = picture(preview)
        assert (image.format, image.size) == ("JPEG", (128, 128))


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (params(steps=10**9), "steps"),
        (params(steps=0), "steps"),
        (params(seed=-1), "seed"),
        (params(seed=2**64 - 1, images=2), "seed"),
        (params(images=0), "images"),
    ],
)
def test_what_the_pipeline_cannot_do_is_refused_with_the_field(
    loaded: Host, wanted: protocol.GenerateParams, field: str
) -> None:
    failed = loaded.ask(protocol.Run("refused", "shapes", wanted), protocol.Failed)
    assert failed.error.kind == "invalid_request"
    assert failed.error.facts["field"] == field
    run(loaded, "next", "shapes", params())


def test_the_pipelines_own_refusal_becomes_a_failed_job(loaded: Host) -> None:
    failed = loaded.ask(protocol.Run("odd", "shapes", params(width=7)), protocol.Failed)
    assert failed.error.kind == "generation_failed"
    assert "divisible by 8" in failed.error.message
    run(loaded, "next", "shapes", params())


def test_a_job_for_a_model_that_is_not_there_fails_alone(loaded: Host) -> None:
    failed = loaded.ask(protocol.Run("lost", "nowhere", params()), protocol.Failed)
    assert failed.error.kind == "generation_failed"
    run(loaded, "next", "shapes", params())


def test_a_record_is_json_that_any_program_reads(loaded: Host) -> None:
    done = run(loaded, "json", "shapes", params())
    text = picture(done.images[0]).info["workshop_gpu"]
    assert msgspec.json.decode(text, type=ImageRecord).params == params(
        manner="exact", compiled=False
    )


def test_a_model_evicted_and_loaded_again_draws_the_same(loaded: Host) -> None:
    first = run(loaded, "before", "shapes", params())
    loaded.ask(protocol.Evict("shapes"), protocol.Evicted)
    loaded.ask(protocol.Load(source_of("shapes")), protocol.Loaded)
    assert run(loaded, "after", "shapes", params()).images == first.images


def test_a_worker_without_a_compiler_draws_without_compiled_blocks(loaded: Host) -> None:
    wanted = protocol.Run("one", "shapes", params(steps=1, compiled=True), compiles=True)
    done = loaded.ask(wanted, protocol.Done)
    assert (done.drawn.compiled, done.drawn.to_compile) == (False, False)
    assert not read_record(done.images[0]).params.compiled
    compiled = loaded.ask(protocol.Compile("shapes"), protocol.Compiled)
    assert compiled == protocol.Compiled("shapes", ready=False)
