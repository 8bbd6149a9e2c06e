import pytest
from msgspec.structs import replace

from workshop_gpu.conductor.effects import JobView
from workshop_gpu.conductor.errors import JobUnknown
from workshop_gpu.conductor.states import JobState, Priority
from workshop_gpu.host.records import JobRecord, JobRecords, Participant
from workshop_gpu.worker.protocol import GenerateParams

PARAMS = GenerateParams(prompt="a", seed=1, steps=2, guidance=3.0, width=64, height=64)


def record(job, participant="ann"):
    return JobRecord(job, Participant(participant, participant), "shapes", PARAMS, submitted_at=1.0)


def view(job, state, started_s=-1.0):
    return JobView(
        job=job,
        participant="ann",
        kernel=None,
        model="shapes",
        priority=Priority.NORMAL,
        state=state,
        device=None,
        position=0,
        expected_wait_s=None,
        waiting_for="",
        step=0,
        steps=2,
        submitted_s=0.0,
        started_s=started_s,
        ended_s=-1.0,
        error=None,
    )


def test_a_participants_jobs_come_newest_first_and_nobody_elses():
    records = JobRecords()
    for job, who in (("1", "ann"), ("2", "ben"), ("3", "ann")):
        records.add(record(job, who))
    assert [found.id for found in records.of("ann")] == ["3", "1"]


def test_times_are_noted_once():
    records = JobRecords()
    records.add(record("1"))
    started = records.update(view("1", JobState.RUNNING, started_s=0.0)).started_at
    assert started is not None
    ended = records.update(view("1", JobState.DONE, started_s=0.0))
    assert ended.started_at == started
    assert ended.ended
    assert ended.ended_at >= started


def test_a_job_that_is_removed_is_unknown_also_to_its_owner():
    records = JobRecords()
    for job in "12":
        records.add(record(job))
    records.remove("1")
    assert [found.id for found in records.of("ann")] == ["2"]
    with pytest.raises(JobUnknown):
        records.get("1")
    records.remove("2")
    assert records.of("ann") == []


def test_of_many_jobs_those_that_wait_and_the_latest_are_at_hand():
    records = JobRecords()
    for job in "12345":
        records.add(record(job))
    for job in "235":
        records.update(view(job, JobState.DONE))
    assert [found.id for found in records.recent("ann", 2)] == ["5", "4", "3", "1"]
    assert [found.id for found in records.recent("ann", 0)] == ["4", "1"]


def test_a_view_of_a_forgotten_job_changes_nothing():
    assert JobRecords().update(view("1", JobState.DONE)) is None


def test_a_job_that_is_measured_step_by_step_is_in_no_group():
    job = record("a")
    assert job.group
    job.params = replace(PARAMS, profile=True)
    assert job.group == ""
