"""What may be said of a model's memory: rungs by name, caps, swap spaces; what is refused."""

import msgspec
import pytest

from tests.conductor.laddered import LARGE, laddered, loaded, ordered
from tests.conductor.staging import GB, MEGAPIXEL, Stage, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.errors import ErrorReport, rounded_down, rounded_up
from workshop_gpu.conductor.learned import Learned
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.planning import TYPICAL
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


@pytest.mark.parametrize(
    ("name", "placement"),
    [
        ("cond_only", Placement(staged=(ENCODERS,))),
        ("aggressive", Placement(staged=ROLES)),
        ("cpu-encoders", Placement(on_cpu=(ENCODERS,))),
        ("streamed-encoders", Placement(staged=(VAE,), streamed=(ENCODERS,))),
        ("staged-vae", Placement(staged=(VAE,))),
        ("resident-sliced", Placement(sliced=True)),
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


@pytest.mark.parametrize(
    ("rung", "least_bytes"),
    [("streamed-encoders", 168_000_000), ("streamed-both", 168_000_000), ("auto", 142_000_000)],
)
def test_the_swap_space_holds_the_largest_layers_of_all_that_the_rung_streams(
    rung: str, least_bytes: int
) -> None:
    encoders = msgspec.structs.replace(LARGE[0], layer_bytes=84_000_000)

    def asked(swap_space_bytes: int) -> tuple[Stage, events.JobSubmitted]:
        memory = MemorySettings(placement=rung, swap_space_bytes=swap_space_bytes)
        made = stage(msgspec.structs.replace(laddered(memory=memory), roles=(encoders, *LARGE[1:])))
        return made, made.job_submitted("large")

    made, request = asked(least_bytes - 1)
    report = made.refused(request)
    assert (report.facts["field"], report.facts["least_bytes"]) == ("swap_space_gb", least_bytes)
    made, request = asked(least_bytes)
    made.tell(request)
    assert ordered(made).buffers * ordered(made).buffer_bytes in (0, least_bytes)


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


@pytest.mark.parametrize(
    ("memory", "megapixels", "setting", "fact"),
    [
        (MemorySettings(virtual_vram_bytes=20 * GB), 1, "virtual_vram_bytes", "most_bytes"),
        (
            MemorySettings(virtual_vram_bytes=8 * GB, swap_space_bytes=GB // 10, prefetch=3),
            *(1, "swap_space_bytes", "least_bytes"),
        ),
        (MemorySettings(max_vram_bytes=GB), 4, "max_vram_bytes", "least_bytes"),
        (MemorySettings(max_vram_bytes=GB // 2), 1, "max_vram_bytes", "least_bytes"),
        (
            MemorySettings(virtual_vram_bytes=8 * GB, swap_space_bytes=20 * GB),
            *(1, "swap_space_bytes", "most_bytes"),
        ),
        (
            MemorySettings(placement="all-streamed", swap_space_bytes=20 * GB),
            *(1, "swap_space_bytes", "most_bytes"),
        ),
        (
            MemorySettings(max_vram_bytes=GB, placement="staged-streamed"),
            *(1, "max_vram_bytes", "least_bytes"),
        ),
        (
            MemorySettings(max_vram_bytes=GB, virtual_vram_bytes=8 * GB),
            *(1, "max_vram_bytes", "least_bytes"),
        ),
    ],
)
def test_the_number_of_a_refusal_does_and_the_next_one_does_not(
    memory: MemorySettings, megapixels: int, setting: str, fact: str
) -> None:
    def asked(size_bytes: int) -> tuple[Stage, events.JobSubmitted]:
        changed = msgspec.structs.replace(memory, **{setting: size_bytes})
        made = stage(laddered(memory=changed))
        return made, made.job_submitted("large", pixels=megapixels * MEGAPIXEL)

    made, request = asked(getattr(memory, setting))
    would_do = made.refused(request).facts[fact]
    assert isinstance(would_do, int)
    made, request = asked(would_do)
    made.tell(request)
    assert made.order() == "load large"
    made, request = asked(would_do + (1 if fact == "most_bytes" else -1))
    assert made.refused(request).facts[fact] == would_do


@pytest.mark.parametrize("named", ["in the catalogue", "with the job"])
def test_a_cap_that_is_too_small_for_a_rung_by_name_says_so_and_what_any_rung_needs(
    named: str,
) -> None:
    def refused(rung: str, cap_bytes: int = 4 * GB) -> ErrorReport:
        of_job = rung if named == "with the job" else ""
        memory = MemorySettings(max_vram_bytes=cap_bytes, placement="auto" if of_job else rung)
        made = stage(laddered(memory=memory))
        request = msgspec.structs.replace(made.job_submitted("large"), placement=of_job)
        return made.refused(request)

    report = refused("resident")
    assert 'placed as "resident"' in report.message
    assert "any rung" not in report.message
    needed = report.facts["least_bytes"], report.facts["any_rung_bytes"]
    assert isinstance(needed[0], int)
    assert isinstance(needed[1], int)
    assert needed[1] < needed[0]
    assert all(rounded_up(each) in report.message for each in needed)
    of_any = refused("auto", GB // 2)
    assert "on any rung" in of_any.message
    assert (of_any.facts["least_bytes"], "any_rung_bytes" in of_any.facts) == (needed[1], False)


@pytest.mark.parametrize("prefetch", [3, 16])
def test_as_many_buffers_as_blocks_are_refused_where_all_must_stream(prefetch: int) -> None:
    """There would be no plan, and the job would wait for ever."""
    few = (LARGE[0], RoleBytes(DENOISER, 2 * GB, (GB // 2,) * 4), LARGE[2])

    def asked(ahead: int) -> tuple[Stage, events.JobSubmitted]:
        memory = MemorySettings(placement="staged-streamed", prefetch=ahead)
        made = stage(msgspec.structs.replace(laddered(memory=memory), roles=few))
        return made, made.job_submitted("large")

    made, request = asked(prefetch)
    report = made.refused(request)
    assert (report.facts["field"], report.facts["most"]) == ("prefetch", 2)
    made, request = asked(2)
    made.tell(request)
    assert made.order() == "load large"


@pytest.mark.parametrize("size_bytes", [999_500_001, 2_619_836_479, 10**9, 142_000_001])
def test_the_words_of_a_refusal_are_rounded_so_that_the_number_does(size_bytes: int) -> None:
    for words, sign in ((rounded_up(size_bytes), 1), (rounded_down(size_bytes), -1)):
        number, unit = words.split()
        written = float(number) * {"GB": GB, "MB": 10**6}[unit]
        assert 0 <= sign * (written - size_bytes) < GB // 10


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
    assert (report.kind, report.facts["field"]) == ("invalid_placement", "placement")
    assert "such as staged-streamed" in report.message
    assert not made.orders


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


def unknown(placement: str = "auto") -> events.ModelFacts:
    """A model of which nobody knows the parts before it is loaded."""
    named = laddered(memory=MemorySettings(placement=placement))
    return msgspec.structs.replace(named, roles=())


@pytest.mark.parametrize("asked", ["by a job", "to be loaded", "to be held"])
def test_a_model_of_unknown_parts_is_loaded_as_a_whole_and_then_as_was_named(asked: str) -> None:
    made = stage(unknown("staged"))
    match asked:
        case "to be loaded":
            made.tell(events.ModelWanted("large"))
        case "to be held":
            made.hold("large")
        case _:
            made.submit("large")
    assert ordered(made) == RESIDENT
    loaded(made)
    if asked != "by a job":
        made.submit("large")
    assert ordered(made) == Placement(staged=(ENCODERS, VAE))
    loaded(made)
    made.answer()
    assert not made.conductor.snapshot(made.now).jobs


def test_a_job_may_name_the_rung_of_a_model_of_unknown_parts() -> None:
    made = stage(unknown())
    made.tell(msgspec.structs.replace(made.job_submitted("large"), placement="cpu-encoders"))
    loaded(made)
    assert ordered(made) == Placement(on_cpu=(ENCODERS,))
    loaded(made)
    assert made.order().startswith("run")


@pytest.mark.parametrize(
    ("roles", "why"),
    [
        ((RoleBytes(DENOISER, 27 * GB), RoleBytes(VAE, GB)), "no repeated blocks"),
        ((), "no parts"),
    ],
)
def test_a_job_fails_once_it_is_known_that_the_model_does_not_have_the_rung_that_was_named(
    roles: tuple[RoleBytes, ...], why: str
) -> None:
    made = stage(unknown("all-streamed"))
    job = made.submit("large")
    made.take_order("gpu0", "load")
    made.tell(events.SlotLoaded("gpu0", "large", 28 * GB, 1.0, roles=roles))
    error = made.job(job).error
    assert error is not None
    assert (error.kind, error.facts["field"]) == ("invalid_placement", "placement")
    assert why in error.message
    assert why in made.refused(made.job_submitted("large")).message
    made.tell(msgspec.structs.replace(made.job_submitted("large"), placement="none"))
    assert made.order().startswith("run")


@pytest.mark.parametrize("rung", ["resident", "staged", "aggressive", "streamed-encoders"])
def test_what_is_streamed_in_any_case_is_refused_beside_a_rung_that_streams_nothing(
    rung: str,
) -> None:
    """It would do nothing, and say nothing."""
    memory = MemorySettings(virtual_vram_bytes=8 * GB)
    made = stage(laddered(memory=memory))
    job = msgspec.structs.replace(made.job_submitted("large"), placement=rung)
    named = msgspec.structs.replace(memory, placement=rung)
    unknown = msgspec.structs.replace(laddered(memory=named), roles=())
    refusals = [
        made.refused(job),
        made.refused(events.PolicyChanged(Policy(placements={"large": rung}))),
        stage(laddered(memory=named)).refused(made.job_submitted("large")),
        stage(unknown).refused(made.job_submitted("large")),
    ]
    for refusal in refusals:
        assert 'virtual_vram_gb of "large": 8.0 GB' in refusal.message
        assert f'"{rung}" streams nothing' in refusal.message
        assert "staged-streamed" in refusal.message
    why = {each.rung: each.why for each in made.conductor.plan("large", TYPICAL, made.now).rungs}
    assert "virtual_vram_gb" in why["resident"]


@pytest.mark.parametrize("rung", ["auto", "streamed", "layer_streaming"])
def test_what_is_streamed_in_any_case_goes_with_a_rung_that_streams(rung: str) -> None:
    made = stage(laddered(memory=MemorySettings(virtual_vram_bytes=8 * GB)))
    made.tell(events.PolicyChanged(Policy(placements={"large": rung})))
    made.submit("large")
    assert ordered(made).streamed_bytes >= 8 * GB


@pytest.mark.parametrize("placement", ["auto", "staged-all"])
def test_too_much_that_stays_free_is_named_with_the_number_that_would_do(placement: str) -> None:
    def asked(free_bytes: int) -> tuple[Stage, events.JobSubmitted]:
        memory = MemorySettings(placement=placement, min_free_bytes=free_bytes)
        made = stage(laddered(memory=memory), gb=24)
        return made, made.job_submitted("large")

    made, request = asked(40 * GB)
    report = made.refused(request)
    assert report.kind == "model_too_large"
    most = report.facts["most_free_bytes"]
    assert isinstance(most, int)
    assert f"min_free_gb of the model may be {rounded_down(most)} at most" in report.message
    assert "another model" not in report.message
    made, request = asked(most)
    made.tell(request)
    assert made.order() == "load large"
    made, request = asked(most + 1)
    assert made.refused(request).facts["most_free_bytes"] == most


def test_a_smaller_picture_and_less_that_stays_free_are_both_named() -> None:
    made = stage(laddered(memory=MemorySettings(min_free_bytes=20 * GB)), gb=24)
    message = made.refused(made.job_submitted("large", pixels=16 * MEGAPIXEL)).message
    assert "pixels would fit, or min_free_gb of the model may be" in message


def test_what_stays_free_is_not_blamed_for_a_model_that_is_too_large_without() -> None:
    memory = MemorySettings(placement="resident", min_free_bytes=GB)
    made = stage(laddered(memory=memory), gb=24)
    report = made.refused(made.job_submitted("large"))
    assert "fits at no size" in report.message
    assert "most_free_bytes" not in report.facts
