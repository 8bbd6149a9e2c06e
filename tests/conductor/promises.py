"""What must be true of the conductor after every event, whatever happened."""

from tests.conductor.outside import Outside
from workshop_gpu.conductor import effects
from workshop_gpu.conductor.states import JobState, ReservationState, SlotState

ROOM = {"room", "reservation", "foreign", "pin"}
WAITING_FOR = {"", "download", "load", "device", "pause", *ROOM}


def check(seen: effects.Snapshot, outside: Outside) -> None:
    """Fails with the promise that is broken."""
    every_byte_has_one_holder(seen)
    nothing_was_given_that_was_not_there(seen, outside)
    no_job_is_lost_or_answered_twice(seen, outside)
    jobs_run_where_a_worker_was_told_to_run_them(seen, outside)
    slots_are_what_workers_have(seen, outside)
    holds_and_reservations_are_known(seen, outside)
    positions_count_from_one(seen)


def every_byte_has_one_holder(seen: effects.Snapshot) -> None:
    for device in seen.devices:
        names = [(holder.kind, holder.name) for holder in device.holders]
        assert len(names) == len(set(names)), "a holder is there twice"
        assert all(holder.bytes > 0 for holder in device.holders)
        held = sum(holder.bytes for holder in device.holders)
        assert held + device.free_bytes == device.total_bytes, "bytes without a holder"


def nothing_was_given_that_was_not_there(seen: effects.Snapshot, outside: Outside) -> None:
    for device in seen.devices:
        if device.device in outside.granted_to:
            assert device.free_bytes >= 0, "bytes were given away twice"
    outside.granted_to.clear()


def nothing_is_held_at_rest(seen: effects.Snapshot) -> None:
    """Of the quiet at the end, when all jobs have ended."""
    # A model whose every component is staged has nothing on the device that could be freed.
    left = [each for each in seen.slots if each.state is SlotState.LEAVING and each.bytes]
    kinds = {holder.kind for device in seen.devices for holder in device.holders}
    assert not kinds & {"working", "reservation"}
    assert ("freeing" in kinds) == bool(left)


def no_job_is_lost_or_answered_twice(seen: effects.Snapshot, outside: Outside) -> None:
    living = {view.job: view for view in seen.jobs}
    assert len(living) == len(seen.jobs)
    assert set(living) == outside.living
    for job, view in living.items():
        announced = outside.announced[job]
        assert (announced.state, announced.device) == (view.state, view.device)
        assert view.waiting_for in WAITING_FOR


def jobs_run_where_a_worker_was_told_to_run_them(seen: effects.Snapshot, outside: Outside) -> None:
    """And working memory is held for them there, and for nobody else."""
    running = {(view.device, view.job) for view in seen.jobs if view.state is JobState.RUNNING}
    drawn = {
        (device, job)
        for device, worker in outside.workers.items()
        for job in (*worker.unanswered, *worker.writing)
    }
    assert running == drawn
    for device in seen.devices:
        names = {holder.name for holder in device.holders if holder.kind == "working"}
        worker = outside.workers.get(device.device)
        batch = {worker.run.job, *worker.run.others} if worker and worker.run else set()
        assert names <= batch, "working memory of a job that does not run"
        assert bool(names) == bool(batch), "a job without working memory"
    for slot in seen.slots:
        worker = outside.workers.get(slot.device)
        mine = worker is not None and worker.run is not None and worker.run.model == slot.model
        assert slot.running_jobs == (len(worker.unanswered) if worker and mine else 0)


def slots_are_what_workers_have(seen: effects.Snapshot, outside: Outside) -> None:
    ready = {(each.device, each.model) for each in seen.slots if each.state is SlotState.READY}
    moving = {
        (each.device, each.model)
        for each in seen.slots
        if each.state in (SlotState.LOADING, SlotState.LEAVING)
    }
    assert ready == {
        (device, model) for device, worker in outside.workers.items() for model in worker.ready
    }
    assert moving == {
        (device, worker.transfer.model)
        for device, worker in outside.workers.items()
        if worker.transfer is not None
    }


def holds_and_reservations_are_known(seen: effects.Snapshot, outside: Outside) -> None:
    assert {view.hold for view in seen.holds} == set(outside.holds)
    assert {view.reservation: view.state for view in seen.reservations} == {
        name: view.state for name, view in outside.reservations.items()
    }
    held = {
        (device.device, holder.name)
        for device in seen.devices
        for holder in device.holders
        if holder.kind == "reservation"
    }
    granted = {
        (view.device, view.reservation)
        for view in seen.reservations
        if view.state is ReservationState.GRANTED
    }
    assert held <= granted, "room is held for nobody"
    assert seen.policy == outside.policy


def positions_count_from_one(seen: effects.Snapshot) -> None:
    waiting = [view for view in seen.jobs if view.state is JobState.QUEUED]
    assert [view.position for view in waiting] == list(range(1, len(waiting) + 1))
    assert not any(view.position for view in seen.jobs if view.state is JobState.RUNNING)
