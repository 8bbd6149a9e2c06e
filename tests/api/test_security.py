"""Who may do what, as a table over every address and verb of the description.

An address that is added to the API is in the table by itself; one with a new kind of owner fails
here until somebody says who may use it.
"""

import re

import httpx
import pytest

from tests.api.kernels import RunningKernel
from tests.api.people import WAIT_S, Person
from tests.api.room import PUPIL_TOKEN, TEACHER_TOKEN
from tests.api.test_inputs import a_png
from tests.serverprocess import ServerProcess
from workshop_gpu.api.openapi import OPERATIONS

WHO = ("anonymous", "stranger's token", "kernel", "pupil", "teacher")
VERBS = ("get", "post", "put", "patch", "delete")
UNKNOWN = {
    "model": "no-such-model",
    "job": "no-such-job",
    "input": "no-such-input",
    "hold": "no-such-hold",
    "reservation": "no-such-reservation",
    "device": "no-such-device",
    "participant": "nobody",
    "kernel": "no-such-kernel",
    "index": "0",
}
"""Nothing is done: what may be asked is answered with "there is none", or "your body is wrong"."""
TABLE = [
    (operation, who)
    for operation in OPERATIONS
    for who in WHO
    if operation.path != "api/queue/resume" or who != "teacher"
]
ADDRESSES = sorted({operation.path for operation in OPERATIONS})


@pytest.fixture(scope="module")
def people(server, kernel):
    """One client for each of WHO."""
    with kernel.person() as notebook:
        tokens = {
            "anonymous": "",
            "stranger's token": "x" * 43,
            "kernel": notebook.http.headers["Authorization"].removeprefix("token "),
            "pupil": PUPIL_TOKEN,
            "teacher": TEACHER_TOKEN,
        }
    clients = {
        who: httpx.Client(
            base_url=f"{server.url}workshop-gpu/",
            headers={"Authorization": f"token {token}"} if token else {},
            timeout=WAIT_S,
            trust_env=False,
        )
        for who, token in tokens.items()
    }
    yield clients
    for client in clients.values():
        client.close()


@pytest.fixture(scope="module")
def other_kernel(server):
    with RunningKernel(server, "other.ipynb") as running:
        yield running


def nowhere(path: str) -> str:
    return re.sub(r"{(\w+)}", lambda found: UNKNOWN[found[1]], path)


def status_of(client: httpx.Client, verb: str, path: str) -> int:
    """Of a request that changes nothing; an event stream is left at once."""
    body = {} if verb == "get" else {"json": []}
    with client.stream(verb.upper(), path, **body) as answer:
        if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
            return answer.status_code
        answer.read()
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert {"kind", "message"} <= set(error) or {"code", "message"} <= set(error), error
    return answer.status_code


@pytest.mark.parametrize(
    ("operation", "who"), TABLE, ids=[f"{who}: {op.verb} {op.path}" for op, who in TABLE]
)
def test_who_may_do_what(people, operation, who):
    status = status_of(people[who], operation.verb, nowhere(operation.path))
    teachers_only = "(instructor)" in operation.summary
    allowed = who in ("kernel", "pupil", "teacher") if not teachers_only else who == "teacher"
    assert (status != 403) is allowed, status
    assert status < 500


@pytest.mark.parametrize("path", ADDRESSES)
def test_a_verb_that_an_address_does_not_have_is_refused_to_everybody(people, path):
    described = {operation.verb for operation in OPERATIONS if operation.path == path}
    for verb in set(VERBS) - described:
        for who in WHO:
            assert status_of(people[who], verb, nowhere(path)) in (403, 405), (verb, who)


def test_what_nobody_serves_is_refused_to_strangers_too(people):
    assert people["anonymous"].get("api/nonsense").status_code in (403, 404)
    assert people["teacher"].get("api/nonsense").status_code == 404


# what belongs to somebody


def test_another_kernels_token_opens_nothing_of_ones_own_by_any_verb(kernel, other_kernel, people):
    with kernel.person() as owner, other_kernel.person() as neighbour:
        own = {
            "job": [owner.ended(owner.submit()["id"])["id"]],
            "hold": [owner.hold("shapes")["id"]],
            "input": [owner.http.post("api/inputs", content=a_png()).json()["id"]],
            "reservation": [
                owner.http.post("api/reservations", json={"size_bytes": 1000}).json()["id"]
            ],
        }
        own["job"].append(owner.submit(model="shapes", steps=60)["id"])
        for operation in OPERATIONS:
            name = next(iter(re.findall(r"{(\w+)}", operation.path)), "model")
            assert name in own or name == "model" or "(instructor)" in operation.summary
            seen_by_all = (operation.verb, name) == ("get", "reservation")
            for each in own.get(name, []):
                path = operation.path.format(**{name: each, "index": 0})
                body = {} if operation.verb == "get" else {"json": {"ttl_s": 9}}
                for other in (neighbour.http, people["pupil"]):
                    answer = other.request(operation.verb, path, **body)
                    assert answer.status_code == (200 if seen_by_all else 404), (operation, each)
        for name, ids in own.items():
            for each in ids:
                if name != "hold":
                    owner.http.get(f"api/{name}s/{each}").raise_for_status()
        assert [hold["id"] for hold in owner.get("api/holds")["holds"]] == own["hold"]
        assert owner.ended(own["job"][1])["state"] == "done", "nobody else could cancel it"
        for name in ("hold", "reservation"):
            assert owner.http.delete(f"api/{name}s/{own[name][0]}").status_code == 204


def test_a_job_and_its_picture_are_for_the_owner_and_admins_and_unknown_to_all_others(
    kernel, other_kernel, people
):
    with kernel.person() as owner, other_kernel.person() as neighbour:
        job = owner.ended(owner.submit()["id"])["id"]
        for path in (f"api/jobs/{job}", f"api/jobs/{job}/images/0"):
            assert owner.http.get(path).status_code == 200
            assert people["teacher"].get(path).status_code == 200
            for other in (neighbour.http, people["pupil"]):
                answer = other.get(path)
                assert answer.status_code == 404
                assert answer.json()["error"]["kind"] == "job_unknown"
        assert neighbour.http.delete(f"api/jobs/{job}").status_code == 404
        assert people["pupil"].get("api/jobs?all=1").status_code == 403
        assert job not in people["pupil"].get("api/jobs").text
        assert owner.http.delete(f"api/jobs/{job}").status_code == 409, "it has ended"


def test_prompts_are_in_no_answer_to_others(kernel, other_kernel, people):
    secret = "an unmistakable prompt"
    with kernel.person() as owner, other_kernel.person() as neighbour:
        job = owner.submit(prompt=secret)["id"]
        for other in (neighbour.http, people["pupil"]):
            for operation in OPERATIONS:
                if operation.verb == "get" and "events" not in operation.path:
                    assert secret not in other.get(nowhere(operation.path)).text
        events = neighbour.events()
        assert secret not in str(next(events)[1])
        owner.ended(job)


def test_a_hold_is_its_owners_alone(kernel, other_kernel, people):
    with kernel.person() as owner, other_kernel.person() as neighbour:
        hold = owner.hold("shapes")["id"]
        for other in (neighbour.http, people["pupil"], people["teacher"]):
            assert other.put(f"api/holds/{hold}", json={"ttl_s": 9}).status_code == 404
            assert other.delete(f"api/holds/{hold}").status_code == 404
        assert owner.http.put(f"api/holds/{hold}", json={"ttl_s": 9}).status_code == 200
        assert owner.http.delete(f"api/holds/{hold}").status_code == 204


def test_a_reservation_is_seen_by_all_renewed_by_its_owner_and_ended_by_owner_or_teacher(
    kernel, other_kernel, people
):
    body = {"size_bytes": 1000, "ttl_s": 60}
    with kernel.person() as owner, other_kernel.person() as neighbour:
        first, second = (
            owner.http.post("api/reservations", json=body).json()["id"] for _ in range(2)
        )
        for other in (neighbour.http, people["pupil"]):
            assert other.get(f"api/reservations/{first}").status_code == 200
            assert other.put(f"api/reservations/{first}", json={"ttl_s": 9}).status_code == 404
            assert other.delete(f"api/reservations/{first}").status_code == 404
        assert owner.http.delete(f"api/reservations/{first}").status_code == 204
        assert people["teacher"].delete(f"api/reservations/{second}").status_code == 204


# browsers


@pytest.fixture
def browser(server):
    """Somebody who logged in with the server's token and now has cookies only."""
    with httpx.Client(base_url=server.url, timeout=WAIT_S, trust_env=False) as client:
        client.get("api/status", params={"token": server.token}).raise_for_status()
        client.get("tree", follow_redirects=True)
        assert "_xsrf" in client.cookies
        assert client.get("workshop-gpu/api/me").status_code == 200
        yield client


CHANGING = [op for op in OPERATIONS if op.verb != "get"]


@pytest.mark.parametrize("operation", CHANGING, ids=[f"{op.verb} {op.path}" for op in CHANGING])
def test_with_a_cookie_alone_another_site_can_change_nothing(browser, operation):
    path = f"workshop-gpu/{nowhere(operation.path)}"
    assert browser.request(operation.verb, path, json=[]).status_code == 403


def test_with_the_pages_own_xsrf_token_a_cookie_is_enough(browser):
    headers = {"X-XSRFToken": browser.cookies["_xsrf"]}
    answer = browser.post("workshop-gpu/api/jobs", json=[], headers=headers)
    assert answer.status_code == 400


def test_another_sites_page_cannot_even_read_with_a_cookie(browser):
    headers = {"Origin": "http://evil.example", "Referer": "http://evil.example/"}
    answer = browser.get("workshop-gpu/api/me", headers=headers)
    assert answer.status_code in (403, 404)
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_answers_are_never_guessed_to_be_pages(people):
    for path in ("api/me", "api/nonsense", "api/openapi.json"):
        answer = people["teacher"].get(path)
        assert answer.headers["Content-Type"].startswith("application/json")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


# how much


def test_a_body_that_is_too_long_is_refused_with_the_limit(person):
    status, error = person.refused("POST", "api/jobs", content=b" " * 1_000_001)
    assert (status, error["kind"], error["limit_bytes"]) == (413, "request_too_large", 1_000_000)


def test_who_asks_without_end_is_told_when_to_go_on_and_others_are_served():
    with (
        ServerProcess(("cpu:60MB",), ("--WorkshopGPU.requests_per_s=2",)) as slow,
        Person(slow, "a loop") as loop,
        Person(slow, "somebody else") as other,
    ):
        answers = [loop.http.get("api/me") for _ in range(100)]
        assert answers[0].status_code == 200
        refused = next(each for each in answers if each.status_code != 200)
        assert (refused.status_code, refused.json()["error"]["kind"]) == (429, "too_many_requests")
        assert int(refused.headers["Retry-After"]) >= 1
        assert other.http.get("api/me").status_code == 200


def test_a_participant_has_so_many_streams_and_a_closed_one_makes_room(server):
    with Person(server, "many streams") as somebody:
        streams = [somebody.http.stream("GET", "api/events") for _ in range(17)]
        opened = [stream.__enter__() for stream in streams]
        assert [each.status_code for each in opened] == [200] * 16 + [429]
        opened[16].read()
        assert opened[16].json()["error"]["kind"] == "too_many_streams"
        for stream in streams:
            stream.__exit__(None, None, None)
        with Person(server, "another one") as other:
            assert next(other.events())
        while somebody.http.get("api/me").status_code == 200:
            with somebody.http.stream("GET", "api/events") as again:
                if again.status_code == 200:
                    return
        pytest.fail("closed streams still count")
