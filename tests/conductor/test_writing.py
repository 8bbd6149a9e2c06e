"""Between the end of the drawing and the files on the disk: the device goes on with others."""

from tests.conductor.staging import GB, Stage, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.errors import ErrorReport


def drawing(room: Stage) -> str:
    """A job that a worker draws."""
    room.load("a")
    job = room.submit("a", "ada")
    room.take_order("gpu0", "run")
    return job


def working_bytes(room: Stage) -> int:
    holders = room.conductor.snapshot(room.now).devices[0].holders
    return sum(holder.bytes for holder in holders if holder.kind == "working")


def used_s(room: Stage, participant: str) -> float:
    return room.conductor.accounts().used_s[participant]


def test_the_next_job_begins_while_the_pictures_of_the_last_become_files() -> None:
    room = stage()
    job, next_job = drawing(room), room.submit("a", "bob")
    room.tell(events.JobDrawn(job, 5.0, GB))
    assert room.order() == f"run {next_job}"
    assert (room.state(job), room.state(next_job)) == ("running", "running")
    assert room.job(job).step == room.job(job).steps
    room.tell(events.JobFinished(job))
    assert (room.state(job), room.state(next_job)) == ("done", "running")


def test_what_is_drawn_holds_no_memory_and_its_model_may_leave() -> None:
    room = stage()
    job = drawing(room)
    assert working_bytes(room) > 0
    room.tell(events.JobDrawn(job, 5.0, GB))
    assert working_bytes(room) == 0
    room.tell(events.EvictionAsked("a"))
    assert room.order() == "evict a"


def test_the_files_take_nothing_from_anybodys_share() -> None:
    room = stage()
    job = drawing(room)
    room.now += 5.0
    room.tell(events.JobDrawn(job, 5.0))
    before_s = used_s(room, "ada")
    room.now += 3.0
    room.tell(events.JobFinished(job))
    assert used_s(room, "ada") - before_s == 5.0, "a job that runs is not paid for its next life"


def test_where_the_worker_ends_before_the_files_are_there_the_job_is_drawn_again_for_nothing() -> (
    None
):
    room = stage()
    job = drawing(room)
    before_s = used_s(room, "ada")
    room.now += 5.0
    room.tell(events.JobDrawn(job, 5.0))
    next_job = room.submit("a", "bob")
    room.die()
    assert (room.state(job), room.state(next_job)) == ("queued", "queued")
    assert used_s(room, "ada") == before_s
    room.ready()
    room.settle()
    assert (room.state(job), room.state(next_job)) == ("done", "done")


def test_who_cancels_what_is_drawn_stops_no_worker_and_gets_the_picture() -> None:
    room = stage()
    job = drawing(room)
    room.tell(events.JobDrawn(job, 5.0))
    new = room.tell(events.JobCancelled(job))
    assert not [effect for effect in new if isinstance(effect, effects.CancelJob)]
    room.tell(events.JobFinished(job))
    assert room.state(job) == "done"


def test_what_was_cancelled_is_not_drawn_again_where_its_files_are_lost() -> None:
    room = stage()
    job = drawing(room)
    room.tell(events.JobDrawn(job, 5.0))
    room.tell(events.JobCancelled(job))
    room.die()
    assert room.state(job) == "cancelled"


def test_files_that_cannot_be_made_fail_the_job_and_nothing_else() -> None:
    room = stage()
    job = drawing(room)
    next_job = room.submit("a", "bob")
    room.tell(events.JobDrawn(job, 5.0))
    room.tell(events.JobFailed(job, ErrorReport("out_of_memory", "no memory for the file")))
    assert (room.state(job), room.state(next_job)) == ("failed", "running")


def test_a_drawn_fact_that_comes_twice_changes_nothing() -> None:
    room = stage()
    job = drawing(room)
    room.tell(events.JobDrawn(job, 5.0))
    assert room.tell(events.JobDrawn(job, 5.0)) == []


def test_a_planned_restart_waits_for_the_files() -> None:
    room = stage()
    job = drawing(room)
    room.tell(events.WorkerDrifted("gpu0", 10 * GB, 0))
    room.tell(events.JobDrawn(job, 5.0))
    assert not stops(room.later(1.0))
    room.tell(events.JobFinished(job))
    assert stops(room.later(1.0))
    assert room.state(job) == "done"


def stops(new: list[effects.Effect]) -> bool:
    return any(isinstance(effect, effects.StopWorker) for effect in new)


def test_a_model_that_left_the_catalogue_is_known_until_the_files_are_there() -> None:
    room = stage()
    job = drawing(room)
    room.tell(events.CatalogueChanged((model("b"),)))
    room.tell(events.JobDrawn(job, 5.0))
    room.answer()  # nothing keeps the model any more
    room.die()
    assert room.state(job) == "failed"
    assert room.job(job).error.kind == "model_unknown"


def test_files_that_are_there_are_told_and_decide_nothing() -> None:
    room = stage()
    job = drawing(room)
    waiting = [room.submit("a", who) for who in ("bob", "cleo")]
    room.tell(events.JobDrawn(job, 5.0))
    (told,) = room.tell(events.JobFinished(job))
    assert isinstance(told, effects.AnnounceJob)
    assert (told.job.job, told.job.state.value) == (job, "done")
    assert [room.state(each) for each in waiting] == ["running", "queued"]


def test_a_picture_after_two_deaths_ends_the_care_at_once() -> None:
    room = stage()
    for _ in range(2):
        room.tell(events.ModelWanted("a"))
        room.die()
        room.ready()
    room.answer(which="load a")
    job, next_job = room.submit("a", "ada"), room.submit("a", "bob")
    room.take_order("gpu0", f"run {job}")
    room.tell(events.JobDrawn(job, 5.0))
    room.tell(events.ModelWanted("b"))
    assert room.order() == f"run {next_job}", "one load or one job at a time"
    room.tell(events.JobFinished(job))
    assert room.take_order("gpu0", "load b")
