"""Room for a kernel's own code, and a GPU cleared for training: the real server and worker."""

import pytest

from tests.api.people import Person
from tests.serverprocess import WHOLE, ServerProcess

MB = 1_000_000
TIGHT = "cpu:60MB"
"""Room for one of the shipped models, or for a large reservation, not for both."""


@pytest.fixture(scope="module")
def tight():
    with ServerProcess(devices=(TIGHT,), args=WHOLE) as process:
        yield process


@pytest.fixture
def teacher(tight):
    with Person(tight, "teacher") as somebody:
        yield somebody


def reserve(person: Person, size_bytes: int | None) -> dict:
    body = {"size_bytes": size_bytes}
    return person.http.post("api/reservations", json=body).raise_for_status().json()


def granted(person: Person, reservation: str) -> dict:
    """Waits until the reservation has its room."""

    def has_room(event: dict) -> bool:
        if event["event"] == "snapshot":
            return person.get(f"api/reservations/{reservation}")["state"] == "granted"
        found = event.get("reservation", {})
        return found.get("id") == reservation and found["state"] == "granted"

    person.until(has_room)
    return person.get(f"api/reservations/{reservation}")


def waiting_for(person: Person, job: str) -> str:
    return person.get(f"api/jobs/{job}")["waiting_for"]


def test_an_idle_model_leaves_for_a_reservation_and_comes_back_after_it(tight, teacher):
    assert teacher.ended(teacher.submit(steps=1)["id"])["state"] == "done"
    with Person(tight, "torch") as coder, Person(tight, "painter") as painter:
        room = reserve(coder, 40 * MB)
        assert granted(coder, room["id"])["size_bytes"] == 40 * MB
        assert teacher.slots() == {}
        (device,) = teacher.get("api/status")["devices"]
        assert ("reservation", 40 * MB) in [(h["kind"], h["bytes"]) for h in device["holders"]]
        job = painter.submit(steps=1)["id"]
        waiting = painter.get(f"api/jobs/{job}")
        assert waiting["waiting_for"] == "reservation"
        assert waiting["reason"] == f"{room['participant']} has 40 MB of {device['id']}."
        with Person(tight, "another") as late:
            behind = reserve(late, 40 * MB)
            seen = painter.get("api/status")["reservations"][1]
            assert (seen["id"], seen["state"], seen["mine"]) == (behind["id"], "waiting", False)
            assert seen["reason"] in waiting["reason"]
            late.http.delete(f"api/reservations/{behind['id']}")
        renewal = painter.refused("PUT", f"api/reservations/{room['id']}", json={"ttl_s": 60})
        assert (renewal[0], renewal[1]["kind"]) == (404, "reservation_unknown")
        coder.http.delete(f"api/reservations/{room['id']}")
        assert painter.ended(job)["state"] == "done"


def test_a_cleared_gpu_is_empty_and_jobs_wait_until_it_is_opened(teacher):
    (device,) = teacher.get("api/status")["devices"]
    address = f"api/devices/{device['id']}/clear"
    room = teacher.http.post(address).raise_for_status().json()
    granted(teacher, room["id"])
    assert teacher.slots() == {}
    assert teacher.get("api/status")["devices"][0]["free_bytes"] == 0
    job = teacher.submit(steps=1)["id"]
    assert waiting_for(teacher, job) == "reservation"
    assert teacher.http.delete(address).status_code == 204
    assert teacher.ended(job)["state"] == "done"


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"size_bytes": -1}, 400, "invalid_request"),
        ({"size_bytes": 10**15}, 422, "reservation_too_large"),
        ({"size_bytes": MB, "device": "gpu9"}, 404, "device_unknown"),
        ({"size_bytes": MB, "ttl_s": 0}, 400, "invalid_request"),
    ],
)
def test_a_bad_reservation_is_refused(teacher, body, status, kind):
    answer = teacher.refused("POST", "api/reservations", json=body)
    assert (answer[0], answer[1]["kind"]) == (status, kind)


def test_a_paused_queue_says_so_and_goes_on_when_it_is_resumed(teacher):
    with teacher.paused("We talk"):
        job = teacher.submit(steps=1)["id"]
        found = teacher.get(f"api/jobs/{job}")
        assert found["waiting_for"] == "pause"
        assert found["reason"] == "The queue is paused: We talk."
    assert teacher.ended(job)["state"] == "done"
