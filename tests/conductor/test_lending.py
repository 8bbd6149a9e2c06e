"""Memory of one GPU for a model of another: its text encoders live there, or its blocks come from
there. Every byte is in that GPU's account, and whoever works there comes first."""

import msgspec
import pytest

from tests.conductor.laddered import laddered, loaded, ordered
from tests.conductor.staging import GB, MEGAPIXEL, Stage, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.planning import Size
from workshop_gpu.conductor.rungs import ENCODERS

ENCODERS_GB = 11.16
SWAPS = MemorySettings(swap_device="gpu1")
BY_NAME = MemorySettings(swap_device="gpu1", placement="swap-encoders")
TWO = ("gpu0", "gpu1")


def room(memory: MemorySettings = SWAPS, gb: float = 24.0, other_gb: float = 24.0) -> Stage:
    """Two GPUs, and a model that does not fit on either as a whole."""
    made = stage(laddered(memory=memory), laddered("small"), devices=TWO)
    made.ready("gpu0", gb)
    made.ready("gpu1", other_gb)
    return made


def lent_gb(made: Stage, device: str = "gpu1") -> float:
    """What others' models have there, by their names."""
    views = made.conductor.snapshot(made.now).devices
    holders = next(view for view in views if view.device == device).holders
    return sum(each.bytes for each in holders if each.name.startswith("large on ")) / GB


def holders_on(made: Stage, device: str) -> tuple[effects.Holder, ...]:
    views = made.conductor.snapshot(made.now).devices
    return next(view for view in views if view.device == device).holders


def drawn(made: Stage, device: str = "gpu0") -> None:
    made.submit("large")
    if not made.order(device).startswith("run"):
        loaded(made, device)
    made.answer(device, which="run")


def test_the_text_encoders_of_a_model_with_a_swap_device_live_there() -> None:
    made = room()
    made.submit("large")
    placement = ordered(made)
    assert (placement.elsewhere, placement.source) == ((ENCODERS,), "gpu1")
    assert lent_gb(made) == ENCODERS_GB, "from the admission of the load on"
    loaded(made)
    assert made.order() == "run job-1"
    assert lent_gb(made) == ENCODERS_GB
    free_gb = made.free_gb("gpu1")
    made.answer(which="run")
    made.tell(events.EvictionAsked("large"))
    assert lent_gb(made) == ENCODERS_GB, "until the bytes are back"
    made.answer(which="evict")
    assert lent_gb(made) == 0
    assert made.free_gb("gpu1") == free_gb + ENCODERS_GB


def test_a_model_that_fits_has_nothing_on_its_swap_device() -> None:
    """Its text encoders take as long to come there as to its own device."""
    made = room(gb=80)
    for _ in range(3):
        drawn(made)
        assert made.slot("large").placement == "everything on the GPU"
        assert lent_gb(made) == 0
        made.later(20.0)
        assert not made.orders


def test_encoders_that_two_models_share_count_once_there() -> None:
    """By what their loads have told; the second time their room need not be there twice."""
    shared = (events.PartBytes("t5", 10 * GB),)
    made = stage(laddered(memory=BY_NAME), laddered("twin", memory=BY_NAME), devices=TWO)
    made.ready("gpu0", 48.0)
    made.ready("gpu1", 48.0)
    for name in ("large", "twin"):
        made.submit(name)
        loaded(made, encoders=shared)
        made.answer("gpu0", which="run")
    free_gb = made.free_gb("gpu1")
    holders = {each.name: each.bytes / GB for each in holders_on(made, "gpu1")}
    own_gb = pytest.approx(ENCODERS_GB - 10.0)
    assert holders["shared by large, twin on gpu0"] == 10.0
    assert (holders["large on gpu0"], holders["twin on gpu0"]) == (own_gb, own_gb)

    made.tell(events.EvictionAsked("twin"))
    made.answer("gpu0", which="evict")
    assert made.free_gb("gpu1") == pytest.approx(free_gb + ENCODERS_GB - 10.0)
    assert lent_gb(made) == ENCODERS_GB
    made.tell(events.MemoryRead("gpu1", int((made.free_gb("gpu1") - 5.0) * GB), 0))
    made.submit("twin")
    assert ordered(made).elsewhere == (ENCODERS,), "5 GB are free, and 1.2 GB have to come"
    loaded(made, encoders=shared)
    made.answer("gpu0", which="run")
    made.tell(events.EvictionAsked("large"))
    made.answer("gpu0", which="evict")
    holders = {each.name: each.bytes / GB for each in holders_on(made, "gpu1")}
    assert holders["twin on gpu0"] == ENCODERS_GB


def test_what_others_have_there_gives_no_room_to_stream_from_there() -> None:
    """Only who uses the encoders there can count on them."""
    shared = (events.PartBytes("t5", 11 * GB),)
    streams = MemorySettings(swap_device="gpu1", placement="swap-streamed")
    made = stage(laddered(memory=BY_NAME), laddered("twin", memory=BY_NAME), devices=TWO)
    made.ready("gpu0", 48.0)
    made.ready("gpu1", 24.0)
    for name in ("twin", "large"):
        made.submit(name)
        loaded(made, encoders=shared)
        made.answer("gpu0", which="run")
    made.tell(events.EvictionAsked("twin"))
    made.answer("gpu0", which="evict")
    made.hold("large")
    made.foreign(14.0, "gpu0")
    left_gb = made.free_gb("gpu1")
    made.tell(events.CatalogueChanged((laddered(memory=BY_NAME), laddered("twin", memory=streams))))
    plan = made.conductor.plan("twin", Size(MEGAPIXEL, 1, 28), made.now, "gpu0")
    rungs = {rung.rung: rung for rung in plan.rungs}
    assert left_gb - 0.5 < rungs["swap-streamed"].elsewhere_bytes / GB <= left_gb
    assert rungs["swap-streamed"].why.endswith("are missing")
    assert rungs["swap-both"].elsewhere_bytes / GB > left_gb, "11 GB of it are there"
    made.submit("twin")
    assert not made.orders


def test_without_a_swap_device_nothing_of_it_goes_to_another_gpu() -> None:
    made = room(MemorySettings())
    made.submit("large")
    assert ordered(made).source == ""
    assert lent_gb(made) == 0


def test_on_the_swap_device_itself_the_model_is_placed_as_any_other() -> None:
    made = room(gb=2.0)
    made.submit("large")
    assert ordered(made, "gpu1").source == ""


def test_a_card_that_holds_only_some_blocks_gets_the_others_from_there() -> None:
    made = room(MemorySettings(swap_device="gpu1", placement="swap-both"), gb=10.0)
    made.submit("large")
    placement = ordered(made)
    assert placement.streamed_bytes > 6 * GB
    assert lent_gb(made) == ENCODERS_GB + placement.streamed_bytes / GB
    assert "from gpu1" in placement.name


def test_where_it_has_no_room_the_weights_come_from_the_host() -> None:
    made = room(other_gb=80.0)
    made.foreign(70.0, "gpu1")
    made.foreign(20.0, "gpu1")
    made.foreign(72.0, "gpu1")
    plan = made.conductor.plan("large", Size(MEGAPIXEL, 1, 28), made.now, "gpu0")
    why = {rung.rung: rung.why for rung in plan.rungs}
    assert why["swap-encoders"].endswith("are missing on gpu1")
    made.submit("large")
    assert ordered(made).source == ""


def test_a_named_rung_waits_until_it_has_room() -> None:
    made = room(BY_NAME, other_gb=80.0)
    made.foreign(75.0, "gpu1")
    made.submit("large")
    assert not made.orders
    made.foreign(1.0, "gpu1")
    assert ordered(made).elsewhere == (ENCODERS,)


def test_idle_models_leave_the_other_gpu_for_one_that_has_no_rung_without_it() -> None:
    made = stage(
        laddered(memory=BY_NAME),
        laddered("middle", memory=MemorySettings(placement="resident")),
        devices=TWO,
    )
    made.ready("gpu1", 20.0)
    made.tell(events.DeviceGone("gpu0", "not there yet", 60.0))
    made.hold("middle", "ben", ttl_s=600.0)
    loaded(made, "gpu1")
    made.ready("gpu0", 24.0)
    made.later(60.0)
    held = made.submit("large")
    made.later(1.0)
    assert not made.orders
    view = made.job(held)
    assert view.waiting_for == "room"
    assert view.reason == "middle is held by 1 notebook(s)."
    made.tell(events.HoldDropped("hold"))
    assert made.order("gpu1") == "evict middle"
    made.answer("gpu1")
    assert ordered(made).elsewhere == (ENCODERS,)


def test_a_model_does_not_wait_for_its_swap_device_to_take_it() -> None:
    """There it has no rung; what it waits for is the room on the other one, and it is told so."""
    other = msgspec.structs.replace(laddered("middle"), pinned=True)
    made = stage(laddered(memory=BY_NAME), other, devices=TWO)
    made.tell(events.DeviceGone("gpu1", "not there yet", 60.0))
    made.orders.clear()
    made.ready("gpu0", 24.0)
    loaded(made)
    made.ready("gpu1", 24.0)
    view = made.job(made.submit("large"))
    assert not made.orders
    assert (view.waiting_for, view.reason) == ("pin", "middle is pinned.")


def test_a_job_is_told_who_fills_its_swap_device_for_good() -> None:
    """There is no room for it until they leave, so no GPU is kept for it either."""
    made = stage(laddered(memory=BY_NAME), devices=TWO)
    made.ready("gpu0", 24.0)
    made.ready("gpu1", 24.0)
    made.tell(events.MemoryRead("gpu1", 20 * GB, 0))
    large = made.submit("large")
    made.later(30.0)
    assert not made.orders
    assert made.job(large).waiting_for == "foreign"


def test_a_load_that_fails_gives_back_what_it_was_promised() -> None:
    made = room()
    made.submit("large")
    made.fail()
    assert lent_gb(made) == 0


def test_with_the_worker_goes_what_it_held_on_both_gpus() -> None:
    made = room()
    drawn(made)
    held = {"gpu1": int((ENCODERS_GB + 0.5) * GB)}
    made.tell(events.MemoryRead("gpu0", 20 * GB, 20 * GB, elsewhere=held))
    before_gb = made.free_gb("gpu1")
    made.die("gpu1")
    made.ready("gpu1", 24.0, foreign_gb=ENCODERS_GB + 0.5)
    assert lent_gb(made) == ENCODERS_GB, "the other worker still has it"
    assert made.free_gb("gpu1") == pytest.approx(before_gb)
    made.die("gpu0")
    assert lent_gb(made) == 0
    assert made.free_gb("gpu1") == pytest.approx(before_gb + ENCODERS_GB + 0.5)


def test_what_a_neighbour_holds_is_not_foreign_and_counts_once() -> None:
    made = room()
    drawn(made)
    free_gb = made.free_gb("gpu1")
    context_gb = 0.5
    held = {"gpu1": int((ENCODERS_GB + context_gb) * GB)}
    made.tell(events.MemoryRead("gpu0", 20 * GB, 20 * GB, elsewhere=held))
    used = int((ENCODERS_GB + context_gb + 3.0 + 0.4) * GB)
    made.tell(events.MemoryRead("gpu1", used, int(0.4 * GB)))
    view = made.conductor.snapshot(made.now).devices[1]
    named = {(each.kind, each.name): each.bytes / GB for each in view.holders}
    assert named["weights", "large on gpu0"] == ENCODERS_GB
    assert named["cache", "worker of gpu0"] == pytest.approx(context_gb)
    assert named["foreign", "other processes"] == pytest.approx(3.0)
    assert made.free_gb("gpu1") == pytest.approx(free_gb - context_gb - 3.0)


def test_an_idle_model_leaves_for_those_who_need_the_other_gpu() -> None:
    made = room(BY_NAME)
    drawn(made)
    other = laddered("middle", MemorySettings(placement="resident"))
    made.tell(events.CatalogueChanged((laddered(memory=BY_NAME), other)))
    made.tell(events.MemoryRead("gpu1", 5 * GB, 0))
    made.foreign(22.5, "gpu0")
    made.submit("middle")
    assert made.order("gpu0") == "evict large"
    made.answer("gpu0")
    assert made.order("gpu1") == "load middle"


def test_a_gpu_that_is_cleared_gets_all_its_memory_back() -> None:
    made = room()
    drawn(made)
    asked = events.ReservationAsked("mine", "teacher", None, None, "gpu1")
    made.tell(asked)
    assert ordered(made).source == ""
    assert lent_gb(made) == ENCODERS_GB, "until it has arrived"
    loaded(made)
    view = made.conductor.reservation("mine", made.now)
    assert (view.state.value, view.device) == ("granted", "gpu1")
    made.submit("large")
    assert made.order("gpu0") == "run job-2", "a closed GPU lends nothing"


def test_room_for_own_code_is_made_by_idle_models_of_other_gpus() -> None:
    made = room()
    drawn(made)
    asked = events.ReservationAsked("mine", "ada", "kernel-ada", 18 * GB, "gpu1", 600.0)
    made.tell(asked)
    assert ordered(made).source == "", "it goes on with weights from host memory"
    loaded(made)
    assert made.models("gpu0") == ["large"]
    assert made.conductor.reservation("mine", made.now).state.value == "granted"


def test_a_model_without_another_rung_leaves_for_own_code_unless_it_is_held() -> None:
    asked = events.ReservationAsked("mine", "ada", "kernel-ada", 18 * GB, "gpu1", 600.0)
    made = room(BY_NAME)
    drawn(made)
    made.hold("large", "ben")
    made.tell(asked)
    assert not made.orders
    view = made.conductor.reservation("mine", made.now)
    assert view.reason == "large on gpu0, which has 11.2 GB here, is held by 1 notebook(s)"
    made.tell(events.HoldDropped("hold"))
    assert made.order("gpu0") == "evict large"
    made.answer("gpu0")
    assert made.conductor.reservation("mine", made.now).state.value == "granted"


def test_a_held_model_gives_memory_back_between_its_jobs_and_stays_ready() -> None:
    made = room()
    drawn(made)
    made.hold("large", "ben")
    made.submit("large")
    assert made.order("gpu0") == "run job-2"
    asked = events.ReservationAsked("mine", "ada", "kernel-ada", 18 * GB, "gpu1", 600.0)
    made.tell(asked)
    assert made.order("gpu0") == "run job-2"
    assert made.conductor.reservation("mine", made.now).state.value == "waiting"
    made.answer("gpu0", which="run")
    assert ordered(made).source == ""
    loaded(made)
    assert made.models("gpu0") == ["large"]
    assert made.conductor.reservation("mine", made.now).state.value == "granted"


def test_nothing_is_called_back_where_that_would_not_be_enough() -> None:
    made = room()
    drawn(made)
    made.tell(events.MemoryRead("gpu1", 8 * GB, 0))
    asked = events.ReservationAsked("mine", "ada", "kernel-ada", 18 * GB, "gpu1", 600.0)
    made.tell(asked)
    assert not made.orders
    reason = made.conductor.reservation("mine", made.now).reason
    assert reason == "8.0 GB are taken by other processes"


@pytest.mark.parametrize("wants", ["hold", "pin"])
def test_what_is_lent_comes_back_for_a_model_that_is_held_or_pinned(wants: str) -> None:
    """The borrower, which is held too, stays ready on a rung without it, and does not take it
    again before the other has come."""
    made = room()
    drawn(made)
    made.hold("large", "ben", hold="ben's")
    whole = MemorySettings(placement="resident")
    middle = laddered("middle", whole)
    made.tell(events.MemoryRead("gpu1", 3 * GB, 0))
    facts = msgspec.structs.replace(middle, pinned=wants == "pin")
    made.tell(events.CatalogueChanged((laddered(memory=SWAPS), facts)))
    if wants == "hold":
        made.hold("middle", "ada")
    assert ordered(made).source == ""
    made.submit("large")
    loaded(made)
    assert made.order("gpu1") == "load middle"
    assert (made.models("gpu0"), lent_gb(made)) == (["large"], 0.0)
    made.answer("gpu0", which="run")
    loaded(made, "gpu1")
    assert made.models("gpu1") == ["middle"]


def test_models_leave_as_soon_as_the_other_gpu_is_gone() -> None:
    made = room()
    drawn(made)
    made.tell(events.DeviceGone("gpu1", "it fell off the bus", 60.0))
    assert made.order("gpu0") == "evict large"
    made.answer("gpu0")
    made.submit("large")
    assert ordered(made).source == ""


def test_a_worker_that_does_not_see_the_swap_device_is_replaced_once() -> None:
    made = stage(laddered(), devices=TWO)
    for device in TWO:
        made.tell(events.DeviceReady(device, 24 * GB))
    made.later(1.0)
    assert not [each for each in made.said if isinstance(each, effects.StopWorker)]
    made.tell(events.CatalogueChanged((laddered(memory=SWAPS),)))
    made.later(1.0)
    (stopped,) = [each for each in made.said if isinstance(each, effects.StopWorker)]
    assert (stopped.device, "gpu1" in stopped.reason) == ("gpu0", True)
    made.die("gpu0")
    made.tell(events.DeviceReady("gpu0", 24 * GB))  # one that cannot see it at all
    made.later(1.0)
    assert len([each for each in made.said if isinstance(each, effects.StopWorker)]) == 1
    made.submit("large")
    assert ordered(made).source == ""


@pytest.mark.parametrize(
    ("memory", "devices", "said"),
    [
        (MemorySettings(swap_device="gpu7"), TWO, 'there is no "gpu7"'),
        (MemorySettings(swap_device="gpu0"), ("gpu0",), "the only GPU here"),
        (MemorySettings(swap_device="cpu:1"), ("cuda:0", "cpu:1"), "another kind"),
        (MemorySettings(placement="swap-encoders"), TWO, "name one"),
        (BY_NAME, ("gpu0", "gpu1"), "at least 11.2 GB there"),
    ],
)
def test_a_swap_device_that_cannot_be_one_is_refused(
    memory: MemorySettings, devices: tuple[str, ...], said: str
) -> None:
    made = stage(laddered(memory=memory), devices=devices)
    made.ready(devices[-1], 8.0)
    report = made.refused(made.job_submitted("large"))
    assert (report.kind, report.facts["field"]) == ("invalid_placement", "swap_device")
    assert said in report.message


def test_the_plan_lists_what_another_gpu_could_do() -> None:
    made = room(MemorySettings())
    plan = made.conductor.plan("large", Size(MEGAPIXEL, 1, 28), made.now, "gpu0")
    rungs = {rung.rung: rung for rung in plan.rungs}
    assert rungs["swap-encoders"].elsewhere_bytes == ENCODERS_GB * GB
    assert 'swap_device = "gpu1"' in rungs["swap-encoders"].why
    assert not rungs["swap-encoders"].chosen
    alone = stage(laddered())
    named = {
        rung.rung for rung in alone.conductor.plan("large", Size(MEGAPIXEL, 1, 28), alone.now).rungs
    }
    assert not {name for name in named if name.startswith("swap-")}

    made = room()
    rungs = {
        rung.rung: rung
        for rung in made.conductor.plan("large", Size(MEGAPIXEL, 1, 28), made.now, "gpu0").rungs
    }
    assert rungs["swap-encoders"].chosen
