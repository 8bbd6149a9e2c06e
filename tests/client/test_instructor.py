"""`wg.admin`."""

from typing import Any

import pytest

from tests.client.fakes import FakeServer, a_job, a_model
from tests.client.test_tables import a_status
from workshop_gpu.api import schemas
from workshop_gpu.api import schemas_instructor as instructor
from workshop_gpu.client import Client
from workshop_gpu.client.errors import BadRequest, NotAllowed

POLICY = instructor.Policy(
    patience_s=20.0,
    queue_limit=3,
    min_residency_s=10.0,
    paused="<lunch>",
    models={"shapes": instructor.ModelPolicy("too slow", False, 60.0)},
    participants={"user:ann": instructor.ParticipantPolicy(1, "low")},
)
ANN = instructor.Participant("user:ann", "Ann", None, 1, 0, 3, "normal")
TWO = [
    instructor.Participant("k1", "faces", "k1", 0, 1, 3, "normal"),
    instructor.Participant("k2", "faces", "k2", 0, 0, 3, "normal"),
]


@pytest.fixture(autouse=True)
def _answers(fake: FakeServer) -> None:
    device = a_status().devices[0].id
    fake.answers |= {
        "GET status": a_status(),
        "GET policy": POLICY,
        "PATCH policy": POLICY,
        "POST queue/pause": POLICY,
        "POST queue/resume": POLICY,
        "PATCH models/shapes": a_model(),
        "POST models/shapes/evict": a_model(),
        "GET participants": instructor.ParticipantList([ANN, *TWO]),
        "PATCH participants/user:ann": POLICY,
        "GET jobs": schemas.JobList([a_job("running")]),
        f"DELETE jobs/{'1' * 32}": None,
        "GET audit": instructor.AuditList(
            [instructor.AuditEntry(0.0, "<Ann>", "user:ann", "evicted a model", "shapes", {})]
        ),
        f"DELETE devices/{device}/clear": None,
    }


def sent(fake: FakeServer) -> tuple[str, Any]:
    return fake.requests[-1]


def test_only_what_is_named_is_changed(client: Client, fake: FakeServer) -> None:
    client.admin.set_policy(patience_s=5)
    assert sent(fake) == ("PATCH policy", {"patience_s": 5})
    client.admin.reset_policy()
    assert sent(fake)[1] == {"patience_s": None, "queue_limit": None, "min_residency_s": None}


def test_pause_and_resume(client: Client, fake: FakeServer) -> None:
    client.admin.pause("lunch")
    assert sent(fake) == ("POST queue/pause", {"reason": "lunch"})
    client.admin.pause()
    assert "instructor" in sent(fake)[1]["reason"]
    client.admin.resume()
    assert sent(fake) == ("POST queue/resume", None)


def test_rules_for_a_model(client: Client, fake: FakeServer) -> None:
    admin = client.admin
    for act, body in (
        (lambda: admin.pin("shapes"), {"pinned": True}),
        (lambda: admin.unpin("shapes"), {"pinned": False}),
        (lambda: admin.offer("shapes"), {"offered": True}),
        (lambda: admin.keep_warm("shapes", 60), {"keep_warm_s": 60}),
        (lambda: admin.keep_warm("shapes", None), {"keep_warm_s": None}),
        (lambda: admin.place("shapes", "resident"), {"placement": "resident"}),
    ):
        act()
        name, told = sent(fake)
        assert (name, {k: v for k, v in told.items() if k != "reason"}) == (
            "PATCH models/shapes",
            body,
        )
    admin.withdraw("shapes", "too slow")
    assert sent(fake)[1] == {"offered": False, "reason": "too slow"}


def test_a_participant_goes_by_name_or_id(client: Client, fake: FakeServer) -> None:
    client.admin.limit("Ann", 1)
    assert sent(fake) == ("PATCH participants/user:ann", {"queue_limit": 1})
    client.admin.prioritize("user:ann", "low")
    assert sent(fake)[1] == {"priority": "low"}


@pytest.mark.parametrize(
    ("name", "problem"), [("faces", "several"), ("nobody", "no participant"), ("x" * 9999, "no ")]
)
def test_a_name_that_says_nothing_is_refused(client: Client, name: str, problem: str) -> None:
    with pytest.raises(BadRequest, match=problem) as caught:
        client.admin.limit(name, 1)
    assert len(caught.value.message) < 300


def test_anybodys_job_is_cancelled(client: Client, fake: FakeServer) -> None:
    (job,) = client.admin.jobs()
    client.admin.cancel(job)
    assert sent(fake)[0] == f"DELETE jobs/{job.id}"


def test_a_gpu_is_opened_by_its_number(client: Client, fake: FakeServer) -> None:
    client.admin.open(0)
    assert sent(fake)[0].startswith("DELETE devices/")
    with pytest.raises(BadRequest, match="gpu=7"):
        client.admin.open(7)


def test_a_notebooks_own_token_is_told_what_it_lacks(client: Client, fake: FakeServer) -> None:
    fake.answers["POST queue/pause"] = (403, "not_allowed")
    with pytest.raises(NotAllowed, match=r"wg\.connect"):
        client.admin.pause()


def test_what_is_shown_is_text(client: Client) -> None:
    admin = client.admin
    for shown in (admin.policy(), admin.participants(), admin.jobs(), admin.audit()):
        html = shown._repr_html_()
        assert "<table" in html
        assert "<lunch>" not in html
        assert "<Ann>" not in html
        assert repr(shown)
    assert "paused: <lunch>" in repr(admin.policy())
    assert "not offered: too slow, not pinned, stays 60 s" in repr(admin.policy())
    assert "at most 1 waiting, priority low" in repr(admin.policy())
    assert "evicted a model" in repr(admin.audit())
