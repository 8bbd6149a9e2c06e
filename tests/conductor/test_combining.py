"""Rungs that are put together by hand, a word for each role."""

from itertools import product

import msgspec
import pytest

from tests.conductor.laddered import LARGE, laddered, loaded, notices, ordered, out_of_memory
from tests.conductor.staging import GB, MEGAPIXEL, Stage, stage
from workshop_gpu.conductor import events
from workshop_gpu.conductor.combining import name_of, problems_in, read_name, words_for
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.ladder import (
    RUNGS,
    is_placement,
    rung_named,
    standing_of,
    takes_another_gpu,
)
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.planner import Question, Speeds, plan_for
from workshop_gpu.conductor.planning import Size
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.rungs import (
    DENOISER,
    ENCODERS,
    ROLES,
    SLICED,
    TILED,
    VAE,
    Placement,
    Streams,
)
from workshop_gpu.conductor.working_memory import Activations

COMBINATIONS = [
    combination
    for words in product(*map(words_for, ROLES))
    if not any(problems_in(combination := dict(zip(ROLES, words, strict=True))))
]
BY_HAND = "encoders=cpu,denoiser=streamed,vae=tiled"


def by_hand(placement: str = BY_HAND, **memory: int) -> events.ModelFacts:
    return laddered(memory=MemorySettings(placement, **memory))  # type: ignore[arg-type]


def asked(made: Stage, placement: str = "", manner: str = "") -> events.JobSubmitted:
    job = made.job_submitted("large")
    return msgspec.structs.replace(job, placement=placement, manner=manner)


def test_each_combination_has_a_name_a_rung_and_words_of_its_own() -> None:
    rungs = [rung_named(name_of(each)) for each in COMBINATIONS]
    assert len(COMBINATIONS) > 100
    assert None not in rungs
    assert len({rung.name for rung in rungs if rung}) == len(COMBINATIONS)
    assert len({rung.words for rung in rungs if rung}) == len(COMBINATIONS)
    for combination in COMBINATIONS:
        said = read_name(name_of(combination)) or {}
        assert combination == {role: said.get(role, "resident") for role in ROLES} or (
            name_of(combination) == "resident"
        )


def test_each_rung_of_the_ladder_is_a_combination_and_goes_by_its_own_name() -> None:
    found = {rung.name for each in COMBINATIONS if (rung := rung_named(name_of(each))) in RUNGS}
    assert found == {rung.name for rung in RUNGS}
    assert rung_named("vae=staged,encoders=staged") is rung_named("staged")
    assert rung_named("encoders = swap , denoiser = swap, vae = staged") is rung_named("swap-both")
    assert rung_named("encoders=resident") is rung_named("resident")


def test_each_is_found_again_from_its_placement() -> None:
    none = Activations(0, 1)
    for combination in COMBINATIONS:
        rung = rung_named(name_of(combination))
        assert rung is not None
        source = "gpu1" if rung.swaps else ""
        question = Question(LARGE, 9 * GB, none, 28, Speeds(0.1, 1e10), source=source)
        question = msgspec.structs.replace(question, source_room_bytes=40 * GB if source else 0)
        plan = plan_for(question, rung)
        assert plan is not None
        same = standing_of(plan.placement)
        assert same is not None
        assert (same.placement, same.swaps) == (rung.placement, rung.swaps)
        assert (same.streams is Streams.NOTHING) == (rung.streams is Streams.NOTHING)


def test_what_no_worker_could_do_has_no_name() -> None:
    for name in ("vae=cpu", "denoiser=cpu", "encoders=tiled", "vae=streamed", "vae=swap", "",
                 "encoder=cpu", "encoders=cpu,encoders=staged", "encoders", "vae=tiled+staged",
                 "encoders=swap,denoiser=streamed"):  # fmt: skip
        assert not is_placement(name), name
    assert standing_of(Placement(on_cpu=(VAE,))) is None
    assert takes_another_gpu("encoders=swap,vae=tiled")


def test_a_model_is_placed_as_its_combination_says_and_told_of_in_words() -> None:
    made = stage(by_hand(), gb=14)
    made.submit("large")
    placement = ordered(made)
    assert (placement.on_cpu, placement.staged, placement.tiled) == ((ENCODERS,), (), True)
    assert 0 < placement.streamed_bytes < 16 * GB
    loaded(made)
    made.answer()
    words = "text encoders on the CPU, VAE tiling, the denoiser partly streamed"
    assert made.slot("large").placement == words
    plan = made.conductor.plan("large", Size(MEGAPIXEL, 1, 28), made.now)
    (chosen,) = [rung for rung in plan.rungs if rung.chosen]
    assert (chosen.rung, chosen.words) == (BY_HAND, words)
    assert chosen.why == "chosen: named in models.toml or as default_placement"
    assert [rung.rung for rung in plan.rungs].count(BY_HAND) == 1
    assert plan.placement == words


def test_it_may_be_named_with_a_job_and_by_the_instructor() -> None:
    made = stage(laddered())
    made.tell(asked(made, "denoiser=staged"))
    assert ordered(made) == Placement(staged=(DENOISER,))
    loaded(made)
    made.answer()
    made.tell(events.PolicyChanged(Policy(placements={"large": "encoders=staged,vae=tiled"})))
    made.submit("large")
    assert ordered(made) == Placement(staged=(ENCODERS,), tiled=True)
    refused = made.refused(asked(made, "denoiser=cpu")).message
    assert '"denoiser=cpu" is none of auto, resident' in refused


@pytest.mark.parametrize(
    ("placement", "changed", "said"),
    [
        (BY_HAND, {"roles": LARGE[:2]}, "it has no vae, only encoders and denoiser; leave vae out"),
        (BY_HAND, {"lacks": (TILED,)}, 'its VAE cannot work in tiles; write vae = "staged"'),
        ("denoiser=staged+sliced", {"lacks": (SLICED,)}, 'leave "sliced" out'),
        ("denoiser=all-streamed", {"roles": (LARGE[0],)}, "no repeated blocks"),
        (
            "encoders=streamed",
            {"roles": (msgspec.structs.replace(LARGE[0], blocks_bytes=()), *LARGE[1:])},
            "its text encoders have no repeated blocks",
        ),
        (
            "encoders=cpu",
            {"memory": MemorySettings("encoders=cpu", max_vram_bytes=9 * GB)},
            'placed as "encoders=cpu": at least',
        ),
        (
            "denoiser=streamed,vae=tiled",
            {"memory": MemorySettings("denoiser=streamed,vae=tiled", swap_space_bytes=GB // 10)},
            "do not hold 2 of the largest layers",
        ),
        (
            "encoders=cpu",
            {"memory": MemorySettings("encoders=cpu", virtual_vram_bytes=GB)},
            '"encoders=cpu" streams nothing of the denoiser',
        ),
        (
            "encoders=swap,vae=tiled",
            {"memory": MemorySettings("encoders=swap,vae=tiled", swap_device="gpu7")},
            'there is no "gpu7"',
        ),
    ],
)
def test_what_cannot_be_with_this_model_is_refused(
    placement: str, changed: dict[str, object], said: str
) -> None:
    made = stage(msgspec.structs.replace(by_hand(placement), **changed))
    assert said in made.refused(made.job_submitted("large")).message


def test_settings_of_which_it_makes_no_use_are_told_of() -> None:
    tuned = laddered(memory=MemorySettings(prefetch=3))
    made = stage(tuned)
    made.tell(events.PolicyChanged(Policy(placements={"large": "encoders=cpu,vae=tiled"})))
    (told,) = notices(made)
    assert 'prefetch of large is of no effect: "encoders=cpu,vae=tiled" is named' in told


def test_another_gpu_is_home_and_source_as_the_words_say() -> None:
    memory = MemorySettings("encoders=staged,denoiser=swap", swap_device="gpu1")
    made = stage(laddered(memory=memory), devices=("gpu0", "gpu1"), gb=16)
    made.submit("large")
    placement = ordered(made)
    assert (placement.staged, placement.source) == ((ENCODERS,), "gpu1")
    assert placement.streamed_bytes


@pytest.mark.parametrize("phase", ["load", "denoise"])
@pytest.mark.parametrize(
    "placement",
    [
        "denoiser=streamed,vae=tiled",
        "encoders=cpu,vae=staged",
        "denoiser=all-streamed",
        "encoders=staged,denoiser=all-streamed,vae=tiled",
        "staged-streamed",
        "all-streamed",
    ],
)
def test_after_running_out_of_memory_it_is_tried_once_and_named_as_it_was_asked_for(
    placement: str, phase: str
) -> None:
    """As with a rung of the ladder that was named. How much is streamed makes no other rung."""
    made = stage(by_hand(placement), gb=40)
    job = made.submit("large")
    if phase == "load":
        made.take_order("gpu0", "load")
        made.tell(events.LoadFailed("gpu0", "large", ErrorReport("out_of_memory", "Out.", {})))
    else:
        loaded(made)
        out_of_memory(made, phase, job)
    assert made.state(job) == "failed"
    error = made.job(job).error
    assert error is not None
    assert error.facts["rungs"] == [placement]
    assert f"also with {placement}. It would" in error.message
    assert is_placement(placement)


def test_it_is_named_as_it_was_asked_for_with_the_job_or_by_the_instructor() -> None:
    made = stage(laddered(), gb=40)
    made.tell(asked(made, "denoiser=all-streamed"))
    loaded(made)
    out_of_memory(made, "denoise", "job-1")
    error = made.job("job-1").error
    assert error is not None
    assert error.facts["rungs"] == ["denoiser=all-streamed"]
    made.tell(events.PolicyChanged(Policy(placements={"large": "denoiser=all-streamed,vae=tiled"})))
    job = made.submit("large")
    loaded(made)
    out_of_memory(made, "denoise", job)
    error = made.job(job).error
    assert error is not None
    assert error.facts["rungs"] == ["denoiser=all-streamed,vae=tiled"]


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        ("denoiser=all-streamed,vae=tiled", "VAE tiling, the denoiser streamed as a whole"),
        ("all-streamed", "text encoders and VAE staged, the denoiser streamed as a whole"),
        ("denoiser=streamed,vae=tiled", "VAE tiling, the denoiser partly streamed"),
    ],
)
def test_a_job_goes_on_with_what_was_named_meanwhile_in_these_words(
    placement: str, words: str
) -> None:
    made = stage(laddered(), gb=40)
    job = made.submit("large")
    loaded(made)
    made.tell(events.PolicyChanged(Policy(placements={"large": placement})))
    out_of_memory(made, "denoise", job)
    while made.order() != f"run {job}":
        loaded(made)
    assert made.job(job).went_on == f"went on with {words}"
    assert f"large ran out of memory while drawing; it went on with {words}." in notices(made)


def test_a_job_that_may_be_placed_otherwise_goes_on_from_a_combination() -> None:
    made = stage(by_hand(), gb=40)
    job = made.submit("large")
    loaded(made)
    made.tell(events.CatalogueChanged((laddered(),)))
    out_of_memory(made, "denoise", job)
    while made.order() != f"run {job}":
        loaded(made)
    made.answer()
    assert made.state(job) == "done"
    assert "large ran out of memory while drawing; it went on with" in " ".join(notices(made))


def test_a_picture_is_made_again_in_the_manner_of_the_combination_or_not_at_all() -> None:
    made = stage(by_hand())
    made.tell(asked(made, manner="tiled+cpu-encoders"))
    assert ordered(made).manner == "tiled+cpu-encoders"
    refused = made.refused(asked(made, manner="exact")).message
    assert f'the model is placed as "{BY_HAND}" only' in refused
    free = stage(laddered())
    free.tell(asked(free, manner="tiled+cpu-encoders"))
    assert ordered(free).manner == "tiled+cpu-encoders", "a rung of the ladder does it as well"
