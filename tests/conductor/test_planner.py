"""Which placement: bytes and seconds of each rung, and the choice among them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from workshop_gpu.conductor.ladder import (
    MODES,
    RUNGS,
    names,
    rung_named,
    rung_of,
)
from workshop_gpu.conductor.planner import (
    Phase,
    Plan,
    Question,
    Speeds,
    Step,
    allowed,
    best,
    least,
    plan_all,
    plan_for,
)
from workshop_gpu.conductor.rungs import (
    DENOISER,
    ENCODERS,
    RESIDENT,
    VAE,
    Placement,
    RoleBytes,
    Streams,
)
from workshop_gpu.conductor.working_memory import Activations, by_formula

GB = 1_000_000_000
MEGAPIXEL = 1024 * 1024

# Stable Diffusion 3.5 Large in bf16.
ENCODER_BLOCKS = (14_000_000,) * 12 + (39_000_000,) * 32 + (386_000_000,) * 24
LARGE = (
    RoleBytes(ENCODERS, 11_160_000_000, ENCODER_BLOCKS),
    RoleBytes(DENOISER, 16_120_000_000, (415_000_000,) * 38),
    RoleBytes(VAE, 170_000_000),
)
WEIGHTS = sum(role.size_bytes for role in LARGE)
H100 = Speeds(step_s=0.193, bus_bytes_per_s=54.6e9)
OLD_CARD = Speeds(step_s=0.9, bus_bytes_per_s=11e9)


def ask(
    room_gb: float,
    speeds: Speeds = H100,
    roles: tuple[RoleBytes, ...] = LARGE,
    units: int = MEGAPIXEL,
    by_kind: tuple[tuple[str, int], ...] = (),
    streamed_gb: float = 0.0,
) -> Question:
    weights = sum(role.size_bytes for role in roles)
    activations = Activations(by_formula(weights, units), units, by_kind)
    return Question(
        roles, int(room_gb * GB), activations, 28, speeds, streamed_bytes=int(streamed_gb * GB)
    )


def chosen(question: Question) -> Plan:
    plan = best(plan_all(question))
    assert plan is not None
    return plan


def named(question: Question, name: str) -> Plan:
    rung = rung_named(name)
    assert rung is not None
    plan = plan_for(question, rung)
    assert plan is not None
    return plan


def test_a_model_that_fits_is_left_alone() -> None:
    plan = chosen(ask(80))
    assert plan.placement == RESIDENT
    assert plan.weights_bytes == WEIGHTS
    assert plan.job_s == pytest.approx(28 * 0.193)


def test_a_model_that_is_a_little_too_large_streams_for_nothing() -> None:
    plan = chosen(ask(24))
    assert plan.rung.name == "streamed"
    assert plan.needed_bytes <= 24 * GB
    assert plan.job_s == pytest.approx(28 * 0.193)


def test_as_few_bytes_are_streamed_as_the_room_asks_for() -> None:
    streamed = [named(ask(room), "streamed").placement.streamed_bytes for room in (29, 26, 23, 20)]
    assert streamed == sorted(streamed)
    for room in (28, 26, 23, 20):
        plan = named(ask(room), "streamed")
        assert room * GB - plan.needed_bytes < 1_000, room


def test_a_step_takes_as_long_as_the_slower_of_computing_and_copying() -> None:
    plan = named(ask(14), "all-streamed")
    assert plan.placement.streamed_bytes == 38 * 415_000_000
    staged_s = (11_160_000_000 + 170_000_000) / 54.6e9
    assert plan.job_s == pytest.approx(28 * 38 * 0.415 / 54.6 + staged_s)


def test_on_a_card_of_eight_gigabytes_encoders_and_denoiser_are_streamed() -> None:
    plan = chosen(ask(7.6, OLD_CARD))
    assert plan.placement.streamed == (ENCODERS,)
    assert plan.placement.streamed_bytes > 0
    assert plan.placement.exact
    assert plan.needed_bytes <= 7.6 * GB


def test_encoders_without_blocks_are_on_the_cpu_of_a_card_of_eight_gigabytes() -> None:
    roles = (RoleBytes(ENCODERS, LARGE[0].size_bytes), *LARGE[1:])
    plan = chosen(ask(7.6, OLD_CARD, roles))
    assert plan.placement.on_cpu == (ENCODERS,)


def test_streamed_encoders_take_their_buffers_and_while_they_read_what_is_in_no_block() -> None:
    question = ask(30)
    plan = named(question, "streamed-encoders")
    assert plan.weights_bytes == 16_120_000_000 + 2 * 386_000_000
    rest = 11_160_000_000 - sum(ENCODER_BLOCKS)
    encoding = plan.peaks[Phase.ENCODE] - plan.weights_bytes
    assert encoding == rest + question.activations.encode_bytes
    both = named(question, "streamed-both")
    assert both.weights_bytes - both.placement.buffers * 415_000_000 < 16_120_000_000, (
        "encoders and denoiser come through the same buffers"
    )


def test_where_the_bus_is_slow_the_encoders_are_streamed_rather_than_the_denoiser() -> None:
    """They come once or twice in a job, the denoiser's blocks at each step."""
    question = ask(23.5, Speeds(step_s=0.193, bus_bytes_per_s=3e9))
    plan = chosen(question)
    assert plan.rung.name == "streamed-both"
    assert plan.job_s < named(question, "staged-streamed").job_s / 2


def test_what_comes_once_in_a_job_does_not_hide_in_the_shadow_of_the_bus() -> None:
    """Else rungs that wait for the bus would seem to encode and decode for nothing."""
    speeds = Speeds(step_s=0.183, bus_bytes_per_s=52e9, once_s=0.8)
    question = ask(16, speeds)
    both, staged = named(question, "streamed-both"), named(question, "staged-streamed")
    assert both.placement.streamed_bytes / 52e9 < 0.183 < staged.placement.streamed_bytes / 52e9
    assert both.job_s == pytest.approx(0.8 + 28 * 0.183 + 2 * 11.16 / 52 + 0.17 / 52)
    steps_s = 28 * staged.placement.streamed_bytes / 52e9
    assert staged.job_s == pytest.approx(0.8 + steps_s + (11.16 + 0.17) / 52)
    assert chosen(question).rung.name == "streamed-both"


def test_a_picture_that_only_moves_weights_is_better_than_a_faster_one_in_tiles() -> None:
    room = (WEIGHTS + by_formula(WEIGHTS, 4 * MEGAPIXEL)) / GB - 1
    plans = plan_all(ask(room, OLD_CARD, units=4 * MEGAPIXEL))
    tiled = next(plan for plan in plans if plan.rung.name == "tiled")
    assert not tiled.problem
    plan = best(plans)
    assert plan is not None
    assert plan.placement.exact


def test_what_does_not_fit_says_how_much_is_missing() -> None:
    plans = plan_all(ask(2))
    assert best(plans) is None
    lowest = least(plans)
    assert lowest is not None
    assert lowest.missing_bytes == lowest.needed_bytes - 2 * GB
    assert lowest.problem.endswith("are missing")


def test_what_little_is_missing_is_not_told_to_be_nothing() -> None:
    (whole,) = plan_all(ask(80), RUNGS[:1])
    question = structs.replace(ask(80), room_bytes=whole.needed_bytes - 1)
    assert plan_all(question, RUNGS[:1])[0].problem == "1 MB are missing"


def test_a_model_without_encoders_and_blocks_has_few_rungs() -> None:
    plans = plan_all(ask(10, roles=(RoleBytes(DENOISER, GB), RoleBytes(VAE, GB))))
    assert [plan.rung.name for plan in plans] == ["resident", "staged", "staged-all", "tiled"]


def test_what_a_model_cannot_do_is_on_none_of_its_rungs() -> None:
    for lacking in ("tiled", "sliced"):
        question = msgspec.structs.replace(ask(9), lacks=(lacking,))
        plans = plan_all(question)
        assert not any(lacking in plan.placement.manner for plan in plans)
        assert len({plan.placement for plan in plans}) == len(plans) > 5
    untiled = plan_all(msgspec.structs.replace(ask(9), lacks=("tiled", "sliced")))
    assert {plan.rung.name for plan in untiled} >= {"resident", "cpu-encoders-streamed"}
    assert not {plan.rung.name for plan in untiled} & {"tiled", "tiled-streamed", "sliced"}


def test_blocks_that_would_not_win_back_their_buffers_are_not_streamed() -> None:
    roles = (RoleBytes(DENOISER, GB, (400_000_000, 400_000_000)),)
    assert all(plan.placement.streamed_bytes == 0 for plan in plan_all(ask(1, roles=roles)))


def test_the_buffers_of_a_streamed_rung_are_counted() -> None:
    plan = named(ask(14), "all-streamed")
    assert plan.weights_bytes == 16_120_000_000 - 38 * 415_000_000 + 2 * 415_000_000


@pytest.mark.parametrize(
    ("buffer_bytes", "buffers_bytes", "staying_bytes"),
    [
        (0, 2 * 415_000_000, 0),
        (900_000_000, 2 * 900_000_000, 0),
        (100_000_000, 2 * 100_000_000, 38 * 1_000),
        (71_000_000, 2 * 71_000_000, 38 * 1_000),
    ],
)
def test_the_size_of_buffers_decides_what_they_take_and_what_of_blocks_stays(
    buffer_bytes: int, buffers_bytes: int, staying_bytes: int
) -> None:
    blocks, rest = (415_000_000,) * 38, 350_000_000
    denoiser = RoleBytes(DENOISER, sum(blocks) + rest, blocks, 71_000_000, 38 * 1_000)
    question = structs.replace(
        ask(9, roles=(LARGE[0], denoiser, LARGE[2])), buffer_bytes=buffer_bytes
    )
    plan = named(question, "all-streamed")
    assert plan.placement.buffer_bytes == buffer_bytes
    assert plan.weights_bytes == rest + staying_bytes + buffers_bytes


def test_no_rungs_buffers_take_more_together_than_the_swap_space() -> None:
    encoders = structs.replace(LARGE[0], layer_bytes=84_000_000)
    denoiser = structs.replace(LARGE[1], layer_bytes=71_000_000)
    for buffer_bytes, left in ((84_000_000, True), (83_000_000, False)):
        question = ask(9, roles=(encoders, denoiser, LARGE[2]))
        plans = plan_all(structs.replace(question, buffer_bytes=buffer_bytes), RUNGS)
        assert any(plan.placement.streamed_bytes for plan in plans)
        assert any(plan.placement.streamed for plan in plans) == left
        for plan in plans:
            here = {role.role: role.size_bytes for role in question.roles}
            kept = sum(here[role] for role in here if role not in plan.placement.away)
            buffers = plan.weights_bytes - (kept - plan.placement.streamed_bytes)
            assert buffers <= 2 * buffer_bytes, plan.placement.name


def test_blocks_whose_layers_nobody_knows_count_as_a_whole() -> None:
    plan = named(structs.replace(ask(9), buffer_bytes=100_000_000), "all-streamed")
    assert plan.weights_bytes == 16_120_000_000 - 36 * 415_000_000


def test_a_rung_that_was_measured_is_believed() -> None:
    question = ask(
        24, Speeds(0.193, 54.6e9, ((RESIDENT.name, 9.0),)), by_kind=(("resident", 7 * GB),)
    )
    plan = named(question, "resident")
    assert (plan.job_s, plan.working_bytes) == (9.0, 7 * GB)


def test_asked_for_bytes_are_streamed_though_there_is_room() -> None:
    assert named(ask(80, streamed_gb=10), "streamed").placement.streamed_bytes == 10 * GB


def test_out_of_memory_goes_lower_in_its_phase_and_at_most_once_per_rung() -> None:
    plans = plan_all(ask(31))
    for phase in Phase:
        steps: list[Step] = []
        plan = best(plans)
        while plan is not None:
            steps.append(Step(plan.rung.name, phase, plan.peaks[phase]))
            plan = best(allowed(plans, steps))
        assert len(steps) > 1, phase
        assert len({step.rung for step in steps}) == len(steps)
        peaks = [step.peak_bytes for step in steps]
        assert peaks == sorted(peaks, reverse=True)


def test_tiling_is_the_last_answer_while_decoding() -> None:
    question = ask(31)
    left = [plan for plan in plan_all(question) if not plan.placement.exact]
    step = Step("resident", Phase.DECODE, named(question, "resident").peaks[Phase.DECODE])
    plan = best(allowed(left, [step]))
    assert plan is not None
    assert plan.placement.tiled


def test_modes_of_other_programs_are_rungs() -> None:
    assert all(rung_named(mode) is rung_named(rung) for mode, rung in MODES.items())
    assert rung_named("cond_diffusion") is not None
    assert rung_named("fast") is None
    assert len(set(names())) == len(names())


def test_each_rung_is_found_again_from_its_placement() -> None:
    for rung in RUNGS:
        question = ask(9)
        if rung.swaps:
            assert plan_for(question, rung) is None, "there is no other GPU"
            question = structs.replace(question, source="cuda:1", source_room_bytes=40 * GB)
        plan = plan_for(question, rung)
        assert plan is not None
        same = rung_of(plan.placement)
        assert same is not None
        assert (same.placement, same.swaps) == (rung.placement, rung.swaps)
        assert (same.streams is Streams.NOTHING) == (rung.streams is Streams.NOTHING)
    assert rung_of(Placement(staged=(DENOISER,))) is None


SIZES = st.integers(0, 30 * GB)
BLOCKS = st.lists(st.integers(1, GB), max_size=60).map(tuple)


@given(
    encoders=SIZES,
    layers=BLOCKS,
    blocks=BLOCKS,
    rest=SIZES,
    vae=SIZES,
    room=st.integers(0, 100 * GB),
    units=st.integers(1, 16 * MEGAPIXEL),
    step_s=st.floats(0.001, 10.0),
    bus=st.floats(1e9, 1e11),
    buffer_bytes=st.sampled_from([0, 0, 10_000_000, 3 * GB]),
)
def test_no_plan_promises_what_it_cannot_keep(
    encoders: int,
    layers: tuple[int, ...],
    blocks: tuple[int, ...],
    rest: int,
    vae: int,
    room: int,
    units: int,
    step_s: float,
    bus: float,
    buffer_bytes: int,
) -> None:
    """Of any model and card: what fits is within the room, no peak is above the promise, nothing
    is faster than all on the device, and more room never makes a job slower."""
    roles = (
        RoleBytes(ENCODERS, encoders + sum(layers), layers),
        RoleBytes(DENOISER, sum(blocks) + rest, blocks, max(blocks, default=0) // 3),
        RoleBytes(VAE, vae),
    )
    speeds = Speeds(step_s, bus)
    question = structs.replace(ask(room / GB, speeds, roles, units), buffer_bytes=buffer_bytes)
    plans = plan_all(question)
    for plan in plans:
        assert (plan.problem == "") == (plan.needed_bytes <= question.room_bytes)
        assert max(plan.peaks.values()) <= plan.needed_bytes
        assert plan.weights_bytes >= 0
        assert plan.working_bytes >= 0
        assert plan.placement.streamed_bytes <= sum(blocks)
        assert plan.job_s >= 28 * step_s * 0.999
    roomy = structs.replace(question, room_bytes=question.room_bytes + 5 * GB)
    narrow, wide = best(plans), best(plan_all(roomy))
    if narrow is not None:
        assert wide is not None
        if wide.placement.exact == narrow.placement.exact:
            assert wide.job_s <= narrow.job_s * 1.03
