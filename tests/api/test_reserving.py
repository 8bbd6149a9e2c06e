"""GPU memory for a participant's own code, over REST. The device is roomy: see
test_sharing.py for what happens where it is not."""

import pytest

from tests.api.people import Person


def reserve(person, size_bytes=1_000_000, **fields):
    body = {"size_bytes": size_bytes} | fields
    return person.http.post("api/reservations", json=body).raise_for_status().json()


@pytest.fixture
def ready(person):
    """The device works, so that its size is known."""
    person.until(lambda event: person.get("api/status")["devices"][0]["state"] == "ready")
    return person


@pytest.fixture
def reservation(ready):
    reserved = reserve(ready, ttl_s=300)
    yield reserved
    ready.http.delete(f"api/reservations/{reserved['id']}")


def test_a_reservation_is_granted_where_there_is_room_and_everybody_sees_it(
    server, ready, reservation
):
    assert reservation["state"] == "granted"
    assert reservation["mine"]
    assert 290 < reservation["expires_in_s"] <= 300
    with Person(server, "somebody else") as other:
        (seen,) = other.get("api/reservations")["reservations"]
        assert (seen["id"], seen["mine"]) == (reservation["id"], False)
        device = other.get("api/status")["devices"][0]
        held = [holder for holder in device["holders"] if holder["kind"] == "reservation"]
        assert held == [
            {"kind": "reservation", "name": ready.get("api/me")["name"], "bytes": 1_000_000}
        ]


def test_a_reservation_is_renewed_and_given_back(ready, reservation):
    path = f"api/reservations/{reservation['id']}"
    assert ready.http.put(path, json={"ttl_s": 600}).json()["expires_in_s"] > 590
    assert ready.http.delete(path).status_code == 204
    for method in ("GET", "PUT", "DELETE"):
        options = {"json": {}} if method == "PUT" else {}
        status, error = ready.refused(method, path, **options)
        assert (status, error["kind"]) == (410, "reservation_ended")


def test_one_that_is_not_renewed_ends_and_its_owner_is_told(ready):
    stream = ready.events()
    next(stream)
    reserved = reserve(ready, ttl_s=1)
    ended = next(
        event
        for _, event in stream
        if event["event"] == "reservation"
        and event["reservation"]["id"] == reserved["id"]
        and event["ended"]
    )
    assert (ended["reservation"]["state"], ended["reservation"]["mine"]) == ("ended", True)
    assert ended["reservation"]["participant"] == ready.get("api/me")["name"]


def test_somebody_elses_cannot_be_renewed_nor_be_given_back_by_a_kernel(
    server, kernel, ready, reservation
):
    path = f"api/reservations/{reservation['id']}"
    with Person(server, "somebody else") as other, kernel.person() as notebook:
        assert other.refused("PUT", path, json={})[1]["kind"] == "reservation_unknown"
        assert notebook.refused("PUT", path, json={})[1]["kind"] == "reservation_unknown"
        assert notebook.refused("DELETE", path)[1]["kind"] == "reservation_unknown"
    assert ready.get(path)["state"] == "granted"


def test_an_instructor_takes_anybodys_away(server, kernel, ready):
    with kernel.person() as notebook:
        reserved = reserve(notebook)
        assert ready.http.delete(f"api/reservations/{reserved['id']}").status_code == 204
        status, error = notebook.refused("GET", f"api/reservations/{reserved['id']}")
        assert (status, error["kind"]) == (410, "reservation_ended")
        assert "has ended: the instructor ended it." in error["message"]
        who, news = reserved["participant"], ready.get("api/status")["news"]
        texts = [each["text"] for each in news if each["kind"] == "reservation"]
        assert texts[0] == f"The instructor took 1 MB of {reserved['device']} away from {who}"
        given_back = reserve(notebook)
        assert notebook.http.delete(f"api/reservations/{given_back['id']}").status_code == 204
        newest = ready.get("api/status")["news"][0]["text"]
        assert newest == f"{who} gave back 1 MB of {given_back['device']}"
    assert ready.get("api/audit")["entries"][0]["action"] == "ended a reservation"


def test_the_instructor_reads_how_much_a_whole_gpu_is_and_what_waits_counts_as_nothing(
    kernel, ready
):
    (device,) = ready.get("api/status")["devices"]

    def reserved_bytes(listed, name):
        return next(each for each in ready.get(f"api/{listed}")[listed] if each["name"] == name)[
            "reserved_bytes"
        ]

    with kernel.person() as notebook:
        whole = reserve(notebook, None)
        path = f"api/reservations/{whole['id']}"
        ready.until(lambda event: notebook.get(path)["state"] == "granted")
        behind = reserve(notebook, 1_000_000)
        assert behind["state"] == "waiting"
        for listed in ("participants", "kernels"):
            assert reserved_bytes(listed, whole["participant"]) == device["total_bytes"] > 0
        for each in (behind, whole):
            notebook.http.delete(f"api/reservations/{each['id']}")
        assert reserved_bytes("participants", whole["participant"]) == 0


def test_one_may_have_so_many(ready):
    reserved = [reserve(ready) for _ in range(4)]
    status, error = ready.refused("POST", "api/reservations", json={"size_bytes": 1})
    assert (status, error["kind"], error["limit"]) == (429, "too_many_reservations", 4)
    for each in reserved:
        ready.http.delete(f"api/reservations/{each['id']}")


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({}, 400, "invalid_request"),
        ({"size_bytes": 0}, 400, "invalid_request"),
        ({"size_bytes": -8_000_000_000}, 400, "invalid_request"),
        ({"size_bytes": 1.5}, 400, "invalid_request"),
        ({"size_bytes": "8GB"}, 400, "invalid_request"),
        ({"size_bytes": True}, 400, "invalid_request"),
        ({"size_bytes": 10**30}, 422, "reservation_too_large"),
        ({"size_bytes": 10**15}, 422, "reservation_too_large"),
        ({"size_bytes": 1, "device": "cuda:99"}, 404, "device_unknown"),
        ({"size_bytes": 1, "device": ""}, 400, "invalid_request"),
        ({"size_bytes": 1, "device": "x" * 10_000}, 400, "invalid_request"),
        ({"size_bytes": 1, "device": 0}, 400, "invalid_request"),
        ({"size_bytes": 1, "ttl_s": 0}, 400, "invalid_request"),
        ({"size_bytes": 1, "ttl_s": -1}, 400, "invalid_request"),
        ({"size_bytes": 1, "ttl_s": 10**9}, 400, "invalid_request"),
        ({"size_bytes": 1, "gb": 8}, 400, "invalid_request"),
    ],
)
def test_a_bad_reservation_is_refused_and_changes_nothing(ready, body, status, kind):
    got, error = ready.refused("POST", "api/reservations", json=body)
    assert (got, error["kind"]) == (status, kind)
    assert len(error["message"]) < 400
    assert ready.get("api/reservations") == {"reservations": []}


def test_not_a_number_is_not_json(ready):
    body = b'{"size_bytes": NaN}'
    assert ready.refused("POST", "api/reservations", content=body)[1]["kind"] == "not_json"
