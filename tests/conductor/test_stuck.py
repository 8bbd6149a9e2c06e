"""Nothing that cannot go on waits for ever, and nothing waits for what will not come."""

import msgspec
import pytest

from tests.conductor.laddered import laddered, loaded
from tests.conductor.staging import GB, MEGAPIXEL, Stage, model, stage
from workshop_gpu.conductor import events
from workshop_gpu.conductor.conductor import Conductor, Settings
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.states import Priority


def test_a_failed_load_on_the_only_card_that_is_large_enough_is_told_to_the_next_who_asks() -> None:
    made = Stage(Conductor(Settings(), ("gpu0", "gpu1")))
    made.tell(events.CatalogueChanged((model("a"),)))
    made.ready("gpu0", gb=80)
    made.ready("gpu1", gb=24)
    made.submit("a")
    made.fail("gpu0")
    made.later(5.0)
    refusal = made.refused(made.job_submitted("a", "bob"))
    assert (refusal.kind, refusal.facts["retry_in_s"]) == ("load_failed", 25.0)
    made.later(25.0)
    made.submit("a", "bob")
    assert made.order("gpu0") == "load a"


def test_a_load_that_failed_long_ago_keeps_no_gpu_from_its_model() -> None:
    made = stage(model("a"), devices=("gpu0", "gpu1"), settings=Settings(queue_limit=30))
    first = made.submit("a")
    made.fail("gpu0")
    made.answer("gpu1")
    made.answer("gpu1")
    assert made.state(first) == "done"
    made.later(600.0)
    for _ in range(8):
        made.submit("a", "bob")
    assert made.order("gpu0") == "load a"


@pytest.mark.parametrize("rung", ["resident", "tiled"])
def test_a_waiting_job_fails_when_the_instructor_names_a_rung_that_cannot_be(rung: str) -> None:
    made = stage(laddered(), gb=20)
    made.tell(events.PolicyChanged(Policy(paused="lunch")))
    job = made.submit("large")
    made.tell(events.PolicyChanged(Policy(placements={"large": rung})))
    assert made.state(job) == "failed"
    assert made.job(job).error is not None


@pytest.mark.parametrize(
    "memory",
    [MemorySettings(max_vram_bytes=GB // 2), MemorySettings(placement="swap-encoders")],
    ids=["too low a cap", "a rung that takes another GPU"],
)
def test_a_waiting_job_fails_when_the_catalogue_s_settings_become_impossible(
    memory: MemorySettings,
) -> None:
    made = stage(laddered(), gb=80)
    made.tell(events.PolicyChanged(Policy(paused="lunch")))
    job = made.submit("large")
    made.tell(events.CatalogueChanged((laddered("large", memory),)))
    error = made.job(job).error
    assert error is not None
    assert error.kind == "invalid_placement"


def test_a_reservation_does_not_wait_behind_a_job_whose_model_is_being_downloaded() -> None:
    made = stage(model("far", on_disk=False))
    made.submit("far")
    made.tell(events.ReservationAsked("room", "bob", "kernel-bob", 8 * GB, None, 60.0))
    assert made.conductor.reservation("room", made.now).state.value == "granted"


def test_a_reservation_does_not_wait_behind_a_queue_that_is_paused() -> None:
    made = stage()
    made.tell(events.PolicyChanged(Policy(paused="lunch")))
    made.submit("a")
    made.tell(events.ReservationAsked("room", "bob", "kernel-bob", 8 * GB, None, 60.0))
    assert made.conductor.reservation("room", made.now).state.value == "granted"


def test_a_reading_of_nothing_at_all_is_not_believed_while_models_are_there() -> None:
    made = stage()
    made.load("a")
    made.foreign(40)
    free_gb = made.free_gb()
    made.tell(events.MemoryRead("gpu0", 0, 0))
    assert made.free_gb() == free_gb


def test_a_reading_of_nothing_is_believed_where_all_models_have_nothing_there() -> None:
    """Else what the driver said before that keeps the room for good."""
    made = stage(laddered(memory=MemorySettings(placement="staged-all")))
    made.submit("large")
    loaded(made)
    made.answer()
    made.foreign(70)
    waits = made.submit("large")
    assert not made.orders
    made.tell(events.MemoryRead("gpu0", 0, 0))
    assert made.order() == f"run {waits}"


def test_a_job_reserves_nothing_where_its_model_has_no_room_with_what_it_must_leave_free() -> None:
    """As a whole it would fit there, but for that."""
    careful = laddered("small", MemorySettings(min_free_bytes=10 * GB))
    made = stage(careful, model("a", 6), model("b", 6), devices=("gpu0", "gpu1"))
    made.ready("gpu0", 24.0, foreign_gb=20.0)
    made.ready("gpu1", 10.0)
    made.load("a", device="gpu1")
    made.later(60.0)
    made.submit("small", "bob")
    made.submit("b", "cleo")
    assert made.order("gpu1") == "evict a"


def test_an_idle_model_that_climbs_is_not_kept_warm_for_longer() -> None:
    made = stage(msgspec.structs.replace(laddered(), keep_warm_s=60.0), gb=48)
    made.foreign(36)
    job = made.submit("large")
    while made.order().startswith("load"):
        loaded(made)
    made.take_order()
    made.finish(job, 24.0)
    made.foreign(0)
    made.later(50.0)
    assert made.order() == "load large"
    loaded(made)
    made.later(9.0)
    assert made.order() == "evict large"


def with_two_copies() -> Stage:
    """Two cards, each with room for one model; "a" is ready on both, and nobody waits for it."""
    models = [model(name, gb=60.0) for name in ("a", "b", "c")]
    made = stage(*models, devices=("gpu0", "gpu1"), settings=Settings(queue_limit=30))
    for _ in range(8):
        made.submit("a")
    made.settle()
    assert made.models("gpu0") == made.models("gpu1") == ["a"]
    made.later(600.0)
    return made


@pytest.mark.parametrize("kept_by", ["hold", "pin"])
def test_a_hold_or_a_pin_keeps_one_copy_and_not_all_of_them(kept_by: str) -> None:
    made = with_two_copies()
    if kept_by == "hold":
        made.hold("a", ttl_s=10_000.0)
    else:
        made.tell(events.PolicyChanged(Policy(pinned={"a": True})))
    first = made.submit("b", "bob")
    made.settle()
    assert made.state(first) == "done"
    second = made.submit("c", "cleo")
    made.settle()
    assert made.state(second) == "done"
    here = sorted([*made.models("gpu0"), *made.models("gpu1")])
    assert here == ["a", "c"], "the last copy stays"


def test_a_reservation_takes_the_place_of_a_second_copy_of_what_is_held() -> None:
    made = with_two_copies()
    made.hold("a", ttl_s=10_000.0)
    for name, who in (("room-1", "bob"), ("room-2", "cleo")):
        made.tell(events.ReservationAsked(name, who, f"kernel-{who}", 70 * GB, None, 600.0))
        if made.order("gpu0") == "evict a":
            made.answer("gpu0")
    states = [made.conductor.reservation(f"room-{n}", made.now).state.value for n in (1, 2)]
    assert states == ["granted", "waiting"]
    assert made.models("gpu1") == ["a"], "the last copy stays"


def crowded(job_megapixels: list[int]) -> tuple[Stage, list[str]]:
    """The model is ready, strangers hold 40 GB, and these jobs wait for what is left: 9 GB."""
    made = stage(model("a"), settings=Settings(queue_limit=200))
    made.load("a")
    made.foreign(40)
    jobs = [made.submit("a", pixels=each * MEGAPIXEL) for each in job_megapixels]
    return made, jobs


@pytest.mark.parametrize("large", [[16] * 8, [16] * 150, [*range(8, 26)], [*range(8, 26)] * 4])
def test_a_small_job_runs_beside_strangers_however_many_large_ones_wait_before_it(
    large: list[int],
) -> None:
    made, jobs = crowded([*large, 1])
    assert made.order() == f"run {jobs[-1]}"
    assert {made.state(job) for job in jobs[:-1]} == {"queued"}
    made.answer()
    made.foreign(0)
    made.settle()
    assert {made.state(job) for job in jobs} == {"done"}


def test_of_small_jobs_behind_many_large_ones_that_of_the_better_class_goes_first() -> None:
    made, _ = crowded([16] * 40)
    made.tell(events.PolicyChanged(Policy(paused="lunch", queue_limit=200)))
    late = made.submit("a", priority=Priority.LOW)
    early = made.submit("a")
    made.tell(events.PolicyChanged(Policy(queue_limit=200)))
    assert made.order() == f"run {early}"
    assert made.state(late) == "queued"


def test_a_model_is_loaded_for_a_small_job_where_the_large_ones_before_it_have_no_room() -> None:
    made = stage(model("a"), settings=Settings(queue_limit=200))
    made.foreign(40)
    large = [made.submit("a", pixels=16 * MEGAPIXEL) for _ in range(9)]
    assert not made.orders
    small = made.submit("a")
    assert made.order() == "load a"
    made.answer()
    assert made.order() == f"run {small}"
    made.answer()
    made.foreign(0)
    made.settle()
    assert {made.state(job) for job in large} == {"done"}


def test_small_jobs_beside_a_large_one_do_not_overtake_those_between_for_ever() -> None:
    """The large job is before the other model's, but has no room: only the small ones behind it
    overtake that one, and they do so no longer than the patience lasts."""
    made = stage(model("a"), model("b", gb=10.0), settings=Settings(queue_limit=200))
    made.load("a", "b")
    made.foreign(30)
    made.submit("a", pixels=16 * MEGAPIXEL)
    running = made.submit("a", "cleo")
    other = made.submit("b", "bob")
    for _ in range(30):
        assert made.state(running) == "running"
        if made.state(other) == "running":
            break
        next_ = made.submit("a", "cleo")
        made.now += 5.0
        made.answer()
        running = next_ if made.state(other) == "queued" else other
    assert made.state(other) == "running"


def stuck_beside(what: str) -> tuple[Stage, str]:
    """The model is ready, and its only job has no room beside the pinned model, or strangers."""
    made = stage(model("a"), model("b"), model("c"))
    made.load("a")
    if what == "pin":
        made.tell(events.PolicyChanged(Policy(pinned={"c": True})))
        made.answer()
    else:
        made.foreign(40)
    job = made.submit("a", pixels=16 * MEGAPIXEL)
    assert made.job(job).waiting_for in ("room", "pin")
    return made, job


@pytest.mark.parametrize("what", ["pin", "strangers"])
def test_others_are_loaded_in_place_of_a_model_whose_job_has_no_room(what: str) -> None:
    made, stuck = stuck_beside(what)
    job = made.submit("b", "bob")
    made.later(60.0)
    assert made.order() == "evict a"
    made.answer()
    made.answer()
    made.answer()
    assert (made.state(job), made.state(stuck)) == ("done", "queued")
    made.later(60.0)
    assert not made.orders, "there is still no room for it"
    made.foreign(0)
    made.tell(events.PolicyChanged(Policy()))
    made.settle()
    assert made.state(stuck) == "done"


def test_a_model_whose_small_job_can_run_stays_though_its_large_one_cannot() -> None:
    made, _ = stuck_beside("strangers")
    small = made.submit("a", "cleo")
    made.submit("b", "bob")
    assert made.orders_of("gpu0") == [f"run {small}"]
    made.answer()
    assert made.order() == "evict a"


@pytest.mark.parametrize("what", ["pin", "strangers"])
def test_a_reservation_does_not_wait_behind_a_job_that_has_no_room(what: str) -> None:
    made, stuck = stuck_beside(what)
    made.tell(events.ReservationAsked("room", "bob", "kernel-bob", 8 * GB, None, 60.0))
    assert made.conductor.reservation("room", made.now).state.value == "granted"
    assert made.state(stuck) == "queued"


def test_a_reservation_does_not_wait_behind_a_job_where_only_others_of_its_model_can_run() -> None:
    """The card that is large enough for the rung that it names is full of strangers; on the other
    one the same model draws all the time."""
    made = stage(laddered("middle"), devices=("gpu0", "gpu1"))
    made.ready("gpu0", 24.0, foreign_gb=22.0)
    made.ready("gpu1", 10.0)
    made.submit("middle", "cleo")
    loaded(made, "gpu1")
    named = msgspec.structs.replace(made.job_submitted("middle", "ada"), placement="resident")
    made.tell(named)
    made.tell(events.ReservationAsked("room", "bob", "kernel-bob", 8 * GB, "gpu1", 600.0))
    made.submit("middle", "cleo")
    made.answer("gpu1")
    assert made.order("gpu1") == "evict middle"
    made.answer("gpu1")
    assert made.conductor.reservation("room", made.now).state.value == "granted"
    assert made.state(named.job) == "queued"
