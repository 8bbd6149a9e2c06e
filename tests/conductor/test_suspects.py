"""Who was at work when a worker ended is tried alone, so that the innocent are not blamed."""

from tests.conductor.staging import Stage, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Settings
from workshop_gpu.conductor.states import Priority

SMALL = [model(name, gb=10.0) for name in "abcd"]
LIMITS = Settings(load_limit_s=600.0, stall_limit_s=300.0, run_limit_s=0.0, queue_limit=9)


def beside(settings: Settings | None = None) -> tuple[Stage, str, str]:
    """A job of "a" that runs, and one of "b" whose model is loaded beside it."""
    room = stage(*SMALL, settings=settings)
    room.load("a")
    runs, waits = room.submit("a", "ada"), room.submit("b", "bob")
    assert room.orders_of() == [f"run {runs}", "load b"]
    return room, runs, waits


def ends(room: Stage, culprit: str, most: int = 20) -> int:
    """Answers all orders, but this one ends the worker each time, with all that is beside it. Says
    how often."""
    deaths = 0
    for _ in range(most):
        room.later(1.0)
        if culprit in room.orders_of():
            room.die()
            room.ready()
            deaths += 1
        elif room.order():
            room.answer()
    return deaths


def message(room: Stage, job: str) -> str:
    error = room.job(job).error
    return "" if error is None else error.message


def stops(said: list[effects.Effect]) -> list[str]:
    return [each.reason for each in said if isinstance(each, effects.StopWorker)]


def test_a_job_beside_a_load_that_ends_workers_is_drawn_and_the_load_is_blamed() -> None:
    room, innocent, waits = beside()
    assert ends(room, "load b") == 2
    assert room.state(innocent) == "done"
    assert 'Loading "b" ended the GPU worker twice' in message(room, waits)


def test_a_load_beside_a_job_that_ends_workers_goes_on_and_the_job_is_blamed() -> None:
    room, guilty, innocent = beside()
    assert ends(room, f"run {guilty}") == 2
    assert 'generating with "a", ended the GPU worker twice' in message(room, guilty)
    assert room.state(innocent) == "done"


def test_a_job_beside_loads_that_take_too_long_is_drawn_and_the_load_is_blamed() -> None:
    room, innocent, waits = beside(LIMITS)
    for seconds_s in range(10, 610, 10):
        room.tell(events.JobProgressed(innocent, 1, 28))
        stopped = stops(room.later(10.0))
        assert bool(stopped) == (seconds_s == 600)
    room.die()
    room.ready()
    assert 'Loading "b" took longer than 600 s' in message(room, waits)
    room.later(40.0)
    again = room.submit("b", "bob")
    room.answer()
    assert room.orders_of() == [f"run {innocent}"], "it begins alone, and so stays"
    room.answer()
    assert room.state(innocent) == "done"
    assert room.orders_of() == ["load b"]
    room.later(600.0)
    room.die()
    assert "took longer" in message(room, again)


def test_a_stop_for_a_load_is_no_death_of_the_job_beside_it() -> None:
    room, innocent, _ = beside(LIMITS)
    room.later(600.0)
    for _ in range(2):
        room.die()
        assert room.state(innocent) == "queued", "the first end was not its doing"
        room.ready()
        room.answer()
        assert room.order() == f"run {innocent}"
    room.die()
    assert "ended the GPU worker twice" in message(room, innocent)


def test_a_stop_for_an_eviction_that_hangs_is_no_death_of_the_job_beside_it() -> None:
    room = stage(settings=LIMITS)
    room.load("a", "b")
    innocent = room.submit("b", "ada")
    room.submit("c", "bob")
    room.later(20.0)
    assert room.orders_of() == [f"run {innocent}", "evict a"]
    assert len(stops(room.later(300.0))) == 1
    assert stops(room.later(300.0)) == []
    for _ in range(2):
        room.die()
        assert room.state(innocent) == "queued"
        room.ready()
        while f"run {innocent}" not in room.orders_of():
            room.answer()


def test_a_stop_for_a_job_that_hangs_is_no_death_of_the_load_beside_it() -> None:
    settings = Settings(load_limit_s=0.0, stall_limit_s=0.0, run_limit_s=100.0)
    room, guilty, innocent = beside(settings)
    room.later(100.0)
    assert len(stops(room.later(10.0))) == 1
    room.die()
    assert "took longer" in message(room, guilty)
    room.ready()
    assert room.order() == "load b"
    room.die()
    assert room.state(innocent) == "queued", "that was the first end over the load"
    room.ready()
    room.die()
    assert 'Loading "b" ended the GPU worker twice' in message(room, innocent)


def test_a_job_that_hangs_is_counted_when_its_worker_is_stopped() -> None:
    room = stage(*SMALL, settings=LIMITS)
    room.load("a")
    guilty = room.submit("a")
    for _ in range(2):
        assert len(stops(room.later(300.0))) == 1
        room.die()
        room.ready()
        if room.order():
            room.answer()
    assert "ended the GPU worker twice" in message(room, guilty)


def suspect_job() -> tuple[Stage, str]:
    """A job whose worker ended once, which waits while its model, and then that of a better class,
    are loaded."""
    room = stage(*SMALL)
    room.load("a")
    suspect = room.submit("a", "ada")
    room.die()
    room.submit("c", "cleo", priority=Priority.HIGH)
    room.ready()
    assert room.order() == "load c"
    room.tell(events.ModelWanted("a"))
    room.answer()
    return room, suspect


def test_a_suspect_does_not_begin_beside_a_load_and_none_of_its_class_passes_it_meanwhile() -> None:
    room, suspect = suspect_job()
    assert room.orders_of() == ["run job-3", "load a"]
    room.answer(which="load")
    room.submit("b", "bob", priority=Priority.HIGH)
    assert room.orders_of() == ["run job-3", "load b"]
    behind = room.submit("c", "dan")
    room.answer(which="run")
    assert room.orders_of() == ["load b"], "neither begins"
    room.answer()
    room.answer()
    assert room.orders_of() == [f"run {suspect}"]
    room.answer()
    assert room.orders_of() == [f"run {behind}"]


def test_nothing_begins_until_the_pictures_of_a_suspect_are_files() -> None:
    room = stage(*SMALL)
    room.load("a")
    suspect = room.submit("a", "ada")
    room.die()
    room.ready()
    waiting = [room.submit("a", "bob"), room.submit("b", "cleo")]
    room.answer()
    assert room.orders_of() == [f"run {suspect}"]
    room.take_order()
    room.tell(events.JobDrawn(suspect, 5.0, 0))
    assert room.orders_of() == []
    room.tell(events.JobFinished(suspect))
    assert room.orders_of() == [f"run {waiting[0]}", "load b"]


def test_pictures_of_a_suspect_that_never_become_files_do_not_keep_its_device_for_ever() -> None:
    room = stage(*SMALL, settings=LIMITS)
    room.load("a")
    suspect = room.submit("a", "ada")
    room.die()
    room.ready()
    waiting = room.submit("a", "bob")
    room.answer()
    room.take_order()
    room.later(100.0)
    room.tell(events.JobDrawn(suspect, 5.0, 0))
    assert stops(room.later(299.0)) == []
    assert len(stops(room.later(1.0))) == 1
    room.die()
    assert "ended the GPU worker twice" in message(room, suspect)
    room.ready()
    room.answer()
    assert room.orders_of() == [f"run {waiting}"]


def test_a_suspect_load_waits_for_the_run_and_is_passed_by_nobody_behind_it() -> None:
    room, _, waits = beside()
    room.die()
    room.submit("a", "cleo", priority=Priority.HIGH)
    room.ready()
    room.answer()
    assert room.orders_of() == ["run job-4"]
    behind = [room.submit(name, who) for name, who in (("a", "ada"), ("d", "dan"), ("a", "cleo"))]
    assert room.orders_of() == ["run job-4"], "neither is loaded"
    room.answer()
    assert room.orders_of() == ["run job-2"], "the other suspect"
    room.answer()
    assert room.orders_of() == ["load b"]
    room.answer()
    assert room.orders_of() == [f"run {waits}", "load d"], "it came well: all is as before"
    room.settle()
    assert {room.state(job) for job in behind} == {"done"}


def test_a_busy_device_does_not_keep_a_suspect_load_out_for_ever() -> None:
    room, first, waits = beside()
    room.die()
    room.ready()
    room.answer()
    assert room.orders_of() == [f"run {first}"]
    for turn in range(50):
        room.submit("a", f"guest {turn}")
        room.now += 5.0
        room.answer()
        if room.state(waits) == "done":
            break
    assert room.state(waits) == "done"


def test_a_suspect_load_that_somebody_holds_waits_for_the_run_and_is_not_kept_out() -> None:
    room = stage(*SMALL)
    room.load("a")
    room.submit("a", "ada")
    room.hold("b", ttl_s=10_000.0)
    assert "load b" in room.orders_of()
    room.die()
    room.ready()
    for turn in range(50):
        room.submit("a", f"guest {turn}")
        assert len(room.orders_of()) == 1
        if room.order() == "load b":
            break
        room.later(5.0)
        room.answer()
    assert room.order() == "load b"


def test_on_another_device_too_nothing_begins_beside_a_suspect() -> None:
    room = stage(*SMALL, devices=("gpu0", "gpu1"))
    room.load("a")
    suspect = room.submit("a", "ada")
    room.die()
    room.tell(events.DeviceGone("gpu0", "no card"))
    room.answer("gpu1")
    room.submit("b", "bob")
    assert room.orders_of("gpu1") == [f"run {suspect}"]
    room.answer("gpu1")
    assert room.state(suspect) == "done"
    assert room.orders_of("gpu1") == ["load b"], "at once, though no worker of this device ended"
