"""The instructor's rules, over REST."""

import json
from urllib.parse import quote

import pytest

from tests.api.people import TURBO, Person
from workshop_gpu.api.openapi import OPERATIONS

MARKUP = "<script>alert(1)</script>"
ADMIN = [op for op in OPERATIONS if "(instructor)" in op.summary]


@pytest.fixture(autouse=True)
def _as_configured(person):
    """Whatever a test changes of the rules is taken back."""
    yield
    person.http.post("api/queue/resume").raise_for_status()
    everything = {"patience_s": None, "queue_limit": None, "min_residency_s": None}
    patch(person, "policy", everything)
    rules = person.get("api/policy")
    for model in rules["models"]:
        patch(person, f"models/{model}", {"offered": True, "pinned": None, "keep_warm_s": None})
    for participant in rules["participants"]:
        path = f"participants/{quote(participant, safe='')}"
        patch(person, path, {"queue_limit": None, "priority": None})


def patch(person, path, body):
    return person.http.patch(f"api/{path}", json=body).raise_for_status().json()


def audit(person):
    return person.get("api/audit")["entries"]


def test_every_address_for_instructors_refuses_a_kernel(kernel):
    assert len(ADMIN) >= 12
    with kernel.person() as notebook:
        for operation in ADMIN:
            path = operation.path.replace("{model}", "shapes").replace("{device}", "cpu:0")
            path = path.replace("{participant}", "me")
            status, error = notebook.refused(operation.verb.upper(), path, json={})
            assert (status, error["kind"]) == (403, "not_allowed"), path


def test_rules_for_the_room_change_one_by_one_and_go_back(person):
    before = person.get("api/policy")
    changed = patch(person, "policy", {"patience_s": 33.0})
    assert changed == before | {"patience_s": 33.0}
    assert patch(person, "policy", {"queue_limit": 1}) == changed | {"queue_limit": 1}
    assert patch(person, "policy", {"patience_s": None, "queue_limit": None}) == before
    entry = audit(person)[0]
    assert (entry["action"], entry["details"]) == (
        "changed the rules",
        {"patience_s": None, "queue_limit": None},
    )
    assert entry["who"] == person.get("api/me")["name"]


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("policy", {"patience_s": -1}, 400, "invalid_policy"),
        ("policy", {"patience_s": 1e300}, 400, "invalid_policy"),
        ("policy", {"patience_s": "long"}, 400, "invalid_request"),
        ("policy", {"queue_limit": 0}, 400, "invalid_policy"),
        ("policy", {"queue_limit": 2.5}, 400, "invalid_request"),
        ("policy", {"patience_s": 1, "min_residency_s": 60}, 400, "invalid_policy"),
        ("policy", {"patience": 1}, 400, "invalid_request"),
        ("policy", [], 400, "invalid_request"),
        ("models/shapes", {"offered": False, "pinned": True}, 400, "invalid_policy"),
        ("models/shapes", {"keep_warm_s": -5}, 400, "invalid_policy"),
        ("models/shapes", {"placement": "upstairs"}, 400, "invalid_policy"),
        ("models/shapes", {"placement": 7}, 400, "invalid_request"),
        ("models/shapes", {"offered": False, "reason": "x" * 10_000}, 400, "invalid_request"),
        ("models/shapes", {"offered": False, "reason": "a\nb"}, 400, "invalid_request"),
        ("models/shapes", {"offered": None}, 400, "invalid_request"),
        ("models/nobody", {"pinned": True}, 404, "model_unknown"),
        ("participants/nobody", {"queue_limit": 1}, 404, "participant_unknown"),
        (f"participants/{'x' * 5_000}", {"queue_limit": 1}, 404, "participant_unknown"),
    ],
)
def test_bad_rules_are_refused_and_nothing_changes(person, path, body, status, kind):
    before, entries = person.get("api/policy"), len(audit(person))
    got, error = person.refused("PATCH", f"api/{path}", json=body)
    assert (got, error["kind"]) == (status, kind)
    assert len(error["message"]) < 500
    assert person.get("api/policy") == before
    assert len(audit(person)) == entries


def test_a_withdrawn_model_is_greyed_out_with_the_reason_until_it_is_offered_again(person):
    stream = person.events()
    next(stream)
    changed = patch(person, "models/shapes", {"offered": False, "reason": MARKUP})
    assert (changed["enabled"], changed["reason"]) == (False, MARKUP)
    told = next(event for _, event in stream if event["event"] == "models")
    assert {model["id"]: model["enabled"] for model in told["models"]}["shapes"] is False
    status, error = person.refused("POST", "api/jobs", json=TURBO | {"model": "shapes"})
    assert (status, error["kind"]) == (409, "model_disabled")
    assert MARKUP in error["message"]
    assert "shapes" not in [model["id"] for model in person.get("v1/models")["data"]]
    assert patch(person, "models/shapes", {"offered": True})["enabled"]


def test_a_pinned_model_is_loaded_and_says_so(person):
    assert patch(person, "models/shapes-dit-turbo", {"pinned": True})["pinned"]
    person.until(lambda event: person.slots().get("shapes-dit-turbo") == "ready")
    (slot,) = person.get("api/models/shapes-dit-turbo")["slots"]
    assert slot["pinned"]
    assert not patch(person, "models/shapes-dit-turbo", {"pinned": None})["pinned"]


def test_a_model_stays_warm_for_as_long_as_the_instructor_says(person):
    configured = person.get("api/models/shapes")["keep_warm_s"]
    assert patch(person, "models/shapes", {"keep_warm_s": 60})["keep_warm_s"] == 60
    assert patch(person, "models/shapes", {"keep_warm_s": None})["keep_warm_s"] == configured


def test_a_model_is_placed_as_the_instructor_says(person):
    configured = person.get("api/models/shapes")["placement"]
    assert patch(person, "models/shapes", {"placement": "cond_only"})["placement"] == "cond_only"
    assert person.get("api/policy")["models"]["shapes"]["placement"] == "cond_only"
    assert patch(person, "models/shapes", {"placement": None})["placement"] == configured


def test_nothing_new_starts_while_the_queue_is_paused_and_people_see_why(person):
    person.http.post("api/queue/pause", json={"reason": "lunch until one"}).raise_for_status()
    job = person.submit()
    assert (job["state"], job["waiting_for"]) == ("queued", "pause")
    assert "lunch until one" in job["reason"]
    assert person.get("api/status")["paused"] == "lunch until one"
    person.http.post("api/queue/resume").raise_for_status()
    assert person.ended(job["id"])["state"] == "done"
    assert [entry["action"] for entry in audit(person)[:2]] == [
        "resumed the queue",
        "paused the queue",
    ]


def test_a_pause_needs_no_reason(person):
    assert person.http.post("api/queue/pause").json()["paused"]
    for reason in ("x" * 10_000, "a\nb"):
        error = person.refused("POST", "api/queue/pause", json={"reason": reason})[1]
        assert error["kind"] == "invalid_request"


def test_a_participant_has_a_limit_and_a_priority_of_their_own(server, person):
    with Person(server, f"flood {MARKUP}") as flood:
        person.http.post("api/queue/pause").raise_for_status()
        first = flood.submit()
        (known,) = [
            each
            for each in person.get("api/participants")["participants"]
            if each["id"] == flood.get("api/me")["participant"]
        ]
        assert (known["waiting"], known["queue_limit"], known["priority"]) == (1, 3, "normal")
        assert known["models"] == [TURBO["model"]]
        path = f"participants/{quote(known['id'], safe='')}"
        rules = patch(person, path, {"queue_limit": 1, "priority": "low"})
        assert rules["participants"] == {known["id"]: {"queue_limit": 1, "priority": "low"}}
        status, error = flood.refused("POST", "api/jobs", json=TURBO)
        assert (status, error["kind"], error["limit"]) == (429, "queue_full", 1)
        mine = person.submit()
        assert mine["position"] == 1
        overtaken = flood.get(f"api/jobs/{first['id']}")
        assert (overtaken["position"], overtaken["priority"]) == (2, "low")
        flood.http.delete(f"api/jobs/{first['id']}")
        person.http.delete(f"api/jobs/{mine['id']}")


def test_a_participant_cannot_give_itself_a_better_class(kernel):
    with kernel.person() as notebook:
        for priority in ("urgent", "high"):
            status, error = notebook.refused(
                "POST", "api/jobs", json=TURBO | {"priority": priority}
            )
            assert (status, error["kind"]) == (403, "not_allowed")


@pytest.mark.parametrize("priority", ["best", 0, "", "URGENT"])
def test_a_class_that_is_none_is_refused(person, priority):
    person.ended(person.submit(steps=1)["id"])
    path = f"api/participants/{quote(person.get('api/me')['participant'], safe='')}"
    error = person.refused("PATCH", path, json={"priority": priority})[1]
    assert error["kind"] == "invalid_request"


def test_a_name_of_10_kb_or_with_markup_is_a_name_or_refused_but_never_code(server, person):
    for length in (101, 10_000):
        with Person(server, "n" * length) as somebody:
            status, error = somebody.refused("GET", "api/me")
        assert (status, error["kind"]) == (400, "invalid_request")
        assert f"has {length:,} characters, and at most 100 are allowed" in error["message"]
        assert (error["length"], error["limit"]) == (length, 100)
    with Person(server, "n" * 99 + "A") as one, Person(server, "n" * 99 + "B") as other:
        assert one.get("api/me")["participant"] != other.get("api/me")["participant"]
    assert person.http.put("api/me", json={"name": MARKUP}).json()["name"] == MARKUP
    error = person.refused("PUT", "api/me", json={"name": "n" * 10_000})[1]
    assert (error["kind"], len(error["message"]) < 200) == ("invalid_request", True)


def test_an_instructor_cancels_anybodys_job_and_it_is_noted(server, person):
    with Person(server, "somebody else") as other:
        person.http.post("api/queue/pause").raise_for_status()
        job = other.submit()
        assert person.http.delete(f"api/jobs/{job['id']}").status_code == 200
        assert other.get(f"api/jobs/{job['id']}")["state"] == "cancelled"
    entry = audit(person)[0]
    assert (entry["action"], entry["subject"]) == ("cancelled a job", job["id"])


def test_a_job_that_goes_before_others_or_says_where_its_model_is_placed_is_noted(person):
    person.http.post("api/queue/pause").raise_for_status()
    for asked in ({"priority": "urgent"}, {"placement": "resident"}, {"priority": "batch"}):
        job = person.submit(**asked)
        person.http.delete(f"api/jobs/{job['id']}").raise_for_status()
    noted = [each for each in audit(person)[:5] if each["action"] == "submitted a job by right"]
    assert [each["details"] for each in noted] == [
        {"priority": "normal", "placement": "resident"},
        {"priority": "urgent", "placement": ""},
    ]


def test_each_action_on_a_model_or_a_participant_is_noted(server, person):
    with Person(server, "noted") as other:
        who = other.get("api/me")["participant"]
        other.ended(other.submit(model="shapes", steps=1)["id"])
    person.http.post("api/models/shapes/load").raise_for_status()
    person.until(lambda event: person.slots().get("shapes") == "ready")
    person.http.post("api/models/shapes/evict").raise_for_status()
    patch(person, "models/shapes", {"pinned": False})
    patch(person, f"participants/{who}", {"queue_limit": 1, "priority": "low"})
    assert [(each["action"], each["subject"], each["details"]) for each in audit(person)[:4]] == [
        ("changed a participant's rules", who, {"queue_limit": 1, "priority": "low"}),
        ("changed a model's rules", "shapes", {"reason": "", "pinned": False}),
        ("evicted a model", "shapes", {}),
        ("asked for a model", "shapes", {}),
    ]


@pytest.mark.parametrize("verb", ["POST", "DELETE"])
def test_a_gpu_that_is_not_there_can_be_neither_cleared_nor_opened(person, verb):
    status, error = person.refused(verb, "api/devices/cuda:7/clear")
    assert (status, error["kind"]) == (404, "device_unknown")


def test_a_gpu_that_is_not_cleared_cannot_be_opened(person):
    assert person.refused("DELETE", "api/devices/cpu:0/clear")[1]["kind"] == "not_cleared"


def test_the_audit_is_on_disk_and_the_rules_too(server, person):
    patch(person, "policy", {"queue_limit": 2})
    folder = server.folder / "data" / "workshop_gpu"
    assert json.loads((folder / "policy.json").read_text()) == {"queue_limit": 2}
    last = (folder / "audit.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["action"] == "changed the rules"
    assert (folder.stat().st_mode & 0o777) == 0o700
