import pytest

from tests.api.people import Person
from workshop_gpu.api.holds import owns
from workshop_gpu.host.records import Participant


def test_a_hold_is_taken_renewed_and_dropped(person):
    hold = person.hold("shapes", ttl_s=30)
    assert hold["model"] == "shapes"
    assert 25 < hold["expires_in_s"] <= 30
    renewed = person.http.put(f"api/holds/{hold['id']}", json={"ttl_s": 300}).json()
    assert 290 < renewed["expires_in_s"] <= 300
    assert [mine["id"] for mine in person.get("api/holds")["holds"]] == [hold["id"]]
    assert person.http.delete(f"api/holds/{hold['id']}").status_code == 204
    assert person.get("api/holds") == {"holds": []}


def test_a_hold_has_its_model_loaded_and_kept(person):
    if person.slots().get("shapes") == "ready":
        person.http.post("api/models/shapes/evict").raise_for_status()
    hold = person.hold("shapes")
    person.until(
        lambda event: any(
            slot["model"] == "shapes" and slot["state"] == "ready" for slot in _slots_of(event)
        )
    )
    status, error = person.refused("POST", "api/models/shapes/evict")
    assert (status, error["kind"], error["holds"]) == (409, "model_in_use", 1)
    person.http.delete(f"api/holds/{hold['id']}")
    assert person.http.post("api/models/shapes/evict").status_code == 202


def _slots_of(event):
    if event["event"] == "snapshot":
        return [slot for device in event["status"]["devices"] for slot in device["slots"]]
    return [event["slot"]] if event["event"] == "slot" else []


def test_an_ended_hold_cannot_be_renewed_and_says_so(person):
    hold = person.hold("shapes")
    person.http.delete(f"api/holds/{hold['id']}")
    for method, options in (("PUT", {"json": {}}), ("DELETE", {})):
        status, error = person.refused(method, f"api/holds/{hold['id']}", **options)
        assert (status, error["kind"]) == (410, "hold_ended")


def test_a_hold_that_runs_out_ends(person):
    stream = person.events()
    next(stream)
    hold = person.hold("shapes", ttl_s=1)
    ended = next(
        event
        for _, event in stream
        if event["event"] == "hold" and event["hold"]["id"] == hold["id"] and event["ended"]
    )
    assert ended["hold"]["model"] == "shapes"
    assert person.refused("PUT", f"api/holds/{hold['id']}", json={})[1]["kind"] == "hold_ended"


def test_somebody_elses_hold_is_unknown(server, person):
    hold = person.hold("shapes")
    with Person(server, "somebody else") as other:
        for method, options in (("PUT", {"json": {}}), ("DELETE", {})):
            status, error = other.refused(method, f"api/holds/{hold['id']}", **options)
            assert (status, error["kind"]) == (404, "hold_unknown")
        assert other.get("api/holds") == {"holds": []}
    assert person.http.delete(f"api/holds/{hold['id']}").status_code == 204


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"model": "nobody"}, 404, "model_unknown"),
        ({"model": "shapes", "ttl_s": 0}, 400, "invalid_request"),
        ({"model": "shapes", "ttl_s": -5}, 400, "invalid_request"),
        ({"model": "shapes", "ttl_s": 10**9}, 400, "invalid_request"),
        ({"model": "shapes", "ttl_s": "soon"}, 400, "invalid_request"),
        ({"model": "shapes", "ttl": 5}, 400, "invalid_request"),
        ({}, 400, "invalid_request"),
    ],
)
def test_a_bad_hold_is_refused(person, body, status, kind):
    got, error = person.refused("POST", "api/holds", json=body)
    assert (got, error["kind"]) == (status, kind)
    assert person.get("api/holds") == {"holds": []}


def test_two_kernels_of_one_participant_have_no_say_in_each_others_holds():
    one, other, browser = (Participant("ada", "Ada", kernel) for kernel in ("one", "other", None))
    assert owns(one, "ada", "one")
    assert not owns(other, "ada", "one")
    assert owns(browser, "ada", "one")
    assert not owns(Participant("bob", "Bob", None), "ada", "one")
    assert not owns(one, "ada", None)
