"""Room for somebody's own code: asked for, waited for, granted, ended."""

import pytest

from tests.conductor.staging import GB, Stage, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Settings
from workshop_gpu.conductor.effects import ReservationView
from workshop_gpu.conductor.errors import WorkshopError
from workshop_gpu.conductor.people import with_names
from workshop_gpu.conductor.states import Priority, ReservationState


def asked(
    gb: float | None = 8.0,
    who: str = "ada",
    name: str = "r",
    device: str | None = None,
    ttl_s: float | None = 60.0,
) -> events.ReservationAsked:
    size_bytes = None if gb is None else int(gb * GB)
    return events.ReservationAsked(name, who, f"kernel-{who}", size_bytes, device, ttl_s)


def cleared(device: str | None = "gpu0") -> events.ReservationAsked:
    return events.ReservationAsked("clear", "teacher", None, None, device)


def view(room: Stage, name: str = "r") -> ReservationView:
    return room.conductor.reservation(name, room.now)


def granted(room: Stage, name: str = "r") -> bool:
    return view(room, name).state is ReservationState.GRANTED


def ends(room: Stage) -> list[str]:
    return [
        each.ended
        for each in room.said
        if isinstance(each, effects.AnnounceReservation) and each.ended
    ]


def in_words(reason: str) -> str:
    return with_names(reason, lambda participant: f"<{participant}>")


# getting room


def test_where_there_is_room_it_is_granted_at_once_and_counted() -> None:
    room = stage()
    new = room.tell(asked(8))
    assert granted(room)
    assert room.free_gb() == 79 - 8
    assert view(room).device == "gpu0"
    assert any(isinstance(each, effects.AnnounceReservation) for each in new)


def test_idle_models_leave_for_it_and_no_more_than_needed() -> None:
    room = stage()
    room.load("a", "b")
    room.tell(asked(40))
    assert room.order() == "evict a"
    assert view(room).state is ReservationState.WAITING
    room.answer()
    assert granted(room)
    assert room.models() == ["b"]
    assert room.order() == ""


def test_a_running_job_finishes_before_its_model_leaves() -> None:
    room = stage(gb=40)
    room.load("a")
    job = room.submit("a", "bob")
    room.tell(asked(20))
    assert room.orders_of() == [f"run {job}"]
    room.answer()
    assert room.state(job) == "done"
    assert room.order() == "evict a"
    room.answer()
    assert granted(room)


def test_the_jobs_of_a_busy_model_do_not_keep_it_out_for_ever() -> None:
    room = stage(gb=40, settings=Settings(queue_limit=100))
    room.load("a")
    for _ in range(20):
        room.submit("a", "bob")
    room.tell(asked(20))
    for _ in range(20):
        if granted(room):
            break
        room.now += 5.0
        room.answer()
    assert granted(room)
    assert room.now < 1.0 + 20.0 + 5.0 + 5.0 + 5.0


def test_who_has_used_less_goes_before_the_jobs_of_who_has_used_more() -> None:
    room = stage(gb=40, settings=Settings(queue_limit=10))
    room.load("a", who="bob")
    for _ in range(3):
        room.submit("a", "bob")
    room.tell(asked(20, "ada"))
    room.now += 5.0
    room.answer()
    assert room.order() == "evict a"
    assert not room.conductor.snapshot(room.now).jobs[0].device


def test_jobs_that_find_no_room_beside_it_say_so() -> None:
    room = stage(gb=40)
    room.tell(asked(20))
    job = room.submit("a", "bob")
    told = room.job(job)
    assert told.waiting_for == "reservation"
    assert in_words(told.reason) == "<ada> has 20.0 GB of gpu0."
    room.tell(events.ReservationDropped("r"))
    assert room.order() == "load a"


def test_a_held_model_keeps_it_waiting_and_jobs_go_on_meanwhile() -> None:
    room = stage(gb=40)
    room.load("a")
    room.hold("a", "bob", ttl_s=100.0)
    room.tell(asked(20))
    assert view(room).reason == "a is held by 1 notebook(s)"
    assert view(room).expected_wait_s is None
    room.now += 30.0
    room.tell(events.ReservationRenewed("r", "kernel-ada", 600.0))
    job = room.submit("a", "cleo")
    assert room.order() == f"run {job}"
    room.answer()
    room.tell(events.HoldDropped("hold"))
    assert room.order() == "evict a"
    room.answer()
    assert granted(room)


def test_of_two_gpus_the_one_with_room_is_taken_and_nothing_leaves_the_other() -> None:
    room = stage(devices=("gpu0", "gpu1"))
    room.load("a")
    room.tell(asked(60))
    assert view(room).device == "gpu1"
    assert room.orders == {}


def test_while_a_model_leaves_for_it_nothing_leaves_elsewhere() -> None:
    room = stage(devices=("gpu0", "gpu1"), gb=40)
    room.load("a")
    room.submit("a", "bob")
    room.submit("b", "cleo")
    room.answer("gpu1")
    room.answer("gpu1")
    room.answer("gpu0")
    room.now += 60.0
    room.tell(asked(30))
    first = [device for device in ("gpu0", "gpu1") if room.order(device)]
    assert len(first) == 1
    room.later(1.0)
    assert [device for device in ("gpu0", "gpu1") if room.order(device)] == first


def test_what_its_kernel_holds_already_is_not_asked_for_twice() -> None:
    room = stage(gb=40)
    room.load("a")
    process = events.ForeignProcess("mine.ipynb", 1, "kernel-ada", 6 * GB)
    room.tell(events.MemoryRead("gpu0", 36 * GB, 30 * GB, (process,)))
    assert room.free_gb() == 39 - 36
    room.tell(asked(8))
    assert granted(room)
    assert room.free_gb() == 39 - 30 - 8


@pytest.mark.parametrize("kernel", ["kernel-ada", None])
def test_where_nobody_knows_whose_memory_it_is_jobs_run_beside_a_reservation_that_is_used(
    kernel: str | None,
) -> None:
    room = stage()
    room.tell(events.ReservationAsked("r", "ada", kernel, 30 * GB, "gpu0", 60.0))
    room.tell(events.MemoryRead("gpu0", 30 * GB, 0))
    assert room.free_gb() == 79 - 30
    job = room.submit("a", "bob")
    assert room.order() == "load a"
    room.settle()
    assert room.state(job) == "done"


# the whole device


def test_a_whole_gpu_drains_and_new_jobs_wait_with_the_reason() -> None:
    room = stage()
    room.load("a", "b")
    running = room.submit("a", "bob")
    room.tell(asked(None))
    waiting = room.submit("b", "cleo")
    assert room.orders_of() == [f"run {running}", "evict b"]
    assert room.job(waiting).waiting_for == "reservation"
    room.answer(which="evict")
    room.answer(which="run")
    room.answer(which="evict")
    assert granted(room)
    assert room.free_gb() == 0
    assert room.job(waiting).waiting_for == "reservation"
    assert in_words(room.job(waiting).reason) == "<ada> has all of gpu0."
    room.tell(events.ReservationDropped("r"))
    room.settle()
    assert room.state(waiting) == "done"


def test_other_gpus_go_on_while_one_is_somebody_s() -> None:
    room = stage(devices=("gpu0", "gpu1"))
    room.tell(asked(None, device="gpu0"))
    job = room.submit("a", "bob")
    assert room.orders_of("gpu1") == ["load a"]
    room.settle()
    assert room.state(job) == "done"


def test_the_instructor_clears_a_gpu_and_pinned_models_leave_and_come_back() -> None:
    room = stage(model("a", pinned=True), model("b"))
    room.answer()
    for number in range(3):
        room.submit("a", f"p{number}")
    room.tell(cleared())
    room.answer()
    assert room.order() == "evict a"
    room.answer()
    assert granted(room, "clear")
    assert [job.waiting_for for job in room.conductor.snapshot(room.now).jobs] == [
        "reservation"
    ] * 2
    room.tell(events.ReservationDropped("clear"))
    assert room.order() == "load a"


def test_a_participant_s_own_whole_gpu_does_not_take_a_pinned_model() -> None:
    room = stage(model("a", pinned=True))
    room.answer()
    room.tell(asked(None))
    assert room.order() == ""
    assert view(room).reason == "a is pinned"


def test_clearing_waits_for_a_held_model_and_nothing_new_begins() -> None:
    room = stage()
    room.load("a")
    room.hold("a", "bob")
    room.tell(cleared())
    job = room.submit("a", "bob")
    assert room.order() == ""
    assert room.job(job).waiting_for == "reservation"
    room.tell(events.HoldDropped("hold"))
    assert room.order() == "evict a"


# ends


@pytest.mark.parametrize("gb", [8, None])
def test_it_ends_with_its_kernel_its_time_or_by_hand(gb: float | None) -> None:
    room = stage()
    room.tell(asked(gb))
    room.tell(events.KernelGone("kernel-ada"))
    room.tell(asked(gb, name="r2", ttl_s=30.0))
    room.later(30.0)
    room.tell(asked(gb, name="r3"))
    room.tell(events.ReservationDropped("r3"))
    assert ends(room) == ["the kernel ended", "its time was over", "given back"]
    assert room.free_gb() == 79
    room.submit("a")
    assert room.order() == "load a"


def test_one_that_waits_ends_with_its_kernel_too_and_opens_the_gpu() -> None:
    room = stage(gb=40)
    room.load("a")
    room.submit("a", "bob")
    room.tell(asked(20))
    waiting = room.submit("a", "cleo")
    room.tell(events.KernelGone("kernel-ada"))
    room.answer()
    assert room.order() == f"run {waiting}"


def test_renewed_in_time_it_stays() -> None:
    room = stage()
    room.tell(asked(ttl_s=60.0))
    for _ in range(5):
        room.later(50.0)
        room.tell(events.ReservationRenewed("r", "kernel-ada", 60.0))
    assert granted(room)
    assert view(room).expires_in_s == 60.0


def test_a_worker_s_death_leaves_it_as_it_is() -> None:
    room = stage()
    room.tell(asked(8))
    room.die()
    room.ready()
    assert granted(room)
    assert room.free_gb() == 79 - 8


def test_it_ends_when_its_gpu_is_gone() -> None:
    room = stage(devices=("gpu0", "gpu1"))
    room.tell(asked(device="gpu0"))
    room.tell(events.DeviceGone("gpu0", "unplugged"))
    assert ends(room) == ["the GPU is gone (unplugged)"]


def test_one_that_proves_too_large_when_the_gpu_is_there_ends() -> None:
    room = stage(devices=())
    room.conductor = type(room.conductor)(Settings(), ("gpu0",))
    room.tell(asked(100))
    room.ready(gb=80)
    assert ends(room) == ["no GPU here has so much memory"]


# the queue


def test_it_says_its_position_and_wait() -> None:
    room = stage(gb=40, settings=Settings(queue_limit=10))
    room.load("a")
    for _ in range(3):
        room.submit("a", "bob", priority=Priority.HIGH)
    room.tell(asked(20, "ada"))
    told = view(room)
    assert told.position == 3
    assert told.reason == "its turn"
    assert told.expected_wait_s is not None


def test_the_class_that_the_instructor_gives_counts_for_it_too() -> None:
    room = stage(gb=40, settings=Settings(queue_limit=10))
    policy = room.conductor.snapshot(0.0).policy
    low = {"ada": Priority.LOW}
    room.tell(events.PolicyChanged(type(policy)(priorities=low)))
    room.load("a", who="bob")
    for _ in range(2):
        room.submit("a", "bob")
    room.tell(asked(20, "ada"))
    room.now += 25.0
    waiting = room.conductor.snapshot(room.now).jobs[0].job
    room.answer()
    assert room.order() == f"run {waiting}"


# bad input


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (asked(0), "invalid_request"),
        (asked(-8), "invalid_request"),
        (asked(1e9), "reservation_too_large"),
        (asked(79.5), "reservation_too_large"),
        (asked(8, device="gpu7"), "device_unknown"),
        (asked(8, ttl_s=0.0), "invalid_request"),
        (asked(8, ttl_s=float("nan")), "invalid_request"),
        (asked(8, who="x" * 10_000), "invalid_request"),
        (asked(8, name="a\nb"), "invalid_request"),
        (events.ReservationRenewed("nobody", "kernel-ada", 60.0), "reservation_unknown"),
        (events.ReservationDropped("nobody"), "reservation_unknown"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(event: events.Event, kind: str) -> None:
    assert stage().refused(event).kind == kind


def test_one_that_is_a_little_too_large_reads_two_different_numbers() -> None:
    room = stage(gb=40)
    with pytest.raises(WorkshopError) as refused:
        room.tell(asked(39.04))
    assert "39.1 GB are more than any GPU here can give" in refused.value.message
    assert "gone: 39.0 GB." in refused.value.message


def test_another_kernel_cannot_renew_it_and_one_that_ended_stays_so() -> None:
    room = stage()
    room.tell(asked())
    foreign = events.ReservationRenewed("r", "kernel-bob", 600.0)
    assert room.refused(foreign).kind == "reservation_unknown"
    assert room.refused(asked()).kind == "invalid_request"
    room.tell(events.ReservationDropped("r"))
    renewed = events.ReservationRenewed("r", "kernel-ada", 600.0)
    assert room.refused(renewed).kind == "reservation_ended"


def test_nobody_has_more_than_a_few() -> None:
    room = stage(settings=Settings(reservation_limit=2))
    room.tell(asked(1, name="r1"))
    room.tell(asked(1, name="r2"))
    report = room.refused(asked(1, name="r3"))
    assert report.kind == "too_many_reservations"
    room.tell(asked(1, who="bob", name="r3"))


def test_where_nobody_may_reserve_the_instructor_may() -> None:
    room = stage(settings=Settings(reservation_limit=0))
    assert "no reservations" in room.refused(asked(1)).message
    room.tell(cleared())
    assert granted(room, "clear")


def test_without_a_gpu_that_works_there_is_none_to_reserve() -> None:
    room = stage()
    room.tell(events.DeviceGone("gpu0", "unplugged"))
    assert room.refused(asked()).kind == "no_device"
    with pytest.raises(WorkshopError):
        room.conductor.reservation("r", room.now)


def test_of_a_gpu_that_others_fill_there_is_nothing_to_give() -> None:
    room = stage(gb=40)
    room.foreign(39.5)
    room.tell(asked(None))
    assert view(room).reason == "39.5 GB are taken by other processes"
    room.foreign(10)
    assert granted(room)


def test_when_the_last_job_before_it_begins_its_turn_has_come_at_once() -> None:
    room = stage(gb=60)
    room.load("a")
    running = room.submit("a", "bob", priority=Priority.HIGH)
    last = room.submit("a", "cleo", priority=Priority.HIGH)
    room.tell(asked(10))
    assert not granted(room)
    room.answer(which=f"run {running}")
    assert room.order() == f"run {last}"
    assert granted(room)
