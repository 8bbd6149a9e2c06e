"""An instructor's rules for a notebook hold whatever became of the server and its kernels."""

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
