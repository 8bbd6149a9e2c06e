"""A room full of kernels on devices that are too small: the real server, kernels and workers."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.api.kernels import RunningKernel
from tests.api.people import WAIT_S, Person
from tests.serverprocess import WHOLE, ServerProcess

TIGHT = "cpu:45MB"
"""Room for one of the models with its working memory, not for two (21 MB and 29 MB of weights,
5 % margin)."""


def changes_of_slots(stream, *states):
    """(model, state, freed bytes) each time that a slot comes into one of these states."""
    last = {}
    for _, event in stream:
        if event["event"] != "slot":
            continue
        slot = event["slot"]
        if last.get(slot["model"]) != slot["state"] and slot["state"] in states:
            yield slot["model"], slot["state"], event["freed_bytes"]
        last[slot["model"]] = slot["state"]


@pytest.fixture(scope="module")
def tight():
    with ServerProcess(devices=(TIGHT,), args=WHOLE) as process:
        yield process


@pytest.fixture
def teacher(tight):
    with Person(tight, "teacher") as somebody:
        yield somebody


def test_two_models_that_do_not_fit_together_take_turns(tight, teacher):
    stream = teacher.events()
    next(stream)
    for model in ("shapes", "shapes-dit", "shapes"):
        job = teacher.ended(teacher.submit(model=model, steps=2)["id"])
        assert job["state"] == "done", job
        assert teacher.slots() == {model: "ready"}
    changes = changes_of_slots(stream, "ready", "absent")
    seen = [next(changes) for _ in range(5)]
    assert [(model, state) for model, state, _ in seen] == [
        ("shapes", "ready"),
        ("shapes", "absent"),
        ("shapes-dit", "ready"),
        ("shapes-dit", "absent"),
        ("shapes", "ready"),
    ]
    assert all(freed_bytes > 10_000_000 for _, state, freed_bytes in seen if state == "absent")


def test_a_held_model_stays_while_other_kernels_wait_and_goes_when_its_kernel_is_killed(
    tight, teacher
):
    with ExitStack() as stack:
        holder, second, third = (
            stack.enter_context(RunningKernel(tight, f"{name}.ipynb")) for name in "abc"
        )
        keeps, asks, also = (
            stack.enter_context(kernel.person()) for kernel in (holder, second, third)
        )
        keeps.hold("shapes")
        keeps.ended(keeps.submit(model="shapes", steps=2)["id"])
        stream = teacher.events()
        next(stream)
        waits = [asks.submit(model="shapes-dit", steps=2), also.submit(model="shapes-dit", steps=2)]
        # The held model still serves those who want it, ahead of those who must wait.
        assert also.ended(also.submit(model="shapes", steps=2)["id"])["state"] == "done"
        status = teacher.get("api/status")
        assert {job["id"] for job in status["waiting"]} == {job["id"] for job in waits}
        assert {job["waiting_for"] for job in status["waiting"]} == {"room"}
        assert teacher.refused("POST", "api/models/shapes/evict")[1]["kind"] == "model_in_use"
        holder.kill()
        assert asks.ended(waits[0]["id"])["state"] == "done"
        assert also.ended(waits[1]["id"])["state"] == "done"
        # One load is shared by all who waited for it.
        loads = changes_of_slots(_until_done(stream, waits[1]["id"]), "loading")
        assert [model for model, _, _ in loads] == ["shapes-dit"]


def _until_done(stream, job):
    for event_id, event in stream:
        yield event_id, event
        found = event["job"] if event["event"] == "job" else {"id": ""}
        if found["id"] == job and found["state"] == "done":
            return


def test_a_model_that_can_never_fit_is_refused_with_the_missing_bytes():
    with ServerProcess(("cpu:20MB",), WHOLE) as small, Person(small, "ann") as ann:
        ann.until(lambda event: ann.get("api/status")["devices"][0]["state"] == "ready")
        status, error = ann.refused(
            "POST", "api/jobs", json={"model": "shapes", "prompt": "a heart"}
        )
        assert (status, error["kind"]) == (422, "model_too_large")
        assert error["needed_bytes"] - error["largest_bytes"] == error["missing_bytes"] > 0


def test_two_devices_work_side_by_side_and_neither_evicts_the_others_model():
    with (
        ServerProcess(devices=(TIGHT, TIGHT), args=WHOLE) as two,
        Person(two, "ann") as ann,
        Person(two, "ben") as ben,
        ThreadPoolExecutor() as pool,
    ):
        ann.until(lambda event: {d["state"] for d in ann.get("api/status")["devices"]} == {"ready"})
        jobs = [ann.submit(model="shapes", steps=4), ben.submit(model="shapes-dit", steps=4)]
        ended = list(pool.map(lambda who, job: who.ended(job["id"]), (ann, ben), jobs))
        assert [job["state"] for job in ended] == ["done", "done"]
        assert {job["device"] for job in ended} == {"cpu:0", "cpu:1"}
        again = [ann.submit(model="shapes-dit", steps=2), ann.submit(model="shapes", steps=2)]
        assert [ann.ended(job["id"])["device"] for job in again] == [
            ended[1]["device"],
            ended[0]["device"],
        ]
        assert sorted(ann.slots()) == ["shapes", "shapes-dit"]


def test_a_killed_worker_is_replaced_and_the_job_that_it_ran_runs_again(tight, teacher):
    job = teacher.submit(model="shapes", steps=60)
    teacher.begun(job["id"], 2)
    [worker] = _workers_of(tight.pid)
    os.kill(worker, signal.SIGKILL)
    told = []

    def says_why(_):
        (device,) = teacher.get("api/status")["devices"]
        told.append((device["state"], device["reason"], device["retry_s"]))
        return bool(device["reason"])

    teacher.until(says_why)
    assert told[-1] == ("starting", "signal SIGKILL", None)
    ended = teacher.ended(job["id"])
    assert ended["state"] == "done"
    assert _workers_of(tight.pid) != [worker]
    status = teacher.get("api/status")
    assert status["devices"][0]["reason"] == ""
    news = [each["text"] for each in status["news"]]
    assert "The worker of cpu:0 is being started again (signal SIGKILL)" in news


def test_a_job_that_ends_two_workers_is_failed_and_named_and_the_next_one_is_drawn(tight, teacher):
    guilty = teacher.submit(model="shapes", steps=90)["id"]

    def is_drawn_no_longer(event):
        found = event.get("mine", [event["job"]] if event["event"] == "job" else [])
        return any(job["id"] == guilty and job["state"] != "running" for job in found)

    for _ in range(2):
        teacher.begun(guilty, 2)
        [worker] = _workers_of(tight.pid)
        os.kill(worker, signal.SIGSEGV)
        teacher.until(is_drawn_no_longer)
    error = teacher.ended(guilty)["error"]
    assert error["kind"] == "worker_lost"
    assert "ended the GPU worker twice (signal SIGSEGV: Fatal Python error" in error["message"]
    assert "hread" in error["facts"]["log"], "what each thread did"
    next_one = teacher.ended(teacher.submit(model="shapes", steps=2)["id"])
    assert next_one["state"] == "done"
    news = [each["text"] for each in teacher.get("api/status")["news"]]
    assert any("safe mode is over" in text for text in news), news


def test_the_server_never_imports_torch_and_its_workers_end_with_it():
    with ServerProcess(devices=(TIGHT,), args=WHOLE) as process:
        with Person(process, "ann") as ann:
            assert ann.ended(ann.submit(model="shapes", steps=1)["id"])["state"] == "done"
        libraries = Path(f"/proc/{process.pid}/maps").read_text()
        assert "libtorch" not in libraries
        [worker] = _workers_of(process.pid)
        assert "libtorch" in Path(f"/proc/{worker}/maps").read_text()
        # Only the server dies, by a signal that it cannot handle.
        os.kill(process.pid, signal.SIGKILL)
        pidfd = os.pidfd_open(worker)
        _wait_for_end(pidfd)


def _wait_for_end(pidfd):
    import select

    ended, _, _ = select.select([pidfd], [], [], WAIT_S)
    os.close(pidfd)
    assert ended, "the worker outlived its server"


def _workers_of(server_pid):
    """Process ids of the server's children that are workers."""
    found = []
    for pid in Path(f"/proc/{server_pid}/task/{server_pid}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if "workshop_gpu.worker" in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(int(pid))
    return found
