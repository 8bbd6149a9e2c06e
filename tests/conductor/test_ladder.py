"""Models that are larger than what is free: which rung they take, and what follows from running
out of memory."""

from contextlib import suppress

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.conductor.staging import GB, MEGAPIXEL, Stage, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.errors import ErrorReport, ModelTooLarge
from workshop_gpu.conductor.learned import Learned
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.planner import Question, Speeds, plan_of
from workshop_gpu.conductor.planning import Size
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.rungs import (
    DENOISER,
    ENCODERS,
    RESIDENT,
    ROLES,
    VAE,
    Placement,
    RoleBytes,
)
from workshop_gpu.conductor.working_memory import Activations

# Stable Diffusion 3.5 Large in bf16: 27.5 GB.
ENCODER_BLOCKS = (14_000_000,) * 12 + (39_000_000,) * 32 + (386_000_000,) * 24
LARGE = (
    RoleBytes(ENCODERS, 11_160_000_000, ENCODER_BLOCKS),
    RoleBytes(DENOISER, 16_120_000_000, (415_000_000,) * 38, layer_bytes=71_000_000),
    RoleBytes(VAE, 170_000_000),
)


def scaled(scale: float) -> tuple[RoleBytes, ...]:
    return tuple(
        RoleBytes(
            role.role,
            int(role.size_bytes * scale),
            tuple(int(block * scale) for block in role.blocks_bytes),
        )
        for role in LARGE
    )


SIZES = {"large": LARGE, "middle": scaled(0.4), "small": scaled(0.15)}


def laddered(name: str = "large", memory: MemorySettings | None = None) -> events.ModelFacts:
    roles = SIZES[name]
    return events.ModelFacts(
        name,
        file_bytes=sum(role.size_bytes for role in roles),
        roles=roles,
        memory=memory or MemorySettings(),
    )


def ordered(made: Stage, device: str = "gpu0") -> Placement:
    """The placement of the load that the device is told to do."""
    load = next(each for each in made.orders[device] if isinstance(each, effects.LoadModel))
    return load.placement


def loaded(made: Stage, device: str = "gpu0") -> None:
    """The worker does the load as it was told."""
    load = made.take_order(device, "load")
    assert isinstance(load, effects.LoadModel)
    made.now += 1.0
    roles = SIZES[load.model]
    none = Question(roles, 0, Activations(0, 1), 1, Speeds(1.0, 1e9), load.placement.buffers)
    weights_bytes = plan_of(none, load.placement).weights_bytes
    made.tell(
        events.SlotLoaded(
            device, load.model, weights_bytes, 1.0, placement=load.placement, roles=roles
        )
    )


def out_of_memory(made: Stage, phase: str, job: str, device: str = "gpu0") -> None:
    made.take_order(device, "run")
    error = ErrorReport("out_of_memory", "Out of GPU memory.", {"phase": phase})
    made.tell(events.JobFailed(job, error))


def notices(made: Stage) -> list[str]:
    return [each.text for each in made.said if isinstance(each, effects.Notice)]


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


def test_each_rung_is_tried_once_and_then_the_numbers_are_the_answer() -> None:
    made = stage(laddered())
    job = made.submit("large")
    seen = []
    for _ in range(30):
        if made.state(job) == "failed":
            break
        if made.order().startswith("load"):
            seen.append(ordered(made).name)
            loaded(made)
        out_of_memory(made, "decode", job)
    error = made.job(job).error
    assert error is not None
    assert error.kind == "out_of_memory"
    assert len(seen) == len(set(seen)) > 1
    assert error.facts["phase"] == "decode"
    assert error.facts["largest_bytes"] == 79 * GB
    assert not any("load" in order for order in made.orders_of("gpu0"))


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


def narrow_and_idle(gb: float = 48, foreign_gb: float = 36) -> Stage:
    """A model on a low rung, idle, and so much more room than before."""
    made = stage(laddered(), laddered("small"), gb=gb)
    made.foreign(foreign_gb)
    draw_slowly(made, made.submit("large"))
    made.foreign(0)
    return made


def draw_slowly(made: Stage, job: str) -> None:
    """The job has to wait for its weights at each step."""
    while made.order().startswith("load"):
        loaded(made)
    made.take_order("gpu0", "run")
    made.tell(events.JobFinished(job, 24.0))


def test_an_idle_model_climbs_once_there_is_room_and_it_has_rested() -> None:
    made = narrow_and_idle()
    assert not made.order(), "it has just drawn"
    made.later(10.0)
    assert made.order() == "load large"
    assert ordered(made) == RESIDENT
    loaded(made)
    made.submit("large")
    assert made.order().startswith("run")


def test_a_job_that_waited_for_its_weights_says_nothing_of_how_fast_others_are() -> None:
    """Else a model that began on a low rung would stay there for ever."""
    made = narrow_and_idle()
    rungs = {rung.rung: rung for rung in made.conductor.plan("large", Size(MEGAPIXEL, 1, 28)).rungs}
    assert (rungs["resident"].chosen, rungs["resident"].basis) == (True, "guess")
    assert rungs["resident"].expected_s < 10
    made.submit("large")
    assert ordered(made) == RESIDENT


def test_one_that_computed_for_long_is_as_slow_elsewhere() -> None:
    made = stage(laddered(), gb=24)
    job = made.submit("large")
    loaded(made)
    made.take_order("gpu0", "run")
    made.tell(events.JobFinished(job, 200.0))
    rungs = made.conductor.plan("large", Size(MEGAPIXEL, 1, 28)).rungs
    assert min(rung.expected_s for rung in rungs) == pytest.approx(200.0)


def test_a_model_does_not_climb_while_somebody_waits_for_memory() -> None:
    made = narrow_and_idle()
    made.tell(events.ReservationAsked("room", "bob", "k-bob", 45 * GB, "gpu0"))
    while made.order():
        made.answer()
    made.later(20.0)
    assert not made.order().startswith("load")


def test_nor_while_its_device_draws_for_others() -> None:
    made = narrow_and_idle()
    made.submit("small")
    loaded(made)
    made.later(20.0)
    assert made.orders_of("gpu0") == ["run job-2"]
    made.answer()
    made.later(10.0)
    assert made.order() == "load large"


def test_an_idle_model_does_not_flap_when_memory_comes_and_goes() -> None:
    """It goes up as there is room; down it goes for a job only, and then may go up again."""
    made = narrow_and_idle()
    ups = 0
    for minute in range(20):
        made.foreign(16 if minute % 2 else 0)
        made.later(30.0)
        while made.order():
            ups += 1
            loaded(made)
    assert ups == 1


def test_an_idle_model_on_the_rung_that_the_instructor_named_stays() -> None:
    made = stage(laddered(memory=MemorySettings(placement="all-streamed")))
    made.submit("large")
    loaded(made)
    made.answer()
    made.later(60.0)
    assert not made.order()


def test_after_a_rung_for_a_single_job_the_model_comes_back() -> None:
    made = stage(laddered())
    made.tell(msgspec.structs.replace(made.job_submitted("large"), placement="tiled"))
    loaded(made)
    made.answer()
    made.later(10.0)
    assert ordered(made) == RESIDENT


def test_it_does_not_climb_for_nothing() -> None:
    """A little more room, and a placement that costs no time: it stays as it is."""
    made = stage(laddered(), gb=24)
    made.submit("large")
    loaded(made)
    made.answer()
    placement = made.slot("large").placement
    for _ in range(5):
        made.later(30.0)
        made.submit("large")
        assert made.order().startswith("run")
        made.answer()
    assert made.slot("large").placement == placement


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


@pytest.mark.parametrize(
    ("name", "placement"),
    [
        ("cond_only", Placement(staged=(ENCODERS,))),
        ("aggressive", Placement(staged=ROLES)),
        ("cpu-encoders", Placement(on_cpu=(ENCODERS,))),
        ("streamed-encoders", Placement(staged=(VAE,), streamed=(ENCODERS,))),
        ("none", RESIDENT),
    ],
)
def test_a_catalogue_may_name_the_rung(name: str, placement: Placement) -> None:
    made = stage(laddered(memory=MemorySettings(placement=name)))
    made.submit("large")
    assert ordered(made) == placement


def test_an_instructor_may_name_the_rung_while_the_server_runs() -> None:
    made = stage(laddered())
    made.tell(events.PolicyChanged(Policy(placements={"large": "aggressive"})))
    made.submit("large")
    assert ordered(made) == Placement(staged=ROLES)
    loaded(made)
    made.answer()
    made.tell(events.PolicyChanged(Policy(placements={"large": "resident"})))
    made.tell(events.EvictionAsked("large"))
    made.answer()
    made.submit("large")
    assert ordered(made) == RESIDENT, "it counts from the next load on"


def test_virtual_vram_is_streamed_though_there_is_room() -> None:
    made = stage(laddered(memory=MemorySettings(virtual_vram_bytes=8 * GB, prefetch=2)))
    made.submit("large")
    assert ordered(made).streamed_bytes == 8 * GB
    assert ordered(made).buffers == 3


def test_the_swap_space_is_what_the_buffers_hold() -> None:
    made = stage(laddered(memory=MemorySettings(swap_space_bytes=900_000_000, prefetch=2)), gb=24)
    made.submit("large")
    assert (ordered(made).buffers, ordered(made).buffer_bytes) == (3, 300_000_000)


def test_a_cap_is_a_smaller_card() -> None:
    made = stage(laddered(memory=MemorySettings(max_vram_bytes=16 * GB)))
    made.submit("large")
    loaded(made)
    held = {holder.kind: holder.bytes for holder in _holders(made)}
    assert held["weights"] + held["working"] <= 16 * GB


def _holders(made: Stage) -> tuple[effects.Holder, ...]:
    return made.conductor.snapshot(made.now).devices[0].holders


@pytest.mark.parametrize(
    ("memory", "field", "facts"),
    [
        (MemorySettings(virtual_vram_bytes=20 * GB), "virtual_vram_gb", "most_bytes"),
        (MemorySettings(swap_device="gpu7"), "swap_device", ""),
        (MemorySettings(swap_device="gpu0"), "swap_device", ""),
        (MemorySettings(swap_space_bytes=100 * GB), "swap_space_gb", "most_bytes"),
        (MemorySettings(swap_space_bytes=GB // 10), "swap_space_gb", "least_bytes"),
        (
            MemorySettings(swap_space_bytes=GB // 5, max_vram_bytes=GB // 8),
            "max_vram_gb",
            "least_bytes",
        ),
        (MemorySettings(max_vram_bytes=GB // 2), "max_vram_gb", "least_bytes"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_number_that_would_do(
    memory: MemorySettings, field: str, facts: str
) -> None:
    made = stage(laddered(memory=memory))
    report = made.refused(made.job_submitted("large"))
    assert (report.kind, report.facts["field"]) == ("invalid_placement", field)
    assert not facts or facts in report.facts
    assert not made.orders


def test_what_a_model_cannot_do_is_not_ordered_again_and_again() -> None:
    """The worker leaves out slices that the model does not have, and says so."""
    made = stage(laddered(memory=MemorySettings(placement="sliced")))
    made.submit("large")
    load = made.take_order("gpu0", "load")
    assert isinstance(load, effects.LoadModel)
    done = msgspec.structs.replace(load.placement, sliced=False)
    made.tell(events.SlotLoaded("gpu0", "large", 5 * GB, 1.0, placement=done))
    assert made.order().startswith("run")


def test_a_cap_that_holds_no_rung_is_refused_before_anything_moves() -> None:
    made = stage(laddered(memory=MemorySettings(max_vram_bytes=GB)))
    report = made.refused(made.job_submitted("large", pixels=4 * MEGAPIXEL))
    assert report.facts["field"] == "max_vram_gb"
    assert not made.orders


def test_tiling_is_refused_for_a_model_without_a_vae() -> None:
    facts = msgspec.structs.replace(laddered(), roles=LARGE[:2])
    made = stage(facts)
    request = msgspec.structs.replace(made.job_submitted("large"), placement="tiled")
    report = made.refused(request)
    assert report.kind == "invalid_placement"


@pytest.mark.parametrize(
    ("lacks", "rung", "instead"),
    [
        ("tiled", "tiled", "staged-streamed"),
        ("tiled", "tiled-streamed", "staged-streamed"),
        ("sliced", "sliced", "cpu-encoders-streamed"),
    ],
)
def test_a_rung_that_the_model_is_known_not_to_have_is_refused_with_one_that_it_has(
    lacks: str, rung: str, instead: str
) -> None:
    made = stage(msgspec.structs.replace(laddered(), lacks=(lacks,)))
    report = made.refused(msgspec.structs.replace(made.job_submitted("large"), placement=rung))
    assert (report.kind, report.facts["field"]) == ("invalid_placement", "placement")
    assert instead in report.message
    assert not made.orders


def test_what_the_worker_saw_that_a_model_cannot_do_is_remembered() -> None:
    made = stage(laddered())
    job = msgspec.structs.replace(made.job_submitted("large"), placement="tiled")
    made.tell(job)
    load = made.take_order("gpu0", "load")
    assert isinstance(load, effects.LoadModel)
    done = msgspec.structs.replace(load.placement, tiled=False)
    weights = sum(role.size_bytes for role in LARGE)
    made.tell(
        events.SlotLoaded(
            "gpu0", "large", weights, 1.0, placement=done, roles=LARGE, lacks=("tiled",)
        )
    )
    made.answer()
    assert made.state(job.job) == "done"
    later = msgspec.structs.replace(made.job_submitted("large"), placement="tiled")
    assert made.refused(later).kind == "invalid_placement"
    learned = msgspec.json.decode(msgspec.json.encode(made.conductor.learned()), type=Learned)
    assert learned.weights["large"].lacks == ("tiled",)


def test_an_unknown_rung_is_refused_with_those_that_there_are() -> None:
    made = stage(laddered())
    request = msgspec.structs.replace(made.job_submitted("large"), placement="turbo")
    assert "staged-encoders" in made.refused(request).message


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
                _work(made, device)
                if made.orders.get(device):
                    assert made.free_gb() >= min(0.0, free), "an order took what is not there"
    made.foreign(0)
    for _ in range(200):
        if not made.conductor.snapshot(made.now).jobs:
            break
        for device in list(made.orders):
            _work(made, device)
        made.later(5.0)
        assert made.free_gb() >= 0
    assert [made.state(job) for job in jobs] == ["done"] * len(jobs)


def _work(made: Stage, device: str) -> None:
    if made.order(device).startswith("load"):
        loaded(made, device)
    else:
        made.answer(device)
