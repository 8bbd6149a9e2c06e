"""Workers that hang or end in a row, told apart from long steps and from the innocent."""

from tests.conductor.staging import Stage, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Settings

LIMITS = Settings(stall_limit_s=100.0, run_limit_s=0.0, queue_limit=9)


def stops(said: list[effects.Effect]) -> list[str]:
    return [each.reason for each in said if isinstance(each, effects.StopWorker)]


def notices(room: Stage) -> list[str]:
    return [each.text for each in room.said if isinstance(each, effects.Notice)]


def drawing(room: Stage) -> str:
    """A job that runs."""
    room.load("a")
    job = room.submit("a")
    assert room.order() == f"run {job}"
    return job


def test_a_job_that_makes_no_step_is_stuck_and_its_worker_ends_once() -> None:
    room = stage(settings=LIMITS)
    job = drawing(room)
    assert stops(room.later(99.0)) == []
    assert stops(room.later(1.0)) == ["it hung: a job made no step for 100 s"]
    assert stops(room.later(1.0)) == []
    room.die()
    room.ready()
    room.answer()
    assert room.order() == f"run {job}", "it may have been innocent: it is tried once more"


def test_a_job_whose_steps_go_on_is_not_stuck_however_long_it_takes() -> None:
    room = stage(settings=LIMITS)
    job = drawing(room)
    for step in range(1, 28):
        assert stops(room.later(99.0)) == []
        room.tell(events.JobProgressed(job, step, 28))


def test_a_job_may_stand_still_for_as_long_as_its_steps_were_measured_to_take() -> None:
    room = stage(settings=LIMITS)
    room.tell(events.ModelWanted("a"))
    room.answer()
    slow = room.submit("a")
    room.finish(slow, 28 * 60.0)
    room.orders.clear()
    room.submit("a")
    assert stops(room.later(599.0)) == []
    assert len(stops(room.later(2.0))) == 1


def test_a_job_that_waits_for_a_load_on_its_worker_is_not_stuck() -> None:
    room = stage(settings=LIMITS)
    drawing(room)
    room.submit("b", "bob")
    assert room.orders_of()[1] == "load b"
    assert stops(room.later(99.0)) == []
    assert stops(room.later(99.0)) == []
    room.answer(which="load")
    assert stops(room.later(99.0)) == []
    assert len(stops(room.later(1.0))) == 1


def test_a_model_that_does_not_leave_ends_its_worker() -> None:
    room = stage(settings=LIMITS)
    room.load("a", "b")
    room.submit("c")
    room.later(20.0)
    assert room.order().startswith("evict")
    stopped = stops(room.later(100.0))
    assert len(stopped) == 1
    assert "did not leave" in stopped[0]


def test_without_a_limit_nothing_is_stuck() -> None:
    room = stage(settings=Settings(stall_limit_s=0.0, run_limit_s=0.0))
    drawing(room)
    assert stops(room.later(10_000.0)) == []


# workers that end in a row


def submit_group(room: Stage, who: str) -> str:
    job = f"job of {who}"
    room.tell(events.JobSubmitted(job, who, None, "a", 28, 1000, group="alike"))
    return job


def batches(room: Stage) -> list[int]:
    """How many jobs each run had, of those ordered from now on."""
    runs = [1 + len(each.others) for each in room.said if isinstance(each, effects.RunJob)]
    room.said.clear()
    return runs


def test_jobs_that_ended_a_worker_are_drawn_alone_so_that_only_the_guilty_ends_two() -> None:
    room = stage(settings=LIMITS)
    room.load("a")
    submit_group(room, "first")
    jobs = [submit_group(room, who) for who in ("ada", "bob", "cleo")]
    room.answer()
    room.said.clear()
    running = [job for job in jobs if room.state(job) == "running"]
    assert len(running) > 1, "they are drawn together"
    room.die()
    room.ready()
    while room.order():
        room.answer()
    assert set(batches(room)) == {1}
    assert {room.state(job) for job in jobs} == {"done"}


def test_after_two_workers_in_a_row_a_device_draws_one_at_a_time_until_a_picture() -> None:
    room = stage(settings=LIMITS)
    room.load("a")
    guilty = room.submit("a", "guilty")
    room.die()
    room.ready()
    room.answer()
    assert room.order() == f"run {guilty}"
    for who in ("ada", "bob", "cleo", "dan", "eve"):
        submit_group(room, who)
    room.die()
    assert room.state(guilty) == "failed"
    assert any("safe mode" in text for text in notices(room))
    room.said.clear()
    room.ready()
    room.answer()
    assert batches(room) == [1]
    while room.order():
        room.answer()
    assert max(batches(room)) > 1, "a picture was made: all is as before"


def test_a_worker_that_never_was_ready_is_not_blamed_on_jobs() -> None:
    room = stage(settings=LIMITS)
    for _ in range(5):
        room.die()
    room.ready()
    assert not any("safe mode" in text for text in notices(room))
    room.die()
    room.ready()
    assert any("safe mode" in text for text in notices(room))


def test_the_last_lines_of_the_workers_log_are_in_the_error() -> None:
    room = stage()
    job = drawing(room)
    for _ in range(2):
        room.orders.clear()
        room.tell(events.WorkerDied("gpu0", "signal SIGSEGV", "Fatal Python error\nThread 1"))
        room.ready()
        if room.order():
            room.answer()
    error = room.job(job).error
    assert error is not None
    assert error.facts["log"] == "Fatal Python error\nThread 1"
    assert "SIGSEGV" in error.message


def test_a_device_that_vanished_gives_its_jobs_to_the_others() -> None:
    room = stage(devices=("gpu0", "gpu1"))
    room.load("a", device="gpu0")
    job = room.submit("a")
    assert room.order("gpu0") == f"run {job}"
    room.die()
    room.tell(events.DeviceGone("gpu0", "exit code 4: torch sees no CUDA card"))
    room.answer("gpu1")
    assert room.order("gpu1") == f"run {job}"
    views = {view.device: view.state for view in room.conductor.snapshot(room.now).devices}
    assert views == {"gpu0": "lost", "gpu1": "ready"}


def test_a_device_that_comes_back_works_again() -> None:
    room = stage()
    room.die()
    room.tell(events.DeviceGone("gpu0", "no card"))
    room.ready()
    job = room.submit("a")
    room.settle()
    assert room.state(job) == "done"


def test_after_a_workers_end_models_come_back_in_the_order_in_which_they_are_needed() -> None:
    pinned = model("d", gb=10, pinned=True)
    room = stage(model("a", gb=10), model("b", gb=10), model("c", gb=10), pinned)
    room.answer()
    room.load("a", "b", "c")
    room.hold("b")
    job = room.submit("c")
    assert room.order() == f"run {job}"
    room.die()
    room.ready()
    orders = []
    while room.order():
        orders += room.orders_of()
        room.answer()
    assert orders == ["load c", f"run {job}", "load b", "load d"], (
        "a job, which is drawn alone now, a hold, a pin; nobody needs the other"
    )


# memory that does not come back


def test_a_worker_that_leaks_is_replaced_between_jobs_and_nobody_is_blamed() -> None:
    room = stage(settings=LIMITS)
    job = drawing(room)
    waiting = room.submit("a", "bob")
    room.tell(events.WorkerDrifted("gpu0", 3 * 10**9, 0))
    assert any("3 GB" in text or "3.0 GB" in text for text in notices(room))
    assert stops(room.later(1.0)) == [], "its job goes on"
    room.answer()
    assert room.state(job) == "done"
    assert room.order() == "", "nothing new begins on it"
    assert len(stops(room.later(1.0))) == 1
    assert stops(room.later(1.0)) == []
    room.die()
    room.ready()
    room.answer()
    assert room.order() == f"run {waiting}"
    room.answer()
    assert not any("safe mode" in text for text in notices(room))


def test_a_worker_that_leaks_first_ends_the_load_that_is_under_way() -> None:
    room = stage(settings=LIMITS)
    room.load("a")
    room.submit("b")
    assert room.order() == "load b"
    room.tell(events.WorkerDrifted("gpu0", 0, 2 * 10**9))
    assert stops(room.later(1.0)) == []
    room.answer()
    assert len(stops(room.later(1.0))) == 1
