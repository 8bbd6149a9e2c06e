"""Kernels that share a device that is too small: the real server, kernels and workers."""

from collections import Counter

import pytest

from tests.api.kernels import RunningKernel
from tests.api.people import Person
from tests.serverprocess import WHOLE, ServerProcess

TIGHT = "cpu:45MB"
"""Room for one of the models with its working memory, not for two (21 MB and 29 MB of weights,
5 % margin)."""
MOST_BYTES = 42_000_000
"""Nearly all of it: no model fits beside."""


@pytest.fixture(scope="module")
def tight():
    with ServerProcess(devices=(TIGHT,), args=WHOLE) as process:
        yield process


@pytest.fixture(scope="module")
def kernels(tight):
    with (
        RunningKernel(tight, "flood.ipynb") as flood,
        RunningKernel(tight, "ann.ipynb") as ann,
        RunningKernel(tight, "ben.ipynb") as ben,
    ):
        yield flood, ann, ben


@pytest.fixture
def people(kernels):
    flood, ann, ben = (kernel.person() for kernel in kernels)
    with flood, ann, ben:
        yield flood, ann, ben


@pytest.fixture
def teacher(tight):
    with Person(tight, "teacher") as somebody:
        somebody.until(lambda event: device(somebody)["state"] == "ready")
        yield somebody


def device(person):
    return person.get("api/status")["devices"][0]


def reserve(person, **fields):
    body = {"size_bytes": None} | fields
    return person.http.post("api/reservations", json=body).raise_for_status().json()


def granted(person, reservation):
    path = f"api/reservations/{reservation['id']}"
    person.until(lambda event: person.get(path)["state"] == "granted")
    return person.get(path)


def test_jobs_of_two_kernels_are_drawn_together_and_each_gets_its_own_picture(people, teacher):
    _, ann, ben = people
    # First of all tests here: a machine that gains nothing by a batch of two draws one, to know.
    alone = ann.ended(ann.submit(model="shapes", steps=2, seed=1)["id"])
    with teacher.paused():
        jobs = [who.submit(model="shapes", steps=2, seed=5) for who in (ann, ben)]
    ended = [who.ended(job["id"]) for who, job in zip((ann, ben), jobs, strict=True)]
    assert [job["state"] for job in ended] == ["done", "done"]
    assert [job["batch"] for job in (alone, *ended)] == [1, 2, 2]
    assert [job["images"][0]["seed"] for job in ended] == [5, 5]
    for who, job in zip((ann, ben), ended, strict=True):
        picture = who.http.get(f"api/jobs/{job['id']}/images/0").raise_for_status()
        assert picture.content.startswith(b"\x89PNG")
        other = ended[0] if job is ended[1] else ended[1]
        assert who.refused("GET", f"api/jobs/{other['id']}/images/0")[0] == 404


def test_a_kernel_that_floods_the_queue_gets_no_more_than_the_modest_ones(people):
    flood, *modest = people
    done = Counter()
    waiting = {flood.submit(model="shapes", steps=2, images=2)["id"] for _ in range(3)}
    turns = {who: who.submit(model="shapes", steps=4)["id"] for who in modest}
    order = []
    for _, event in flood.events():
        if event["event"] != "job" or event["job"]["state"] != "done":
            continue
        job = event["job"]["id"]
        if job in waiting:
            waiting.discard(job)
            order.append("flood")
            waiting.add(flood.submit(model="shapes", steps=2, images=2)["id"])
        for who, mine in list(turns.items()):
            if mine == job:
                order.append("modest")
                done[who] += 1
                turns[who] = who.submit(model="shapes", steps=4)["id"]
        if sum(done.values()) >= 6:
            break
    for who in people:
        for job in who.get("api/jobs")["jobs"]:
            who.http.delete(f"api/jobs/{job['id']}")
    # Each asks for the same seconds, and all three always have a job waiting: a third each.
    assert min(done.values()) >= 2, order
    assert 1 <= order.count("flood") <= 5, order


def test_a_reservation_evicts_idle_models_and_what_does_not_fit_beside_it_waits(people, teacher):
    _, ann, ben = people
    ann.ended(ann.submit(model="shapes", steps=1)["id"])
    reservation = granted(ann, reserve(ann, size_bytes=MOST_BYTES))
    assert reservation["device"] == "cpu:0"
    assert teacher.slots() == {}
    held = [holder for holder in device(teacher)["holders"] if holder["kind"] == "reservation"]
    assert held == [{"kind": "reservation", "name": "ann", "bytes": MOST_BYTES}]
    job = ben.submit(model="shapes", steps=1)
    ben.until(lambda event: ben.get(f"api/jobs/{job['id']}")["waiting_for"] == "reservation")
    assert ben.get(f"api/jobs/{job['id']}")["reason"] == "ann has 42 MB of cpu:0."
    ann.http.delete(f"api/reservations/{reservation['id']}").raise_for_status()
    assert ben.ended(job["id"])["state"] == "done"


def test_a_reservation_ends_with_its_kernel(tight, people, teacher):
    with RunningKernel(tight, "gone.ipynb") as kernel, kernel.person() as person:
        reservation = granted(teacher, reserve(person, size_bytes=1_000_000))
        kernel.shut_down()
    teacher.until(lambda event: not teacher.get("api/reservations")["reservations"])
    assert teacher.refused("GET", f"api/reservations/{reservation['id']}")[0] == 410


def test_a_gpu_that_is_cleared_finishes_what_runs_and_starts_nothing_until_it_is_opened(
    people, teacher
):
    _, ann, ben = people
    running = ann.submit(model="shapes", steps=100)
    ann.begun(running["id"])
    cleared = teacher.http.post("api/devices/cpu:0/clear").raise_for_status().json()
    assert (cleared["state"], cleared["whole"], cleared["expires_in_s"]) == ("waiting", True, None)
    again = teacher.http.post("api/devices/cpu:0/clear").raise_for_status().json()
    assert again["id"] == cleared["id"]
    waits = ben.submit(model="shapes", steps=1)
    assert ann.ended(running["id"])["state"] == "done"
    granted(teacher, cleared)
    assert teacher.slots() == {}
    assert device(teacher)["free_bytes"] <= 0
    job = ben.get(f"api/jobs/{waits['id']}")
    assert (job["state"], job["waiting_for"]) == ("queued", "reservation")
    assert teacher.http.delete("api/devices/cpu:0/clear").status_code == 204
    assert ben.ended(waits["id"])["state"] == "done"
    assert [entry["action"] for entry in teacher.get("api/audit")["entries"][:3]] == [
        "opened a GPU",
        "cleared a GPU",
        "cleared a GPU",
    ]


def test_rules_and_their_audit_survive_a_restart(tmp_path):
    server = ServerProcess(devices=(TIGHT,), folder=tmp_path)
    with server, Person(server, "ann") as ann:
        ann.http.post("api/queue/pause", json={"reason": "until tomorrow"}).raise_for_status()
        ann.http.patch("api/models/shapes", json={"offered": False}).raise_for_status()
        rules = ann.get("api/policy")
    with server, Person(server, "ann") as ann:
        assert ann.get("api/policy") == rules
        assert ann.get("api/status")["paused"] == "until tomorrow"
        assert ann.refused("POST", "api/jobs", json={"model": "shapes", "prompt": "x"})[0] == 409
        job = ann.submit(steps=1)
        assert job["waiting_for"] == "pause"
        actions = [entry["action"] for entry in ann.get("api/audit")["entries"]]
        assert actions == ["changed a model's rules", "paused the queue"]
