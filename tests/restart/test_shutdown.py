"""SIGTERM while everything is busy: a soon end that leaves nothing behind and loses nothing."""

import os
import signal
import time
from pathlib import Path

import httpx
import psutil

from tests.api.kernels import RunningKernel
from tests.api.people import WAIT_S, Person
from tests.serverprocess import ServerProcess

LIMIT_S = 20.0
"""Three seconds for a worker that does not end by itself, and what a busy machine adds."""


def workers(server: ServerProcess) -> list[psutil.Process]:
    children = psutil.Process(server.pid).children()
    return [child for child in children if "workshop_gpu.worker" in child.cmdline()]


def test_a_busy_server_with_a_stopped_worker_ends_in_time_and_its_jobs_wait_on(
    tmp_path: Path,
) -> None:
    server = ServerProcess(("cpu:60MB",), folder=tmp_path)
    with server, Person(server, "ann") as ann:
        ann.until_ready()
        jobs = [ann.submit(model="shapes", steps=90)["id"] for _ in range(2)]
        stream = ann.events()
        next(stream)
        before = workers(server)
        assert len(before) == 1
        os.kill(before[0].pid, signal.SIGSTOP)
        started_s = time.monotonic()
        server.end()
        assert time.monotonic() - started_s < LIMIT_S
        _, alive = psutil.wait_procs(before, timeout=WAIT_S)
        assert alive == []
        list(stream)  # it ends, and breaks nothing
        server.start()
        with Person(server, "ann") as again:
            states = {job: again.get(f"api/jobs/{job}")["state"] for job in jobs}
            assert set(states.values()) <= {"queued", "running", "done"}, states
            for job in jobs:
                again.http.delete(f"api/jobs/{job}")


def test_labs_own_shut_down_leaves_no_process_and_its_jobs_wait_on(tmp_path: Path) -> None:
    server = ServerProcess(("cpu:60MB",), folder=tmp_path)
    with server, RunningKernel(server), Person(server, "ann") as ann:
        ann.until_ready()
        jobs = [ann.submit(model="shapes", steps=90)["id"] for _ in range(2)]
        before = psutil.Process(server.pid)
        all_of_it = [before, *before.children(recursive=True)]
        assert len(all_of_it) == 3, "the server, a worker, a kernel"
        authorization = ann.http.headers["Authorization"]
        headers = {"Authorization": authorization}
        httpx.post(
            f"{server.url}api/shutdown", headers=headers, trust_env=False, timeout=WAIT_S
        ).raise_for_status()
        _, alive = psutil.wait_procs(all_of_it, timeout=WAIT_S)
        assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
        server.end()
        server.start()
        with Person(server, "ann") as again:
            states = {job: again.get(f"api/jobs/{job}")["state"] for job in jobs}
            assert set(states.values()) <= {"queued", "running", "done"}, states
            for job in jobs:
                again.http.delete(f"api/jobs/{job}")


def test_what_kernels_wait_for_waits_for_the_next_start_too(tmp_path: Path) -> None:
    """Jupyter ends the kernels of a server that it stops, but the notebooks are opened again."""
    server = ServerProcess(("cpu:60MB",), folder=tmp_path)
    with server:
        with RunningKernel(server) as kernel, kernel.person() as asked:
            asked.until_ready()
            jobs = [asked.submit(model="shapes", steps=60)["id"] for _ in range(2)]
            server.end()
        server.start()
        with Person(server, "ann") as instructor:
            listed = instructor.get("api/jobs?all=1")["jobs"]
            states = {job["id"]: job["state"] for job in listed}
            assert set(states) == set(jobs)
            assert set(states.values()) <= {"queued", "running", "done"}, states
