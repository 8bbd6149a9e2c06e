"""Faults that others shipped, one test for each kind; the numbers are those of our list."""

from tests.conductor.staging import GB, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Settings
from workshop_gpu.conductor.effects import Notice
from workshop_gpu.conductor.states import JobState, Priority, SlotState

# queue, cache, eviction


def test_01_a_job_that_arrives_as_its_model_leaves_waits_and_then_gets_it_loaded_again() -> None:
    room = stage()
    room.load("a", "b")
    room.submit("c")
    assert room.order() == "evict a"
    job = room.submit("a", "bob")
    assert room.job(job).state is JobState.QUEUED
    room.settle()
    assert room.state(job) == "done"


def test_02_jobs_of_other_sizes_for_a_busy_model_run_one_after_the_other() -> None:
    room = stage()
    small = room.submit("a", "ada", pixels=128 * 128)
    room.answer()
    large = room.submit("a", "bob", pixels=2048 * 2048)
    middle = room.submit("a", "cleo", pixels=512 * 512)
    assert room.order() == f"run {small}"
    room.settle()
    assert [room.state(job) for job in (small, large, middle)] == ["done"] * 3


def test_03_a_warm_job_does_not_wait_behind_a_job_for_which_nothing_can_leave() -> None:
    room = stage()
    room.load("a", "b")
    room.hold("a", "ada", ttl_s=10_000)
    room.hold("b", "bob", ttl_s=10_000, hold="second")
    cold = room.submit("c", "cleo")
    for _ in range(50):
        warm = room.submit("a", "dora")
        assert room.order() == f"run {warm}"
        room.now += 5.0
        room.answer()
    assert room.job(cold).waiting_for == "room"


def test_03_an_eviction_on_one_device_does_not_delay_the_other() -> None:
    room = stage(devices=("gpu0", "gpu1"), gb=35.0)
    room.load("a")
    room.load("b", device="gpu1")
    room.submit("c")
    assert room.order() == "evict a"
    job = room.submit("b", "bob")
    assert room.order("gpu1") == f"run {job}"


def test_03_a_warm_job_runs_beside_an_eviction_and_a_load_on_its_own_device() -> None:
    room = stage()
    room.load("a", "b")
    room.submit("c")
    assert room.orders_of() == ["evict a"]
    warm = room.submit("b", "bob")
    assert room.orders_of() == ["evict a", f"run {warm}"]
    room.answer(which="evict")
    assert room.orders_of() == [f"run {warm}", "load c"]


def test_04_a_model_that_can_never_fit_is_refused_with_the_numbers() -> None:
    room = stage(model("huge", gb=79.5))
    error = room.refused(room.job_submitted("huge"))
    assert error.kind == "model_too_large"
    assert error.facts["largest_bytes"] == 79 * GB
    missing = error.facts["missing_bytes"]
    assert isinstance(missing, int)
    assert missing > GB
    assert room.order() == ""


def test_04_a_model_whose_measured_weights_leave_no_room_to_run_is_not_loaded_for_ever() -> None:
    room = stage(model("a", gb=70))
    job = room.submit("a")
    room.answer(weights_gb=79)
    assert room.state(job) == "failed"
    assert room.job(job).error is not None
    assert room.job(job).error.kind == "model_too_large"
    assert room.order() == ""
    assert room.refused(room.job_submitted("a")).kind == "model_too_large"


def test_04_jobs_that_came_before_the_devices_are_judged_when_a_device_stands_ready() -> None:
    room = stage(model("a"), devices=())
    room.conductor = type(room.conductor)(Settings(), ("gpu0",))
    room.tell(events.CatalogueChanged((model("a", gb=30), model("huge", gb=100))))
    fits, huge = room.submit("a"), room.submit("huge", "bob")
    assert room.job(huge).waiting_for == "device"
    room.ready()
    assert room.job(huge).error is not None
    assert room.job(huge).error.kind == "model_too_large"
    assert room.job(fits).waiting_for == "load"


def test_05_a_cancel_during_a_load_and_a_new_job_share_the_one_load() -> None:
    room = stage()
    first = room.submit("a")
    room.tell(events.JobCancelled(first))
    assert room.state(first) == "cancelled"
    second = room.submit("a")
    assert room.order() == "load a"
    room.answer()
    assert room.order() == f"run {second}"
    assert sum(isinstance(each, effects.LoadModel) for each in room.said) == 1


def test_05_a_load_that_nobody_waits_for_any_more_leaves_an_idle_slot() -> None:
    room = stage()
    room.tell(events.JobCancelled(room.submit("a")))
    room.answer()
    assert room.models() == ["a"]
    assert room.slot("a").running_jobs == 0
    assert not any(isinstance(each, effects.EvictModel) for each in room.said)


def test_06_a_death_after_the_load_gives_back_references_and_memory() -> None:
    room = stage()
    job = room.submit("a")
    room.answer()
    room.die()
    assert room.job(job).state is JobState.QUEUED
    assert room.conductor.snapshot(room.now).slots == ()
    room.ready()
    assert room.free_gb() == 79 - 30
    room.settle()
    assert room.state(job) == "done"
    assert room.slot("a").running_jobs == 0


def test_07_foreign_memory_delays_a_load_and_its_end_is_noticed() -> None:
    room = stage(gb=80)
    room.foreign(60)
    job = room.submit("a")
    assert room.order() == ""
    assert room.job(job).waiting_for == "foreign"
    room.foreign(10)
    assert room.order() == "load a"


def test_07_an_eviction_waits_for_no_memory_that_others_took() -> None:
    room = stage()
    room.load("a", "b")
    job = room.submit("c")
    room.orders.pop("gpu0")
    room.tell(events.SlotEvicted("gpu0", "a", 0))
    room.foreign(45)
    room.settle()
    assert room.state(job) == "done"


def test_07_a_failed_memory_query_makes_no_memory_look_free() -> None:
    room = stage()
    room.load("a")
    room.foreign(40)
    free_gb = room.free_gb()
    room.tell(events.MemoryRead("gpu0", 0, 30 * GB))
    room.tell(events.MemoryRead("gpu0", 0, -1))
    assert room.free_gb() == free_gb


def test_08_the_keep_warm_time_counts_from_the_end_of_the_last_job() -> None:
    room = stage(model("a", keep_warm_s=60.0))
    room.submit("a")
    room.answer()
    room.later(100.0)
    room.answer()
    room.later(59.0)
    assert room.order() == ""
    room.later(1.0)
    assert room.order() == "evict a"


def test_08_a_job_that_arrives_as_the_time_is_over_keeps_the_model() -> None:
    room = stage(model("a", keep_warm_s=60.0))
    room.load("a")
    room.now += 60.0
    job = room.submit("a")
    assert room.order() == f"run {job}"


def test_09_two_people_in_turn_do_not_swap_the_models_for_every_job() -> None:
    room = stage(gb=40)
    jobs = {"ada": room.submit("a", "ada"), "bob": room.submit("b", "bob")}
    loads = runs = 0
    for _ in range(600):
        room.later(0.5)
        if room.order():
            loads += room.order().startswith("load")
            runs += room.order().startswith("run")
            room.answer()
        for who, name in (("ada", "a"), ("bob", "b")):
            if room.state(jobs[who]) == "done":
                jobs[who] = room.submit(name, who)
    assert runs > 200
    assert 2 <= loads <= 2 * 300 / Settings().min_residency_s


def test_09_a_steady_stream_for_the_warm_model_starves_nobody() -> None:
    room = stage(gb=40)
    room.load("a")
    room.submit("a", "ada")
    cold = room.submit("b", "bob")
    waited_s = 0.0
    while room.job(cold).state is JobState.QUEUED:
        for who in ("ada", "cleo", "dora"):
            if not any(view.participant == who for view in room.conductor.snapshot(room.now).jobs):
                room.submit("a", who)
        room.later(1.0)
        waited_s += 1.0
        room.answer()
        assert waited_s < Settings().patience_s + 10
    assert waited_s > 2
    assert room.order() == f"run {cold}"


def test_10_memory_that_ran_out_in_a_load_leaves_nothing_and_keeps_its_name() -> None:
    room = stage()
    job = room.submit("a")
    free_gb = 79.0
    room.fail(kind="out_of_memory")
    assert room.free_gb() == free_gb
    assert room.job(job).error is not None
    assert room.job(job).error.kind == "out_of_memory"
    assert room.slot("a").state is SlotState.FAILED
    room.now += 30.0
    room.submit("a")
    assert room.order() == "load a"


def test_11_a_model_that_a_waiting_job_needs_is_not_evicted_for_a_hold() -> None:
    room = stage(gb=40)
    room.load("a")
    running = room.submit("a", "ada")
    room.hold("b", "bob")
    waiting = room.submit("a", "cleo")
    room.now += 12.0
    room.answer()
    assert room.state(running) == "done"
    assert room.order() == f"run {waiting}"


def test_12_a_load_on_one_device_makes_nothing_leave_another() -> None:
    room = stage(devices=("gpu0", "gpu1"), gb=35)
    room.load("a")
    running = room.submit("a", "ada")
    room.load("b", device="gpu1")
    room.now += 100.0
    room.submit("c", "cleo")
    assert room.order("gpu1") == "evict b"
    room.answer("gpu1")
    assert room.order("gpu1") == "load c"
    assert room.order("gpu0") == f"run {running}"
    assert room.models("gpu0") == ["a"]


def test_13_a_model_that_was_just_loaded_is_used_before_it_is_evicted() -> None:
    room = stage(gb=40, settings=Settings(patience_s=5.0, min_residency_s=0.0))
    first = room.submit("a", "ada")
    room.later(3.0)
    urgent = room.submit("b", "bob", priority=Priority.URGENT)
    room.answer()
    assert room.order() == f"run {first}"
    room.settle()
    assert room.state(urgent) == "done"


def test_13_the_least_recently_used_model_stays_while_it_is_in_use() -> None:
    room = stage()
    room.load("a", "b")
    running = room.submit("a", "ada")
    room.submit("c", "bob")
    assert room.order() == f"run {running}"
    room.now += 100.0
    room.answer()
    assert room.order() == "evict b"


def test_14_memory_that_is_still_being_freed_is_not_free() -> None:
    room = stage()
    room.load("a", "b")
    free_gb = room.free_gb()
    room.submit("c")
    assert room.order() == "evict a"
    assert room.free_gb() == free_gb
    (device,) = room.conductor.snapshot(room.now).devices
    assert ("freeing", "a", 30 * GB) in [(h.kind, h.name, h.bytes) for h in device.holders]
    room.answer()
    assert room.order() == "load c"


def test_15_models_of_equal_priority_make_room_for_each_other() -> None:
    room = stage(gb=40)
    for name in ("a", "b", "c"):
        job = room.submit(name, who=name)
        room.settle()
        assert room.state(job) == "done"


def test_16_a_failed_load_wakes_all_who_wait_with_its_cause() -> None:
    room = stage()
    jobs = [room.submit("a", who) for who in ("ada", "bob", "cleo")]
    other = room.submit("b", "dora")
    room.fail()
    for job in jobs:
        assert room.state(job) == "failed"
        assert room.job(job).error == room.slot("a").error
    assert room.order() == "load b"
    assert room.state(other) == "queued"


def test_16_who_comes_right_after_a_failed_load_is_told_at_once_and_later_it_is_tried_again() -> (
    None
):
    room = stage()
    room.submit("a")
    room.fail(kind="out_of_memory")
    assert room.refused(room.job_submitted("a", "bob")).kind == "out_of_memory"
    assert room.order() == ""
    room.later(Settings().failed_load_s + 1.0)
    room.submit("a", "bob")
    assert room.order() == "load a"


def test_17_odd_bytes_are_all_given_back() -> None:
    room = stage(model("a", gb=0.333333333), model("b", gb=0.1), gb=1.0)
    free_gb = room.free_gb()
    for number in range(60):
        room.submit("a" if number % 2 else "b", who=f"p{number % 3}", pixels=128 * 128 + number)
        room.settle()
        room.later(20.0)
    for name in ("a", "b"):
        room.tell(events.EvictionAsked(name))
        room.answer()
    assert room.free_gb() == free_gb


# cancel


def test_18_cancelling_a_waiting_job_leaves_the_running_one_alone() -> None:
    room = stage()
    running = room.submit("a", "ada")
    room.answer()
    waiting = room.submit("a", "ada")
    new = room.tell(events.JobCancelled(waiting))
    assert not any(isinstance(each, effects.CancelJob) for each in new)
    assert room.state(waiting) == "cancelled"
    assert room.order() == f"run {running}"


def test_18_a_late_cancel_does_not_hit_the_next_job() -> None:
    room = stage()
    first = room.submit("a", "ada")
    room.answer()
    second = room.submit("a", "bob")
    room.tell(events.JobCancelled(first))
    room.answer()
    assert room.state(first) == "done"
    assert room.order() == f"run {second}"
    room.tell(events.JobStopped(first))
    assert room.refused(events.JobCancelled(first)).kind == "job_ended"
    assert room.order() == f"run {second}"
    assert room.state(second) == "running"


def test_18_a_running_job_is_told_once_and_ends_when_the_worker_says_so() -> None:
    room = stage()
    job = room.submit("a")
    room.answer()
    assert effects.CancelJob("gpu0", job) in room.tell(events.JobCancelled(job))
    assert effects.CancelJob("gpu0", job) not in room.tell(events.JobCancelled(job))
    assert room.state(job) == "running"
    room.orders.clear()
    room.tell(events.JobStopped(job))
    assert room.state(job) == "cancelled"


def test_19_after_a_cancel_the_memory_is_back_and_the_next_job_runs_at_once() -> None:
    room = stage()
    room.load("a")
    free_gb = room.free_gb()
    cancelled = room.submit("a", "ada")
    assert room.free_gb() < free_gb
    following = room.submit("a", "bob")
    room.tell(events.JobCancelled(cancelled))
    room.orders.clear()
    room.tell(events.JobStopped(cancelled))
    assert room.order() == f"run {following}"
    room.answer()
    assert room.free_gb() == free_gb
    assert room.models() == ["a"]


def test_27_our_own_weights_are_never_read_as_foreign() -> None:
    room = stage()
    room.load("a")
    room.tell(events.MemoryRead("gpu0", 31 * GB, 31 * GB))
    room.tell(events.MemoryRead("gpu0", 31 * GB, 0))
    (device,) = room.conductor.snapshot(room.now).devices
    assert "foreign" not in [holder.kind for holder in device.holders]
    assert not any(isinstance(each, Notice) for each in room.said)


def test_every_fault_of_the_queue_and_of_cancels_has_a_test_of_its_own() -> None:
    numbers = {
        int(name.split("_")[1])
        for name in globals()
        if name.startswith("test_") and name[5].isdigit()
    }
    assert numbers >= set(range(1, 20))
