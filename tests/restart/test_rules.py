"""An instructor's rules for a notebook hold whatever became of the server and its kernels."""

from contextlib import ExitStack
from pathlib import Path

from tests.api.kernels import RunningKernel
from tests.api.people import TURBO, Person
from tests.serverprocess import ServerProcess

LOW = {"priority": "low", "queue_limit": 1}


def rules(server: ServerProcess) -> object:
    with Person(server, "teacher") as teacher:
        return teacher.get("api/policy")["participants"]


def test_a_notebooks_rules_hold_after_the_server_was_stopped_and_after_it_was_killed(
    tmp_path: Path,
) -> None:
    server = ServerProcess(folder=tmp_path)
    with server:
        with RunningKernel(server) as ruled, RunningKernel(server, "") as nameless:
            with Person(server, "teacher") as teacher:
                for kernel in (ruled, nameless):
                    path = f"api/participants/{kernel.id}"
                    teacher.http.patch(path, json=LOW).raise_for_status()
            before = ruled.id
            # Neither the notebook's own kernel nor the server has time to say anything.
            server.kill()
            server.start()
        for end in (server.end, server.kill):
            with RunningKernel(server, "hearts.ipynb"):
                assert rules(server) == {before: LOW}
            with RunningKernel(server) as again, again.person() as notebook:
                assert again.id != before
                assert rules(server) == {again.id: LOW}
                with Person(server, "teacher") as teacher, teacher.paused():
                    job = notebook.submit()
                    assert job["priority"] == "low"
                    assert notebook.refused("POST", "api/jobs", json=TURBO)[1]["limit"] == 1
                    notebook.http.delete(f"api/jobs/{job['id']}").raise_for_status()
                before = again.id
                end()
                server.start()


def test_what_a_notebook_waits_for_is_its_next_kernels_with_the_class_that_it_had(
    tmp_path: Path,
) -> None:
    server = ServerProcess(folder=tmp_path)
    with server, ExitStack() as stack:
        kernel = stack.enter_context(RunningKernel(server))
        with Person(server, "teacher") as teacher, kernel.person() as notebook:
            rule = LOW | {"queue_limit": 2}
            path = f"api/participants/{kernel.id}"
            teacher.http.patch(path, json=rule).raise_for_status()
            teacher.http.post("api/queue/pause").raise_for_status()
            low, unwanted = notebook.submit()["id"], notebook.submit()["id"]
        server.kill()
        server.start()
        teacher = stack.enter_context(Person(server, "teacher"))
        with RunningKernel(server, "hearts.ipynb") as stranger, RunningKernel(server) as again:
            notebook = stack.enter_context(again.person())
            bob = stack.enter_context(stranger.person())
            normal = bob.submit()["id"]
            told = teacher.get("api/status")["waiting"]
            assert [job["id"] for job in told] == [normal, low, unwanted]
            assert [job["priority"] for job in told] == ["normal", "low", "low"]
            assert {job["kernel"] for job in told[1:]} == {again.id} != {kernel.id}
            people = teacher.get("api/participants")["participants"]
            assert {each["id"]: each["waiting"] for each in people}[again.id] == 2
            full = notebook.refused("POST", "api/jobs", json=TURBO)[1]
            assert (full["kind"], full["waiting"], full["limit"]) == ("queue_full", 2, 2)
            assert bob.refused("DELETE", f"api/jobs/{unwanted}")[0] == 404
            notebook.http.delete(f"api/jobs/{unwanted}").raise_for_status()
            notebook.submit()
            teacher.http.post("api/queue/resume").raise_for_status()
            done = notebook.ended(low)
            assert (done["state"], len(done["images"])) == ("done", 1)
            assert bob.get(f"api/jobs/{normal}")["state"] == "done"
            assert notebook.get(f"api/jobs/{unwanted}")["state"] == "cancelled"
