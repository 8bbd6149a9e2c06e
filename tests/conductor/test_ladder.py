"""Models that are larger than what is free: which rung they take, and what follows from running
out of memory."""

from contextlib import suppress

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.conductor.laddered import laddered, loaded, notices, ordered, out_of_memory, work
from tests.conductor.staging import GB, MEGAPIXEL, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.errors import ErrorReport, ModelTooLarge, rounded_down, rounded_up
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.rungs import ENCODERS, RESIDENT, VAE, Placement


def test_a_model_that_fits_is_loaded_as_a_whole() -> None:
    made = stage(laddered())
    made.submit("large")
    assert ordered(made) == RESIDENT


def test_a_model_larger_than_the_card_is_placed_so_that_it_fits() -> None:
    made = stage(laddered(), gb=24)
    job = made.submit("large")
    assert ordered(made) != RESIDENT
    assert ordered(made).exact
    loaded(made)
    assert made.order() == f"run {job}"
    assert made.free_gb() >= 0
    made.answer()
    assert made.state(job) == "done"


def test_what_fits_on_no_rung_is_refused_with_the_size_that_would_do() -> None:
    made = stage(laddered(), gb=6)
    report = made.refused(made.job_submitted("large", pixels=16 * MEGAPIXEL))
    assert report.kind == "model_too_large"
    side = report.facts["fitting_side"]
    assert isinstance(side, int)
    assert side > 0
    made.submit("large", pixels=side * side)
    assert made.order() == "load large"


def test_an_idle_model_stays_where_the_newcomer_streams_for_nothing_beside_it() -> None:
    made = stage(laddered(), events.ModelFacts("other", file_bytes=20 * GB), gb=48)
    made.load("other")
    made.later(60.0)
    made.submit("large")
    assert made.order() == "load large"
    assert ordered(made).streamed_bytes
    loaded(made)
    assert made.models() == ["other", "large"]


def test_running_out_of_memory_goes_on_one_rung_lower_and_people_are_told() -> None:
    made = stage(laddered(), events.ModelFacts("other", file_bytes=2 * GB))
    made.load("other")
    job = made.submit("large")
    loaded(made)
    out_of_memory(made, "decode", job)
    assert made.state(job) == "queued"
    assert ordered(made) != RESIDENT
    loaded(made)
    assert made.order() == f"run {job}"
    assert made.job(job).went_on.startswith("went on with ")
    assert any("ran out of memory" in text and "went on with" in text for text in notices(made))
    assert "other" in made.models()
    made.answer()
    assert made.state(job) == "done"


@pytest.mark.parametrize(("gb", "most_gb"), [(12, 11.4), (24, 23), (80, 79)])
@pytest.mark.parametrize("phase", ["encode", "denoise", "decode"])
def test_each_rung_is_tried_once_and_then_the_numbers_are_the_answer(
    phase: str, gb: float, most_gb: float
) -> None:
    made = stage(laddered(), gb=gb)
    job = made.submit("large")
    seen = []
    for _ in range(30):
        if made.state(job) == "failed":
            break
        if made.order().startswith("load"):
            seen.append(ordered(made).name)
            loaded(made)
        out_of_memory(made, phase, job)
    error = made.job(job).error
    assert error is not None
    assert error.kind == "out_of_memory"
    assert len(seen) == len(set(seen)) > 1
    assert error.facts["phase"] == phase
    assert error.facts["largest_bytes"] == int(most_gb * GB)
    needed, room = error.facts["needed_bytes"], error.facts["room_bytes"]
    assert isinstance(needed, int)
    assert isinstance(room, int)
    assert error.facts["missing_bytes"] == needed - room > 0
    numbers = f"at least {rounded_up(needed)}, and no more than {rounded_down(room)} can be had"
    assert numbers in error.message
    assert not any("load" in order for order in made.orders_of("gpu0"))


def test_after_part_of_the_denoiser_was_streamed_it_is_drawn_with_all_of_it_streamed() -> None:
    """The two rungs place the same things in the same places; the one is tried after the other."""
    made = stage(laddered("blockless"), gb=24)
    made.foreign(8.0)
    job = made.submit("blockless")
    for _ in range(2):
        loaded(made)
        out_of_memory(made, "denoise", job)
    assert ordered(made) == Placement(staged=(ENCODERS, VAE), streamed_bytes=16 * GB)
    loaded(made)
    assert made.order() == f"run {job}"


def test_a_batch_that_ran_out_of_memory_comes_back_smaller() -> None:
    made = stage(laddered())
    jobs = ["ada", "bob", "cleo"]
    for who in jobs:
        request = made.job_submitted("large", who, job=who)
        made.tell(msgspec.structs.replace(request, group="alike"))
    loaded(made)
    made.answer()
    run = made.take_order("gpu0", "run")
    assert isinstance(run, effects.RunJob)
    assert run.others
    for job in (run.job, *run.others):
        error = ErrorReport("out_of_memory", "Out of GPU memory.", {"phase": "denoise"})
        made.tell(events.JobFailed(job, error))
    made.settle()
    assert [made.state(job) for job in jobs] == ["done"] * 3


def test_a_load_that_ran_out_of_memory_is_tried_on_a_lower_rung() -> None:
    made = stage(laddered())
    job = made.submit("large")
    made.take_order("gpu0", "load")
    error = ErrorReport("out_of_memory", "Out of GPU memory.", {"phase": "load"})
    made.tell(events.LoadFailed("gpu0", "large", error))
    assert ordered(made) != RESIDENT
    loaded(made)
    made.answer()
    assert made.state(job) == "done"


def test_after_a_load_ran_out_of_memory_what_waits_decides_whether_a_rung_is_left() -> None:
    """A small picture has room on rungs on which a usual one has none."""
    made = stage(laddered(), gb=3)
    small = made.submit("large", pixels=64 * 64)
    made.fail(kind="out_of_memory")
    loaded(made)
    made.answer()
    assert made.state(small) == "done"


@pytest.mark.parametrize("asked", [{"placement": "cpu-encoders"}, {"manner": "cpu-encoders"}])
def test_a_load_that_ran_out_of_memory_is_not_tried_again_for_a_job_with_that_rung_alone(
    asked: dict[str, str],
) -> None:
    made = stage(laddered())
    request = msgspec.structs.replace(made.job_submitted("large"), **asked)
    made.tell(request)
    made.fail(kind="out_of_memory")
    error = made.job(request.job).error
    assert error is not None
    assert (error.kind, error.facts["rungs"]) == ("out_of_memory", ["cpu-encoders"])
    assert not made.orders
    made.submit("large")
    assert ordered(made) == RESIDENT, "others may take another"


def test_after_such_a_load_the_job_waits_for_another_gpu_that_is_large_enough() -> None:
    made = stage(laddered(), devices=("gpu0", "gpu1"))
    made.foreign(70, "gpu0")
    request = msgspec.structs.replace(made.job_submitted("large"), placement="resident")
    made.tell(request)
    made.fail("gpu1", kind="out_of_memory")
    assert not made.orders
    made.foreign(0, "gpu0")
    assert ordered(made, "gpu0") == RESIDENT


def test_settings_that_take_away_what_was_left_after_memory_ran_out_end_the_job() -> None:
    """Another job of the same size has met nothing, and goes on as the settings say."""
    made = stage(laddered())
    job, another = made.submit("large"), made.submit("large", "bob")
    loaded(made)
    out_of_memory(made, "encode", job)
    assert made.state(job) == "queued"
    made.tell(events.PolicyChanged(Policy(placements={"large": "staged-encoders"})))
    error = made.job(job).error
    assert error is not None
    assert (error.kind, error.facts["rungs"]) == ("out_of_memory", ["resident"])
    while made.orders:
        work(made, "gpu0")
    assert made.state(another) == "done"


def test_a_rung_that_failed_is_not_climbed_again_at_once_but_after_a_while() -> None:
    made = stage(laddered())
    job = made.submit("large")
    loaded(made)
    out_of_memory(made, "decode", job)
    loaded(made)
    made.answer()
    lower = made.slot("large").placement
    for _ in range(5):
        made.submit("large")
        while made.order():
            made.answer() if made.order().startswith("run") else loaded(made)
    assert made.slot("large").placement == lower


def test_where_memory_ran_out_on_all_rungs_for_several_jobs_the_next_one_is_tried_again() -> None:
    """Each went on one rung lower and was drawn; what is remembered of all of them leaves no rung,
    and an idle GPU would wait for minutes until it is forgotten."""
    made = stage(laddered(), gb=48)
    drawn = 0
    for phase in ("encode", "denoise", "decode") * 4:
        job = made.submit("large")
        while made.order().startswith("load"):
            loaded(made)
        assert made.order() == f"run {job}", f"after {drawn} jobs it waits beside an idle GPU"
        out_of_memory(made, phase, job)
        while made.order():
            work(made, "gpu0")
        drawn += made.state(job) == "done"
    assert drawn > 3


def test_a_model_climbs_again_once_there_is_room() -> None:
    made = stage(laddered(), gb=48)
    made.foreign(44)
    made.submit("large")
    narrow = ordered(made)
    loaded(made)
    made.answer()
    made.foreign(0)
    made.submit("large")
    assert ordered(made).streamed_bytes < narrow.streamed_bytes
    loaded(made)
    made.answer()
    assert made.state("job-2") == "done"


def test_a_larger_picture_takes_the_model_to_another_rung_in_place() -> None:
    made = stage(laddered(), gb=32)
    made.submit("large", pixels=512 * 512)
    assert ordered(made) == RESIDENT
    loaded(made)
    made.answer()
    job = made.submit("large", pixels=4 * MEGAPIXEL)
    assert made.order() == "load large"
    assert ordered(made) != RESIDENT
    loaded(made)
    made.answer()
    assert made.state(job) == "done"


def test_an_instructor_may_name_the_rung_of_a_job() -> None:
    made = stage(laddered())
    request = made.job_submitted("large")
    made.tell(msgspec.structs.replace(request, placement="all-streamed"))
    assert ordered(made).streamed_bytes == 38 * 415_000_000
    loaded(made)
    made.answer()
    made.tell(msgspec.structs.replace(made.job_submitted("large"), placement="resident"))
    assert ordered(made) == RESIDENT


@given(
    gb=st.sampled_from([8, 12, 16, 24, 48]),
    asked=st.lists(
        st.tuples(
            st.sampled_from(["large", "small", "middle"]),
            st.sampled_from([256, 512, 768, 1024, 1536]),
            st.integers(0, 6),
        ),
        min_size=1,
        max_size=12,
    ),
)
@settings(max_examples=40, deadline=None, phases=[Phase.generate])
def test_no_plan_overfills_a_card_whatever_is_asked(
    gb: int, asked: list[tuple[str, int, int]]
) -> None:
    """Cards of 8 to 48 GB, three models, sizes, and a ballast that comes and goes: no order takes
    what is not free at that moment, and all that was accepted is drawn."""
    made = stage(laddered(), laddered("middle"), laddered("small"), gb=float(gb))
    jobs = []
    for number, (model, side, ballast_gb) in enumerate(asked):
        request = made.job_submitted(model, f"p{number}", side * side, job=f"j{number}")
        with suppress(ModelTooLarge):
            made.tell(request)
            jobs.append(request.job)
        made.foreign(min(ballast_gb, gb // 4))
        for _ in range(3):
            free = made.free_gb()
            for device in list(made.orders):
                made.now += 1.0
                work(made, device)
                if made.orders.get(device):
                    assert made.free_gb() >= min(0.0, free), "an order took what is not there"
    made.foreign(0)
    for _ in range(200):
        if not made.conductor.snapshot(made.now).jobs:
            break
        for device in list(made.orders):
            work(made, device)
        made.later(5.0)
        assert made.free_gb() >= 0
    assert [made.state(job) for job in jobs] == ["done"] * len(jobs)
