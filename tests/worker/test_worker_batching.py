"""Several jobs in one call: each has its own picture, its own answer and its own way to stop."""

import io
from collections.abc import Iterator

import numpy as np
import pytest
from msgspec.structs import replace
from PIL import Image

from tests.worker.bare_pipelines import same_pixels
from tests.worker.worker_host import FIRST_CARD, START_S, Host, params, source_of
from workshop_gpu.conductor.rungs import Placement
from workshop_gpu.worker import protocol
from workshop_gpu.worker.images import read_record
from workshop_gpu.worker.protocol import BatchMember, GenerateParams

RED = params(steps=3)
BLUE = params(prompt="a blue star on a white background", seed=8, steps=3)
GREEN = params(prompt="three green squares", seed=2**40, steps=3)


@pytest.fixture(scope="module")
def loaded(worker: Host) -> Iterator[Host]:
    models = ("shapes", "shapes-dit")
    for model in models:
        worker.load(model)
    yield worker
    for model in models:
        worker.ask(protocol.Evict(model), protocol.Evicted)


def order(model: str, *wanted: GenerateParams) -> protocol.Run:
    """One batch; its jobs are called 0, 1, 2, …"""
    members = [BatchMember(str(number), each) for number, each in enumerate(wanted)]
    return protocol.Run("0", model, wanted[0], others=tuple(members[1:]))


def answers(host: Host, count: int) -> dict[str, protocol.FromWorker]:
    """The jobs' answers by job, whatever they are."""
    found: dict[str, protocol.FromWorker] = {}
    while len(found) < count:
        report = host.receive()
        if isinstance(report, protocol.Done | protocol.Failed | protocol.Stopped):
            assert report.job not in found
            found[report.job] = report
    return found


def together(host: Host, model: str, *wanted: GenerateParams) -> list[bytes]:
    """The first image of each job, drawn in one batch."""
    host.send(order(model, *wanted))
    found = answers(host, len(wanted))
    images = []
    for number in range(len(wanted)):
        done = found[str(number)]
        assert isinstance(done, protocol.Done)
        assert done.drawn.batch == len(wanted)
        images.append(done.images[0])
    return images


def alone(host: Host, model: str, wanted: GenerateParams) -> bytes:
    return host.ask(protocol.Run("alone", model, wanted), protocol.Done).images[0]


def picture(png: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(png))
    image.load()
    return image


def difference(one: bytes, other: bytes) -> int:
    """The largest of any pixel, in 255ths."""
    pixels = [np.asarray(picture(png)).astype(int) for png in (one, other)]
    return int(np.abs(pixels[0] - pixels[1]).max())


@pytest.mark.parametrize("model", ["shapes", "shapes-dit"])
def test_each_gets_the_picture_that_it_would_get_alone_but_for_rounding(
    loaded: Host, model: str
) -> None:
    drawn = together(loaded, model, RED, BLUE, GREEN)
    for png, wanted in zip(drawn, (RED, BLUE, GREEN), strict=True):
        assert difference(png, alone(loaded, model, wanted)) <= 1
    assert difference(drawn[0], drawn[1]) > 100


@pytest.mark.parametrize("model", ["shapes", "shapes-dit"])
def test_a_picture_of_a_batch_is_made_again_bit_for_bit_from_its_record_alone(
    loaded: Host, model: str
) -> None:
    for place, png in enumerate(together(loaded, model, RED, BLUE, GREEN)):
        record = read_record(png)
        assert (record.params.batch, record.params.place) == (3, place)
        again = alone(loaded, model, record.params)
        assert same_pixels(picture(again), picture(png))
        assert read_record(again).params == record.params


def test_a_picture_does_not_depend_on_what_its_neighbours_ask_for(loaded: Host) -> None:
    first = together(loaded, "shapes", RED, BLUE)[0]
    other = together(loaded, "shapes", RED, GREEN)[0]
    assert same_pixels(picture(first), picture(other))


def test_a_record_tells_nothing_of_the_neighbours(loaded: Host) -> None:
    png = together(loaded, "shapes", RED, params(prompt="a secret", steps=3))[0]
    assert b"secret" not in png
    assert "Batch size: 2, Batch pos: 0" in picture(png).info["parameters"]


def test_every_job_starts_and_counts_its_own_steps(loaded: Host) -> None:
    loaded.send(order("shapes", RED, BLUE))
    reports: list[protocol.FromWorker] = []
    while sum(isinstance(report, protocol.Done) for report in reports) < 2:
        reports.append(loaded.receive())
    assert reports[:2] == [protocol.Started("0"), protocol.Started("1")]
    assert [r.job for r in reports if isinstance(r, protocol.Done)] == ["0", "1"]
    for job in ("0", "1"):
        steps = [
            (report.step, report.steps)
            for report in reports
            if isinstance(report, protocol.Progress) and report.job == job
        ]
        assert steps[0] == (1, 3)
        assert steps[-1] == (3, 3)
        assert steps == sorted(steps)


def test_jobs_with_more_images_go_on_when_the_others_have_theirs(loaded: Host) -> None:
    three = params(steps=2, images=3, seed=20)
    loaded.send(order("shapes", three, params(steps=2)))
    found = answers(loaded, 2)
    many, one = found["0"], found["1"]
    assert isinstance(many, protocol.Done)
    assert isinstance(one, protocol.Done)
    assert (len(many.images), len(one.images)) == (3, 1)
    records = [read_record(png).params for png in many.images]
    assert [(made.seed, made.batch) for made in records] == [(20, 2), (21, 1), (22, 1)]
    assert same_pixels(picture(many.images[2]), picture(alone(loaded, "shapes", records[2])))


def test_a_cancelled_job_is_answered_within_a_step_and_the_others_get_their_pictures(
    loaded: Host,
) -> None:
    expected = together(loaded, "shapes", params(steps=25), params(steps=25, seed=8))[1]
    loaded.send(order("shapes", params(steps=25), params(steps=25, seed=8)))
    loaded.expect(protocol.Started)
    loaded.expect(protocol.Started)
    loaded.expect(protocol.Progress)
    loaded.send(protocol.Cancel("0"))
    stopped, before = loaded.collect(protocol.Stopped)
    assert stopped.job == "0"
    assert len(before) < 25
    done, rest = loaded.collect(protocol.Done)
    assert done.job == "1"
    assert same_pixels(picture(done.images[0]), picture(expected))
    assert all(report.job == "1" for report in rest if isinstance(report, protocol.Progress))


def test_a_batch_whose_jobs_are_all_cancelled_stops_within_a_step(loaded: Host) -> None:
    forever = params(steps=900)
    loaded.send(order("shapes", forever, forever))
    for _ in range(3):
        loaded.receive()
    loaded.send(protocol.Cancel("1"), protocol.Cancel("0"))
    assert {type(answer) for answer in answers(loaded, 2).values()} == {protocol.Stopped}
    alone(loaded, "shapes", RED)


def test_a_job_cancelled_before_its_batch_begins_never_starts(loaded: Host) -> None:
    loaded.send(protocol.Run("before", "shapes", params(steps=900)), order("shapes", RED, BLUE))
    loaded.send(protocol.Cancel("1"), protocol.Cancel("before"))
    found = answers(loaded, 3)
    assert isinstance(found["1"], protocol.Stopped)
    done = found["0"]
    assert isinstance(done, protocol.Done)
    assert done.drawn.batch == 1
    assert same_pixels(picture(done.images[0]), picture(alone(loaded, "shapes", RED)))


def test_a_job_that_cannot_be_drawn_fails_without_its_neighbours(loaded: Host) -> None:
    loaded.send(order("shapes", RED, params(steps=3, seed=-1), BLUE))
    found = answers(loaded, 3)
    failed = found["1"]
    assert isinstance(failed, protocol.Failed)
    assert failed.error.facts["field"] == "seed"
    assert isinstance(found["0"], protocol.Done)
    assert isinstance(found["2"], protocol.Done)


def test_what_breaks_the_call_is_told_to_every_job_of_it(loaded: Host) -> None:
    loaded.send(order("shapes", params(width=7), params(width=7, seed=1)))
    for failed in answers(loaded, 2).values():
        assert isinstance(failed, protocol.Failed)
        assert "divisible by 8" in failed.error.message
    alone(loaded, "shapes", RED)


def test_jobs_that_one_call_cannot_draw_are_drawn_one_call_after_the_other(loaded: Host) -> None:
    wanted = (RED, params(steps=3, negative_prompt="a star"), params(steps=2), BLUE)
    loaded.send(order("shapes", *wanted))
    found = answers(loaded, 4)
    batches = {
        job: done.drawn.batch for job, done in found.items() if isinstance(done, protocol.Done)
    }
    assert batches == {"0": 2, "1": 1, "2": 1, "3": 2}
    last = found["1"]
    assert isinstance(last, protocol.Done)
    assert same_pixels(picture(last.images[0]), picture(alone(loaded, "shapes", wanted[1])))


def test_a_job_that_is_measured_step_by_step_is_drawn_alone_and_its_record_tells(
    loaded: Host,
) -> None:
    measured = replace(RED, profile=True, images=2)
    load_streamed = protocol.Load(source_of("shapes-dit"), Placement(streamed_bytes=10**12))
    loaded.ask(load_streamed, protocol.Loaded)
    loaded.send(order("shapes-dit", BLUE, measured, RED))
    found = answers(loaded, 3)
    profiles = {}
    for job, done in found.items():
        assert isinstance(done, protocol.Done)
        profiles[job] = (done.drawn.batch, [read_record(png).profile for png in done.images])
    assert (profiles["0"], profiles["2"]) == ((2, [()]), (2, [()]))
    batch, each = profiles["1"]
    assert batch == 1
    for steps in each:
        assert len(steps) == RED.steps, "of this picture alone"
        assert all(step.copy_s > 0 and step.compute_s > 0 for step in steps)
    measured_png = alone(loaded, "shapes-dit", measured)
    assert same_pixels(picture(measured_png), picture(alone(loaded, "shapes-dit", RED)))
    loaded.ask(protocol.Load(source_of("shapes-dit")), protocol.Loaded)


def test_a_pipeline_that_pads_to_the_longest_prompt_draws_every_job_in_its_own_call() -> None:
    from workshop_gpu.worker.batch import divided

    class QwenImagePipeline:
        """By its name alone: what it pads to is not known from outside."""

    members = [BatchMember("a", RED), BatchMember("b", BLUE)]
    assert divided(members, QwenImagePipeline()) == [[members[0]], [members[1]]]


@pytest.mark.gpu
@pytest.mark.parametrize("model", ["shapes", "shapes-dit"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_on_a_card_too_only_the_number_and_the_place_matter(model: str, dtype: str) -> None:
    if not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("this machine has no CUDA card")
    card = Host("--device", "cuda", CUDA_VISIBLE_DEVICES=FIRST_CARD)
    card.expect(protocol.Ready, START_S)
    card.load(model, dtype=dtype)
    drawn = together(card, model, RED, BLUE, GREEN)
    assert same_pixels(picture(together(card, model, RED, GREEN, BLUE)[0]), picture(drawn[0]))
    for png in drawn:
        again = alone(card, model, read_record(png).params)
        assert same_pixels(picture(again), picture(png))
    card.close()
