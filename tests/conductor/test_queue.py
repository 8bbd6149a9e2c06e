"""Waiting jobs: who is next, positions, waits, limits."""

import msgspec
import pytest

from tests.conductor.staging import GB, MEGAPIXEL, Stage, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Settings
from workshop_gpu.conductor.states import Priority


def test_a_job_for_a_ready_model_runs_at_once() -> None:
    room = stage()
    room.load("a")
    job = room.submit("a")
    assert room.order() == f"run {job}"
    assert room.state(job) == "running"
    assert room.job(job).position == 0


def test_a_load_is_shared_by_all_who_wait_for_it() -> None:
    room = stage()
    jobs = [room.submit("a", who) for who in ("ada", "bob", "cleo")]
    assert [room.job(job).waiting_for for job in jobs] == ["load"] * 3
    room.settle()
    assert [room.state(job) for job in jobs] == ["done"] * 3
    assert sum(isinstance(each, effects.LoadModel) for each in room.said) == 1


def test_positions_follow_the_shares_and_are_announced_where_they_changed() -> None:
    room = stage()
    room.submit("a", "ada")
    room.answer()
    first, second = room.submit("a", "ada"), room.submit("a", "ada")
    assert (room.job(first).position, room.job(second).position) == (1, 2)
    new = room.tell(room.job_submitted("a", "bob", job="bobs"))
    told = {e.job.job: e.job.position for e in new if isinstance(e, effects.AnnounceJob)}
    assert told == {"bobs": 1, first: 2, second: 3}


def test_nothing_is_announced_twice() -> None:
    room = stage()
    room.load("a")
    room.submit("a", "ada")
    room.submit("a", "bob")
    room.later(0.01)
    assert room.later(0.01) == []


def test_a_wait_is_unknown_at_first_and_learned_from_runs() -> None:
    room = stage()
    room.load("b")
    room.submit("a", "ada")
    waiting = room.submit("a", "bob")
    assert room.job(waiting).expected_wait_s is None
    room.answer()
    room.answer()
    room.submit("a", "ada")
    assert room.job(room.submit("a", "cleo")).expected_wait_s == 10.0


def test_a_batch_that_was_never_measured_is_expected_to_take_what_its_jobs_take_alone() -> None:
    room = stage()
    room.load("a")
    for name in ("ada", "bob", "cleo"):
        asked = room.job_submitted("a", name, job=f"job of {name}")
        room.tell(msgspec.structs.replace(asked, group="alike"))
    waiting = room.submit("a", "dan")
    room.answer()
    runs = [1 + len(each.others) for each in room.said if isinstance(each, effects.RunJob)]
    assert runs[-1] == 2
    assert room.job(waiting).expected_wait_s == 10.0


def test_a_wait_shrinks_with_time_in_few_announcements() -> None:
    room = stage()
    room.load("a")
    room.submit("a", "ada")
    waiting = room.submit("a", "bob")
    assert room.job(waiting).expected_wait_s == 5.0
    said = [effect for _ in range(50) for effect in room.later(0.1)]
    told = [effect for effect in said if not isinstance(effect, effects.AnnounceWaits)]
    assert room.job(waiting).expected_wait_s == 0.0
    assert 3 <= len(told) <= 6


def test_a_participant_has_a_limit_of_waiting_jobs_and_is_told_the_wait() -> None:
    room = stage()
    room.load("a")
    room.submit("a", "ada")
    for _ in range(3):
        room.submit("a", "bob")
    error = room.refused(room.job_submitted("a", "bob"))
    assert error.kind == "queue_full"
    assert error.facts["waiting"] == error.facts["limit"] == 3
    assert error.facts["position"] == 1
    room.submit("a", "cleo")
    room.answer()
    room.submit("a", "bob")


def test_who_is_refused_for_the_limit_is_told_the_wait_that_his_first_job_was_told() -> None:
    room = stage()
    room.load("a")
    running = room.submit("a", "ada")
    room.finish(running, seconds_s=60.0)
    room.take_order()
    room.submit("a", "ada")  # it runs
    jobs = [room.submit("a", "bob") for _ in range(3)]
    error = room.refused(room.job_submitted("a", "bob"))
    told_s = room.job(jobs[0]).expected_wait_s
    assert error.facts["expected_wait_s"] == told_s
    assert told_s is not None
    assert told_s > 20
    assert f"in about {told_s:.0f} s" in error.message


def test_where_nobody_knows_the_wait_he_is_told_the_reason() -> None:
    room = stage(gb=40)
    room.load("b")
    room.load("a")
    room.hold("a", "eve", ttl_s=3600.0)
    for _ in range(3):
        room.submit("b", "bob")
    error = room.refused(room.job_submitted("b", "bob"))
    assert error.facts["expected_wait_s"] is None
    assert "position 1; wait for one" in error.message
    assert "a is held by 1 notebook(s)." in error.message


def test_a_running_job_does_not_count_against_the_limit() -> None:
    room = stage(settings=Settings(queue_limit=1))
    room.load("a")
    room.submit("a")
    room.submit("a")
    assert room.refused(room.job_submitted("a")).kind == "queue_full"


def test_an_urgent_job_goes_before_all_others() -> None:
    room = stage()
    room.load("a")
    room.submit("a", "ada")
    normal = room.submit("a", "bob")
    urgent = room.submit("a", "cleo", priority=Priority.URGENT)
    assert room.job(urgent).position == 1
    room.answer()
    assert room.order() == f"run {urgent}"
    assert room.job(normal).position == 1


def test_an_urgent_job_for_an_absent_model_is_not_overtaken_by_warm_ones() -> None:
    room = stage(gb=40)
    room.load("a")
    room.submit("a", "ada")
    room.submit("a", "bob")
    urgent = room.submit("b", "cleo", priority=Priority.URGENT)
    room.now += 5.0
    room.answer()
    assert room.order() == "evict a"
    room.answer()
    room.answer()
    assert room.order() == f"run {urgent}"


def test_a_low_job_is_not_starved_by_a_steady_stream_of_better_ones() -> None:
    room = stage(settings=Settings(rise_s=60.0))
    room.load("a")
    room.submit("a", "ada", priority=Priority.HIGH)
    low = room.submit("a", "bob", priority=Priority.LOW)
    for number in range(100):
        room.submit("a", f"p{number}", priority=Priority.HIGH)
        room.now += 5.0
        room.answer()
        if room.state(low) == "running":
            break
    assert 0 < room.now < 200.0
    assert room.state(low) == "running"


def test_a_job_that_rises_past_its_owners_others_goes_before_them() -> None:
    room = stage(settings=Settings(rise_s=60.0))
    room.load("a")
    running = room.submit("a", "bob")
    old = room.submit("a", "ada", priority=Priority.BATCH)
    room.now = 30.0
    young = room.submit("a", "ada", priority=Priority.LOW)
    others = room.submit("a", "cat", priority=Priority.LOW)
    assert _places(room, young, others, old) == [1, 2, 3]
    room.now = 63.0
    room.tell(events.Tick())
    # Both of the same class now; what the younger one costs is paid before it, by its owner.
    assert _places(room, old, others, young) == [1, 2, 3]
    assert room.state(running) == "running"


def test_a_flood_of_one_does_not_delay_the_modest() -> None:
    room = stage(settings=Settings(queue_limit=40))
    room.load("a")
    flood = [room.submit("a", "ada") for _ in range(40)]
    modest = room.submit("a", "bob")
    room.now += 5.0
    room.answer()
    assert room.order() == f"run {modest}"
    assert room.state(flood[1]) == "queued"


def test_a_warm_job_overtakes_a_cold_one_until_the_patience_is_over() -> None:
    room = stage(gb=40)
    room.load("a")
    room.submit("a", "ada")
    cold = room.submit("b", "bob")
    for number in range(20):
        room.submit("a", f"p{number}")
    while room.order().startswith("run"):
        room.now += 5.0
        room.answer()
    assert room.order() == "evict a"
    assert Settings().patience_s <= room.now - room.job(cold).submitted_s
    assert room.now - room.job(cold).submitted_s <= Settings().patience_s + 10.0


def test_a_larger_picture_makes_idle_models_leave_for_its_working_memory() -> None:
    room = stage(model("a", gb=30), model("b", gb=30))
    room.load("b", "a")
    room.now += 60.0
    job = room.submit("a", pixels=16 * MEGAPIXEL)
    assert room.order() == "evict b"
    room.answer()
    assert room.order() == f"run {job}"


def test_progress_is_announced_and_orders_nothing() -> None:
    room = stage()
    room.load("a")
    job = room.submit("a")
    new = room.tell(events.JobProgressed(job, 7, 28))
    assert [type(effect) for effect in new] == [effects.AnnounceJob]
    assert room.job(job).step == 7
    room.tell(events.JobProgressed(job, 3, 28))
    assert room.job(job).step == 7


def test_ended_jobs_are_remembered_up_to_a_number() -> None:
    room = stage(settings=Settings(remembered_jobs=2))
    room.load("a")
    jobs = []
    for _ in range(3):
        jobs.append(room.submit("a"))
        room.answer()
    assert room.conductor.job(jobs[0]) is None
    assert room.refused(events.JobCancelled(jobs[0])).kind == "job_unknown"
    assert room.state(jobs[2]) == "done"


def test_a_contradicted_estimate_is_corrected_and_told() -> None:
    room = stage()
    room.submit("a")
    new = room.answer(weights_gb=20)
    (notice,) = [effect for effect in new if isinstance(effect, effects.Notice)]
    assert notice.text == "Weights of a measured: 20.0 GB, not 30.0 GB."
    assert room.slot("a").bytes == 20 * GB
    room.orders.clear()
    new = room.finish("job-1", 5.0, 4 * GB)
    assert [effect.facts["measured_bytes"] for effect in new if isinstance(effect, effects.Notice)]
    room.submit("a")
    (working,) = [
        holder.bytes
        for holder in room.conductor.snapshot(room.now).devices[0].holders
        if holder.kind == "working"
    ]
    assert working == int(4.4 * GB)


def swapped_back() -> Stage:
    """ "big" had to leave for "wide" a moment ago and wants back in, for bob."""
    room = stage(
        model("small", gb=20), model("big", gb=45), model("wide", gb=40), model("k", gb=30)
    )
    room.load("small")
    room.load("big", who="bob")
    room.load("wide", who="ada")
    assert room.models() == ["small", "wide"]
    room.submit("big", "bob")
    assert room.order() == ""
    return room


def test_nothing_leaves_for_others_while_a_job_waits_for_the_end_of_a_protection() -> None:
    room = swapped_back()
    room.submit("k", "cleo")
    assert room.order() == ""
    room.later(10.0)
    assert room.order() == "evict wide"


def test_no_hold_takes_the_room_for_which_a_job_waits() -> None:
    room = swapped_back()
    room.hold("k", "cleo")
    assert room.order() == ""
    room.later(10.0)
    assert room.order() == "evict wide"


@pytest.mark.parametrize("by", ["class", "patience"])
def test_nobody_behind_loads_a_model_into_the_room_for_which_a_job_waits(by: str) -> None:
    """It would have to leave again, and in time somebody would come for what leaves for it."""
    room = stage(model("a", 30.0), model("b", 20.0), model("c", 15.0), gb=50)
    room.load("b")
    room.submit("b", "ada")
    first = room.submit("a", "bob", priority=Priority.HIGH if by == "class" else Priority.NORMAL)
    if by == "patience":
        room.submit("b", "ada")
        room.answer()
        room.later(Settings().patience_s)
    assert room.order().startswith("run")
    room.submit("c", "cleo")
    assert len(room.orders_of()) == 1
    room.answer()
    assert room.order() == "evict b"
    room.answer()
    room.answer()
    assert room.order() == f"run {first}"


def test_who_worked_alone_with_a_model_may_swap_it_back_at_once() -> None:
    room = stage(gb=40)
    for name in ("a", "b", "a"):
        room.settle()
        job = room.submit(name, "ada")
        room.now += 0.1
    assert room.order() == "evict b"
    room.settle()
    assert room.state(job) == "done"
    assert room.now < 20.0


def test_what_was_loaded_is_used_before_it_leaves_though_others_are_before_it() -> None:
    room = stage(gb=40)
    job = room.submit("b", "bob")
    urgent = room.submit("a", "cleo", priority=Priority.URGENT)
    room.answer()
    assert room.job(urgent).position == 1
    assert room.order() == f"run {job}"


def test_who_is_due_waits_for_that_first_use_and_for_nobody_else() -> None:
    room = stage(model("a"), model("b"), model("large", gb=60))
    room.load("a")
    room.submit("a", "ada")
    due = room.submit("large", "bob")
    overtaking = room.submit("a", "ada")
    room.answer(which="run")
    assert room.order() == f"run {overtaking}"
    room.later(Settings().patience_s - 5.0)
    room.submit("a", "dan")
    untried = room.submit("b", "cleo")
    room.answer(which="load")
    room.later(5.0)
    room.answer(which="run")
    assert room.order() == f"run {untried}"
    room.answer(which="run")
    for order in ("evict b", "evict a", "load large", f"run {due}"):
        assert room.orders_of()[0] == order
        room.answer()


@pytest.mark.parametrize("what", ["is given up", "starts again"])
def test_who_is_due_does_not_wait_for_a_device_that_is_not_there(what: str) -> None:
    room = stage(model("a"), model("small", gb=5), model("large", gb=60), devices=("gpu0", "gpu1"))
    if what == "is given up":
        room.tell(events.DeviceGone("gpu0", "its worker ended too often", None))
    else:
        room.die("gpu0")
    room.load("a", "small", device="gpu1")
    room.submit("a", "ada")
    room.submit("large", "bob")
    room.submit("a", "ada")
    room.answer("gpu1")
    room.later(Settings().patience_s)
    room.submit("a", "dan")
    room.tell(events.EvictionAsked("small"))
    room.answer("gpu1", which="run")
    room.later(0.5)
    assert room.orders_of("gpu1") == ["evict small"]
    room.answer("gpu1")
    assert room.orders_of("gpu1") == ["evict a"]


def test_a_model_is_loaded_while_a_job_of_another_runs() -> None:
    room = stage()
    room.load("a")
    running = room.submit("a", "ada")
    waiting = room.submit("b", "bob")
    assert room.orders_of() == [f"run {running}", "load b"]
    room.answer(which="load")
    assert room.order() == f"run {running}"
    room.answer()
    assert room.order() == f"run {waiting}"


def _places(room: Stage, *jobs: str) -> list[int]:
    return [room.job(job).position for job in jobs]
