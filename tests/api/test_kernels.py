"""What belongs to a kernel lives and dies with it."""

import os

import pytest

from tests.api.kernels import RunningKernel
from tests.api.people import TURBO
from tests.serverprocess import ServerProcess


@pytest.fixture
def own_kernel(server):
    with RunningKernel(server, "hearts.ipynb") as running:
        yield running


def test_a_kernel_gets_a_token_of_its_own_and_is_named_by_its_notebook(own_kernel):
    assert own_kernel.environment("WORKSHOP_GPU_URL") == own_kernel.server.url
    with own_kernel.person() as participant:
        me = participant.get("api/me")
    assert me == {
        "participant": own_kernel.id,
        "name": "hearts",
        "kernel": own_kernel.id,
        "admin": False,
    }


def test_a_kernels_token_opens_nothing_else_of_the_server(own_kernel):
    with own_kernel.person() as participant:
        for path in ("api/kernels", "api/contents", "api/sessions"):
            answer = participant.http.get(f"{own_kernel.server.url}{path}")
            assert answer.status_code == 403, path
    assert own_kernel.environment("WORKSHOP_GPU_TOKEN") not in own_kernel.server.log_text()
    assert own_kernel.server.token not in own_kernel.environment("WORKSHOP_GPU_URL")


def test_a_restart_gives_a_new_token_and_the_old_one_is_worth_nothing(own_kernel):
    with own_kernel.person() as before:
        before.hold("shapes")
        own_kernel.restart()
        assert before.refused("GET", "api/me")[0] == 403
    with own_kernel.person() as after:
        assert after.get("api/me")["participant"] == own_kernel.id
        assert after.get("api/holds") == {"holds": []}


def test_when_a_kernel_ends_its_holds_go_its_waiting_jobs_are_cancelled_and_running_ones_finish(
    own_kernel, person
):
    stream = person.events()
    next(stream)
    with own_kernel.person() as participant:
        participant.hold("shapes")
        running = participant.submit(model="shapes", steps=40)
        states = _states(stream)
        while next(states) != (running["id"], "running"):
            pass
        with person.paused():  # a kernel may take longer to end than the job that runs
            waiting = participant.submit(model="shapes", steps=40)
            own_kernel.shut_down()
            ended = {}
            while len(ended) < 2:
                job, state = next(states)
                if state in ("done", "failed", "cancelled"):
                    ended[job] = state
    assert ended == {running["id"]: "done", waiting["id"]: "cancelled"}
    slots = [slot for device in person.get("api/status")["devices"] for slot in device["slots"]]
    assert [slot["holds"] for slot in slots if slot["model"] == "shapes"] == [0]


def test_a_killed_kernel_loses_its_holds_too(own_kernel, person):
    with own_kernel.person() as participant:
        participant.hold("shapes")
    stream = person.events()
    next(stream)
    own_kernel.kill()
    freed = next(
        event
        for _, event in stream
        if event["event"] == "slot"
        and event["slot"]["model"] == "shapes"
        and event["slot"]["holds"] == 0
    )
    assert freed["slot"]["state"] in ("ready", "loading")


def test_what_a_kernel_has_stays_while_a_cell_keeps_it_from_renewing(tmp_path):
    """The cell reads from a pipe, until there is something to read. The server is a fresh one:
    where a kernel was killed, Jupyter may no longer see whether the next ones are busy."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with (
        ServerProcess() as server,
        RunningKernel(server, "long.ipynb") as kernel,
        kernel.person() as participant,
    ):
        kernel.begin(f"open({str(pipe)!r}).read()")
        hold = participant.hold("shapes", ttl_s=12)
        room = {"size_bytes": 1_000_000, "ttl_s": 12}
        room = participant.http.post("api/reservations", json=room).raise_for_status().json()
        left_s = {hold["id"]: 0.0, room["id"]: 0.0}
        for _, event in participant.events():
            told = event.get("hold") or event.get("reservation")
            if told and told["id"] in left_s:
                assert not event["ended"]
                left_s[told["id"]] = told["expires_in_s"]
            if min(left_s.values()) > 12:
                break
        pipe.write_text("go on")
        assert kernel.value("1 + 1") == 2


LOW = {"priority": "low", "queue_limit": 1}


def rule(person, kernel):
    """Gives a kernel rules of its own, as the instructor."""
    person.http.patch(f"api/participants/{kernel.id}", json=LOW).raise_for_status()


def rules(person):
    return person.get("api/policy")["participants"]


def test_an_instructors_rules_for_a_notebook_hold_for_its_next_kernel(own_kernel, person):
    rule(person, own_kernel)
    own_kernel.shut_down()
    known = {each["id"]: each for each in person.get("api/participants")["participants"]}
    assert known[own_kernel.id]["notebook"] == "hearts.ipynb"
    with RunningKernel(own_kernel.server, "clubs.ipynb"):
        assert rules(person) == {own_kernel.id: LOW}
    with RunningKernel(own_kernel.server, "hearts.ipynb") as again:
        assert rules(person) == {again.id: LOW}
        with again.person() as notebook, person.paused():
            assert notebook.submit()["priority"] == "low"
            assert notebook.refused("POST", "api/jobs", json=TURBO)[1]["limit"] == 1
        free = {"priority": None, "queue_limit": None}
        person.http.patch(f"api/participants/{again.id}", json=free).raise_for_status()
        assert rules(person) == {}


def test_whoever_changes_a_notebooks_kernel_keeps_its_rules_and_its_jobs(own_kernel, person):
    """Jupyter starts the new kernel before it ends the old one."""
    rule(person, own_kernel)
    with own_kernel.person() as notebook:
        job = notebook.ended(notebook.submit(steps=1)["id"])
    before, after = own_kernel.id, own_kernel.change()
    assert before != after
    assert rules(person) == {after: LOW}
    with own_kernel.person() as notebook:
        assert job["id"] in [each["id"] for each in notebook.get("api/jobs")["jobs"]]
    free = {"priority": None, "queue_limit": None}
    person.http.patch(f"api/participants/{after}", json=free).raise_for_status()


def test_the_rules_of_a_kernel_without_a_notebook_go_with_it(server, person):
    with RunningKernel(server, "") as nameless:
        rule(person, nameless)
        assert rules(person) == {nameless.id: LOW}
    assert rules(person) == {}


def test_a_kernel_of_another_server_cannot_come_in(own_kernel):
    token = own_kernel.environment("WORKSHOP_GPU_TOKEN")
    with own_kernel.person() as participant:
        forged = participant.http.post(
            "api/jobs", json=TURBO, headers={"Authorization": f"token {token[:-1]}"}
        )
    assert forged.status_code == 403


def _states(stream):
    for _, event in stream:
        if event["event"] == "job":
            yield event["job"]["id"], event["job"]["state"]
