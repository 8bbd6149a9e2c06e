"""Workers that start, die and are given up; several devices."""

from tests.conductor.staging import Stage, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Conductor, Settings


def unready(*devices: str) -> Stage:
    room = Stage(Conductor(Settings(), devices))
    room.tell(events.CatalogueChanged((model("a"), model("b"), model("c"))))
    return room


def test_jobs_wait_until_a_device_is_ready() -> None:
    room = unready("gpu0")
    job = room.submit("a")
    assert room.job(job).waiting_for == "device"
    room.ready()
    assert room.order() == "load a"


def test_without_any_device_jobs_are_refused() -> None:
    assert unready().refused(unready().job_submitted("a")).kind == "no_device"


def test_a_device_that_was_given_up_fails_waiting_jobs_only_if_it_was_the_last() -> None:
    room = unready("gpu0", "gpu1")
    job = room.submit("a")
    room.tell(events.DeviceGone("gpu0", "no driver"))
    assert room.state(job) == "queued"
    room.tell(events.DeviceGone("gpu1", "no driver"))
    assert room.state(job) == "failed"
    assert room.job(job).error is not None
    assert room.job(job).error.kind == "no_device"
    error = room.refused(room.job_submitted("a"))
    assert "gpu1: no driver" in error.message


def test_jobs_wait_with_the_reason_while_all_devices_are_lost_and_tried_again() -> None:
    room = unready("gpu0", "gpu1")
    job = room.submit("a")
    for device in ("gpu0", "gpu1"):
        room.tell(events.WorkerDied(device, "no driver"))
        room.tell(events.DeviceGone(device, "no driver", retry_s=60.0))
    waits = room.job(job)
    assert (waits.state.value, waits.waiting_for) == ("queued", "device")
    assert "gpu0 cannot be used (no driver); it is tried again every 60 s" in waits.reason
    assert "gpu1" in waits.reason
    assert "every 60 s" in room.refused(room.job_submitted("a", "bob")).message
    room.tell(events.WorkerDied("gpu0", "no card"))
    room.tell(events.DeviceGone("gpu0", "no card", retry_s=60.0))
    assert "no card" in room.job(job).reason
    room.ready("gpu0")
    assert room.order("gpu0") == "load a"
    assert room.job(job).reason == ""


def test_jobs_fail_once_the_last_device_is_gone_for_good() -> None:
    room = unready("gpu0")
    job = room.submit("a")
    room.tell(events.DeviceGone("gpu0", "no driver", retry_s=60.0))
    assert room.state(job) == "queued"
    room.tell(events.DeviceGone("gpu0", "removed"))
    assert room.state(job) == "failed"


def test_who_waits_for_a_lost_device_waits_no_longer_than_its_limit() -> None:
    room = Stage(Conductor(Settings(wait_limit_s=100.0), ("gpu0",)))
    room.tell(events.CatalogueChanged((model("a"),)))
    job = room.submit("a")
    room.tell(events.DeviceGone("gpu0", "no driver", retry_s=60.0))
    room.later(99.0)
    assert room.state(job) == "queued"
    room.later(1.0)
    error = room.job(job).error
    assert error is not None
    assert error.kind == "time_limit"
    assert "gpu0 cannot be used (no driver)" in error.message


def test_a_job_that_fits_on_the_lost_device_only_waits_for_that() -> None:
    room = unready("small", "large")
    room.ready("small", gb=20)
    room.ready("large", gb=80)
    room.load("a", device="large")
    job = room.submit("a")
    room.die("large")
    room.tell(events.DeviceGone("large", "no driver", retry_s=60.0))
    waits = room.job(job)
    assert (waits.state.value, waits.waiting_for) == ("queued", "device")
    assert "large cannot be used" in waits.reason
    assert room.refused(room.job_submitted("a", "bob")).kind == "model_too_large"
    room.ready("large", gb=80)
    assert room.order("large") == "load a"


def test_a_device_that_was_given_up_may_come_back() -> None:
    room = unready("gpu0")
    room.tell(events.DeviceGone("gpu0", "no driver"))
    room.ready()
    room.submit("a")
    assert room.order() == "load a"


def test_a_running_job_is_put_back_once_at_its_place() -> None:
    room = stage()
    room.load("a")
    first, second = room.submit("a", "ada"), room.submit("a", "bob")
    room.die()
    assert room.state(first) == "queued"
    assert room.job(first).position == 1
    assert room.job(second).position == 2
    room.ready()
    room.answer()
    assert room.order() == f"run {first}"


def test_a_job_that_ends_two_workers_is_failed_and_named() -> None:
    room = stage()
    room.load("a")
    job = room.submit("a")
    for _ in range(2):
        room.die()
        room.ready()
        if room.order():
            room.answer()
    error = room.job(job).error
    assert error is not None
    assert (error.kind, error.facts["deaths"]) == ("worker_lost", 2)
    assert "This job" in error.message
    assert "ended the GPU worker twice" in error.message
    assert room.order() == ""


def test_a_model_whose_loads_end_two_workers_fails_those_who_wait() -> None:
    room = stage()
    jobs = [room.submit("a", "ada"), room.submit("a", "bob")]
    room.die()
    assert room.state(jobs[0]) == "queued"
    room.ready()
    assert room.order() == "load a"
    room.die()
    for job in jobs:
        error = room.job(job).error
        assert error is not None
        assert error.kind == "worker_lost"
    room.ready()
    assert room.order() == ""


def test_a_hold_on_a_model_that_ends_workers_does_not_end_them_for_ever() -> None:
    room = stage()
    room.hold("a", ttl_s=10_000.0)
    loads = 0
    for _ in range(10):
        loads += room.order() == "load a"
        room.die()
        room.ready()
    assert loads == 2


def test_a_cancelled_job_whose_worker_dies_is_cancelled() -> None:
    room = stage()
    room.load("a")
    job = room.submit("a")
    room.tell(events.JobCancelled(job))
    room.die()
    assert room.state(job) == "cancelled"


def test_the_lost_run_is_not_paid_for() -> None:
    room = stage()
    room.load("a")
    room.submit("a", "ada")
    room.now += 500.0
    room.die()
    room.ready()
    shares = room.conductor._state.shares
    assert shares.used_s("ada") <= shares.used_s("loader")


def test_stale_and_repeated_facts_change_nothing() -> None:
    room = stage()
    job = room.submit("a")
    room.answer()
    room.die()
    for fact in (
        events.JobFinished(job),
        events.JobDrawn(job, 5.0),
        events.JobStopped(job),
        events.JobStarted(job),
        events.JobProgressed(job, 3, 28),
        events.SlotLoaded("gpu0", "a", 1, 1.0),
        events.SlotEvicted("gpu0", "a", 1),
        events.SlotProgressed("gpu0", "a", 1, 2),
        events.SlotLoaded("gpu9", "a", 1, 1.0),
        events.MemoryRead("gpu0", 10, 5),
        events.MemoryRead("gpu9", 10, 5),
        events.WorkerDied("gpu0", "killed"),
        events.WorkerDied("gpu9", "unknown"),
        events.DeviceGone("gpu9", "unknown"),
        events.KernelGone("unknown"),
        events.JobFinished("unknown"),
        events.JobDrawn("unknown", 5.0),
    ):
        assert room.tell(fact) == []
    assert room.state(job) == "queued"


def test_a_worker_that_stands_ready_without_a_word_of_its_end_has_started_again() -> None:
    room = stage()
    room.load("a")
    job = room.submit("a")
    room.orders.clear()
    room.ready()
    assert room.state(job) == "queued"
    assert room.order() == "load a"


def test_jobs_of_two_models_run_on_two_devices_at_once() -> None:
    room = stage(devices=("gpu0", "gpu1"), gb=40)
    first, second = room.submit("a", "ada"), room.submit("b", "bob")
    assert (room.order("gpu0"), room.order("gpu1")) == ("load a", "load b")
    room.answer("gpu0")
    room.answer("gpu1")
    assert (room.order("gpu0"), room.order("gpu1")) == (f"run {first}", f"run {second}")


def test_a_job_goes_where_its_model_is() -> None:
    room = stage(devices=("gpu0", "gpu1"))
    room.load("a")
    room.load("b", device="gpu1")
    where = "gpu0" if room.models("gpu0") == ["b"] else "gpu1"
    job = room.submit("b", "bob")
    assert room.order(where) == f"run {job}"


def test_a_model_in_demand_is_loaded_a_second_time_only_where_nothing_must_leave() -> None:
    room = stage(devices=("gpu0", "gpu1"))
    room.load("a")
    room.submit("a", "ada")
    room.submit("a", "bob")
    assert room.order("gpu1") == "", "the device that has it is free before a load ends"
    third = room.submit("a", "cleo")
    assert room.order("gpu1") == "load a"
    room.answer("gpu0")
    room.answer("gpu1")
    assert room.order("gpu1") == f"run {third}"

    narrow = stage(devices=("gpu0", "gpu1"), gb=40)
    narrow.load("a")
    narrow.submit("a", "ada")
    narrow.load("b", device="gpu1", who="bob")
    narrow.submit("a", "cleo")
    narrow.later(100.0)
    assert narrow.order("gpu1") == ""


def test_one_waiting_job_loads_its_model_on_one_device_only() -> None:
    room = stage(devices=("gpu0", "gpu1"))
    room.submit("a")
    assert (room.order("gpu0"), room.order("gpu1")) == ("load a", "")


def test_a_load_that_fails_on_one_device_is_tried_on_the_other_before_anybody_fails() -> None:
    room = stage(devices=("gpu0", "gpu1"))
    job = room.submit("a")
    room.fail("gpu0")
    assert room.state(job) == "queued"
    assert room.order("gpu1") == "load a"
    room.fail("gpu1")
    assert room.state(job) == "failed"
    assert (room.order("gpu0"), room.order("gpu1")) == ("", "")


def test_a_model_too_large_for_the_small_device_is_loaded_on_the_large_one() -> None:
    room = unready("small", "large")
    room.ready("small", gb=20)
    room.ready("large", gb=80)
    room.submit("a")
    assert room.order("large") == "load a"
    assert room.order("small") == ""


def test_a_new_device_is_used() -> None:
    room = stage()
    room.ready("gpu1")
    room.submit("a", "ada")
    room.submit("b", "bob")
    assert {room.order("gpu0"), room.order("gpu1")} == {"load a", "load b"}


def test_a_cancelled_wait_leaves_the_other_device_alone() -> None:
    room = stage(devices=("gpu0", "gpu1"), gb=40)
    room.load("a")
    room.submit("a", "ada")
    room.load("b", device="gpu1", who="bob")
    cold = room.submit("c", "cleo")
    assert room.order("gpu1") == "evict b"
    room.tell(events.JobCancelled(cold))
    room.answer("gpu1")
    assert room.order("gpu1") == ""
    assert effects.LoadModel("gpu1", "c") not in room.said


def test_a_job_moves_where_it_has_room_if_others_took_it_where_its_model_is() -> None:
    room = unready("large", "small")
    room.ready("large", gb=80)
    room.load("a", device="large")
    room.ready("small", gb=40)
    room.foreign(60, device="large")
    room.load("b", device="small")
    job = room.submit("a", "ada")
    room.now += 60.0
    room.later(0.0)
    assert room.order("small") == "evict b"
    room.answer("small")
    room.answer("small")
    assert room.order("small") == f"run {job}"


def test_a_hold_makes_room_on_one_device_only() -> None:
    room = stage(devices=("gpu0", "gpu1"), gb=35)
    room.load("a")
    room.load("b", device="gpu1")
    room.hold("c")
    assert sorted((room.order("gpu0"), room.order("gpu1"))) == ["", "evict a"]


def test_only_deaths_in_a_row_count_against_a_model() -> None:
    room = stage(model("a", pinned=True))
    room.die()
    room.ready()
    room.answer()
    for _ in range(2):
        room.die()
        room.ready()
        assert room.order() == "load a"
