"""What people are told, and what can be looked up."""

from tests.conductor.staging import GB, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.effects import Effect
from workshop_gpu.conductor.states import SlotState


def slots(new: list[Effect]) -> list[tuple[str, str, int]]:
    return [
        (effect.slot.model, effect.slot.state.value, effect.freed_bytes)
        for effect in new
        if isinstance(effect, effects.AnnounceSlot)
    ]


def test_a_slot_is_told_through_all_its_states() -> None:
    room = stage(model("a", keep_warm_s=60.0))
    room.load("a")
    room.later(60.0)
    room.answer()
    assert slots(room.said) == [
        ("a", "loading", 0),
        ("a", "ready", 0),
        ("a", "ready", 0),
        ("a", "leaving", 0),
        ("a", "absent", 30 * GB),
    ]


def test_an_eviction_says_for_whom() -> None:
    room = stage(gb=40)
    room.load("a")
    room.submit("b")
    leaving = [effect for effect in room.said if isinstance(effect, effects.AnnounceSlot)][-1]
    assert (leaving.slot.state, leaving.why) == (SlotState.LEAVING, "to make room for b")


def test_a_model_that_went_with_its_worker_is_told_as_absent() -> None:
    room = stage()
    room.load("a")
    assert slots(room.die()) == [("a", "absent", 30 * GB)]


def test_a_load_tells_how_far_it_is_and_how_fast_it_goes_until_it_is_over() -> None:
    room = stage()
    room.submit("a")
    room.tell(events.SlotProgressed("gpu0", "a", 3 * GB, 28 * GB, 12.5 * GB))
    slot = room.slot("a")
    assert (slot.done_bytes, slot.total_bytes, slot.bytes_per_s) == (3 * GB, 28 * GB, 12.5 * GB)
    room.answer()
    assert room.slot("a").bytes_per_s == 0


def test_orders_come_before_what_is_told_of_them() -> None:
    room = stage()
    kinds = [type(effect).__name__ for effect in room.tell(room.job_submitted("a"))]
    assert kinds == ["LoadModel", "AnnounceDevice", "AnnounceSlot", "AnnounceJob"]


def test_the_end_of_a_job_is_told_once_with_its_times() -> None:
    room = stage()
    room.load("a")
    room.now = 100.0
    job = room.submit("a")
    room.now = 105.0
    room.answer()
    ends = [
        effect.job
        for effect in room.said
        if isinstance(effect, effects.AnnounceJob) and effect.job.job == job
    ]
    assert [view.state.value for view in ends] == ["running", "running", "done"]
    assert ends[1].step == ends[1].steps, "drawn, and not yet on the disk"
    assert (ends[-1].submitted_s, ends[-1].started_s, ends[-1].ended_s) == (100.0, 100.0, 105.0)
    assert room.job(job) == ends[-1]


def test_the_snapshot_has_waiting_jobs_in_their_order_then_running_ones() -> None:
    room = stage()
    room.load("a")
    running = room.submit("a", "ada")
    later, sooner = room.submit("a", "ada"), room.submit("a", "bob")
    assert [view.job for view in room.conductor.snapshot(room.now).jobs] == [sooner, later, running]


def test_an_idle_slot_tells_for_how_long() -> None:
    room = stage()
    room.load("a")
    room.now += 42.0
    assert room.slot("a").idle_s == 42.0
    room.submit("a")
    assert room.slot("a").idle_s == 0.0


def test_another_reason_is_told_but_not_other_figures_of_memory() -> None:
    room = stage(gb=80)
    room.load("b")
    room.load("a")
    room.hold("a", "eve", ttl_s=3600.0, hold="one")
    room.hold("a", "fay", ttl_s=3600.0, hold="two")
    room.foreign(15.0)
    room.hold("b", "eve", ttl_s=3600.0, hold="three")
    job = room.submit("c", "ada")
    room.later(1.0)
    assert "a is held by 2 notebook(s)" in room.job(job).reason
    told = room.tell(events.HoldDropped("one"))
    assert [effect.job.job for effect in told if isinstance(effect, effects.AnnounceJob)] == [job]
    assert "a is held by 1 notebook(s)" in room.job(job).reason
    told = [*room.foreign(15.5), *room.later(1.0)]
    assert not [effect for effect in told if isinstance(effect, effects.AnnounceJob)]


def test_what_an_unknown_job_looks_like() -> None:
    assert stage().conductor.job("nothing") is None


def test_the_same_events_give_the_same_effects() -> None:
    def play() -> list[Effect]:
        room = stage(devices=("gpu0", "gpu1"), gb=70)
        for number in range(30):
            room.submit("abc"[number % 3], who=f"p{number % 11}")
            room.later(1.0)
            for device in list(room.orders):
                room.answer(device)
        room.settle()
        return room.said

    assert play() == play()


def test_slots_can_be_looked_at_without_the_queue() -> None:
    room = stage(gb=40)
    room.load("a")
    for _ in range(3):
        room.submit("b")
    assert room.conductor.slots(room.now) == room.conductor.snapshot(room.now).slots
    assert [slot.model for slot in room.conductor.slots(room.now)] == ["a"]
