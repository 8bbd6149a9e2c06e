import io
import json
import uuid

import pytest
from PIL import Image

from tests.api.people import TURBO, Person


def test_a_job_is_accepted_runs_and_its_image_can_be_fetched(person):
    answer = person.http.post("api/jobs", json=TURBO | {"seed": 7})
    assert answer.status_code == 201
    accepted = answer.json()
    # On an idle device with the model ready it runs before the answer is written.
    assert (accepted["state"], accepted["position"] > 0) in {("queued", True), ("running", False)}
    assert answer.headers["Location"] == f"/workshop-gpu/api/jobs/{accepted['id']}"

    job = person.ended(accepted["id"])
    assert job["state"] == "done"
    assert job["step"] == job["steps"] == 4
    assert job["submitted_at"] <= job["started_at"] <= job["ended_at"]
    [image] = job["images"]
    png = person.http.get(str(person.http.base_url.join(image["url"])))
    assert png.headers["Content-Type"] == "image/png"
    picture = Image.open(io.BytesIO(png.content))
    assert picture.size == (128, 128)
    assert json.loads(picture.text["workshop_gpu"])["params"]["seed"] == 7


def test_the_same_seed_gives_the_same_image_and_images_of_one_job_count_up(person):
    pair = person.ended(person.submit(seed=41, images=2)["id"])
    single = person.ended(person.submit(seed=42)["id"])
    assert [image["seed"] for image in pair["images"]] == [41, 42]

    def pixels(job, index):
        content = person.http.get(f"api/jobs/{job['id']}/images/{index}").content
        return Image.open(io.BytesIO(content)).tobytes()

    assert pixels(pair, 1) == pixels(single, 0)
    assert pixels(pair, 0) != pixels(single, 0)


def test_one_sees_ones_own_jobs_newest_first(person):
    first, second = person.submit(), person.submit()
    assert [job["id"] for job in person.get("api/jobs")["jobs"]] == [second["id"], first["id"]]
    person.ended(second["id"])


def test_somebody_elses_job_is_unknown_to_a_kernel(server, person, kernel):
    job = person.ended(person.submit()["id"])
    with kernel.person() as other:
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/images/0")):
            status, error = other.refused(method, f"api/jobs/{job['id']}{path}")
            assert (status, error["kind"]) == (404, "job_unknown")
        assert job["id"] not in {mine["id"] for mine in other.get("api/jobs")["jobs"]}
        assert other.refused("GET", "api/jobs?all=1")[0] == 403
    assert job["id"] in {each["id"] for each in person.get("api/jobs?all=1")["jobs"]}


def test_nobody_sees_what_others_ask_for(server, person, kernel):
    with kernel.person() as other:
        job = person.submit(prompt="a secret heart")
        seen = other.until(
            lambda event: (
                event["event"] == "snapshot"
                or (event["event"] == "job" and event["job"]["id"] == job["id"])
            )
        )
        assert "secret" not in json.dumps(seen)
    person.ended(job["id"])


def test_cancelling_a_running_job_stops_it_and_a_second_cancel_is_told_so(person):
    long = person.submit(model="shapes", steps=100)
    person.begun(long["id"])
    assert person.http.delete(f"api/jobs/{long['id']}").status_code == 200
    assert person.ended(long["id"])["state"] == "cancelled"
    status, error = person.refused("DELETE", f"api/jobs/{long['id']}")
    assert (status, error["kind"], error["state"]) == (409, "job_ended", "cancelled")
    assert person.ended(person.submit()["id"])["state"] == "done"


def test_cancelling_a_waiting_job_leaves_the_running_one_alone(person):
    running = person.submit(model="shapes", steps=40)
    person.begun(running["id"])
    with person.paused():
        waiting = person.submit(model="shapes", steps=40)
        cancelled = person.http.delete(f"api/jobs/{waiting['id']}").json()
        assert cancelled["state"] == "cancelled"
    assert person.ended(running["id"])["state"] == "done"


def test_the_fourth_waiting_job_is_refused_with_position_and_wait(person):
    jobs = [person.submit(model="shapes", steps=100, images=4)]
    person.begun(jobs[0]["id"])
    jobs += [person.submit(model="shapes", steps=60) for _ in range(3)]
    answer = person.http.post("api/jobs", json=TURBO)
    error = answer.json()["error"]
    assert (answer.status_code, error["kind"]) == (429, "queue_full")
    assert error["waiting"] == error["limit"] == 3
    assert error["position"] >= 1
    wait_s = error["expected_wait_s"]
    assert wait_s is None or int(answer.headers["Retry-After"]) == wait_s + 1
    assert ("Retry-After" in answer.headers) is (wait_s is not None)
    for job in reversed(jobs):
        person.http.delete(f"api/jobs/{job['id']}")
        person.ended(job["id"])


BAD_FIELDS = [
    ({"model": "nobody"}, 404, "model_unknown"),
    ({"model": ""}, 404, "model_unknown"),
    ({"model": 7}, 400, "invalid_request"),
    ({"prompt": ""}, 400, "invalid_request"),
    ({"prompt": 7}, 400, "invalid_request"),
    ({"prompt": None}, 400, "invalid_request"),
    ({"prompt": "x" * 100_000}, 400, "invalid_request"),
    ({"width": 7}, 400, "invalid_request"),
    ({"width": 100_000}, 400, "invalid_request"),
    ({"steps": 0}, 400, "invalid_request"),
    ({"steps": 10**9}, 400, "invalid_request"),
    ({"seed": -1}, 400, "invalid_request"),
    ({"seed": 2**80}, 400, "invalid_request"),
    ({"seed": "x"}, 400, "invalid_request"),
    ({"manner": "tiles"}, 400, "invalid_request"),
    ({"manner": "sliced"}, 422, "not_repeatable"),
    ({"priority": "royal"}, 400, "invalid_request"),
    ({"stepps": 20}, 400, "invalid_request"),
]


@pytest.mark.parametrize(("fields", "status", "kind"), BAD_FIELDS)
def test_a_bad_value_is_refused_at_the_door_and_leaves_nothing(person, fields, status, kind):
    before = person.get("api/jobs")
    assert person.refused("POST", "api/jobs", json=TURBO | fields)[0] == status
    error = person.refused("POST", "api/jobs", json=TURBO | fields)[1]
    assert error["kind"] == kind
    assert error["message"]
    [(field, _)] = fields.items()
    if kind == "invalid_request":
        assert field in error["message"]
    assert person.get("api/jobs") == before


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"a red circle", 400, "not_json"),
        (b"", 400, "not_json"),
        (b"\xff\xfe", 400, "not_json"),
        (b"[]", 400, "invalid_request"),
        (b"{}", 400, "invalid_request"),
        (b'{"model": "shapes", "prompt": "' + b"x" * 50_000_000 + b'"}', 413, "request_too_large"),
    ],
    ids=["no JSON", "nothing", "no text", "a list", "an empty object", "50 MB"],
)
def test_a_body_that_is_no_request_is_refused(person, body, status, kind):
    got, error = person.refused("POST", "api/jobs", content=body)
    assert (got, error["kind"]) == (status, kind)


@pytest.mark.parametrize("job", ["0" * 32, "nonsense", "..%2F..%2Fetc", "%00"])
def test_a_job_that_never_was_is_unknown(person, job):
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/images/0")):
        status, error = person.refused(method, f"api/jobs/{job}{path}")
        assert (status, error["kind"]) == (404, "job_unknown")


def test_an_image_that_is_not_there_is_unknown(person):
    job = person.ended(person.submit()["id"])
    status, error = person.refused("GET", f"api/jobs/{job['id']}/images/1")
    assert (status, error["kind"], error["images"]) == (404, "image_unknown", 1)


def test_a_request_that_is_sent_again_with_its_id_makes_no_second_job(person, kernel):
    body = TURBO | {"id": uuid.uuid4().hex}
    first, second = (person.http.post("api/jobs", json=body) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] == second.json()["id"] == body["id"]
    assert first.json()["params"] == second.json()["params"]
    assert [job["id"] for job in person.get("api/jobs")["jobs"]] == [body["id"]]
    other = body | {"prompt": "something else"}
    with kernel.person() as somebody:
        for asking, sent in ((person, other), (somebody, body)):
            status, error = asking.refused("POST", "api/jobs", json=sent)
            assert (status, error["kind"], error["field"]) == (400, "invalid_request", "id")
    assert person.ended(body["id"])["state"] == "done"
    assert person.http.post("api/jobs", json=body).json()["state"] == "done"


def test_a_request_with_a_known_id_that_differs_in_any_field_is_refused(person):
    body = TURBO | {"id": uuid.uuid4().hex, "seed": 7}
    assert person.http.post("api/jobs", json=body).status_code == 201
    others = {
        "model": "shapes",
        "prompt": "something else",
        "negative_prompt": "blue",
        "seed": 8,
        "steps": 3,
        "guidance": 3.5,
        "width": 64,
        "height": 64,
        "images": 2,
        "batch": 2,
        "manner": "exact",
        "compiled": False,
        "priority": "low",
        "placement": "resident",
        "profile": True,
    }
    for field, value in others.items():
        assert body.get(field) != value
        status, error = person.refused("POST", "api/jobs", json=body | {field: value})
        assert (field, status, error.get("field")) == (field, 400, "id"), error
    assert person.http.post("api/jobs", json=body).status_code == 201


@pytest.mark.parametrize("job", ["1", "../../etc/passwd", "A" * 32, "0" * 33])
def test_an_id_that_is_none_is_refused(person, job):
    status, error = person.refused("POST", "api/jobs", json=TURBO | {"id": job})
    assert (status, error["field"]) == (400, "id")


def test_status_says_what_is_kept(person):
    person.ended(person.submit()["id"])
    journal = person.get("api/status")["journal"]
    assert journal["jobs"] >= 1
    assert journal["image_bytes"] > 100
    assert (journal["problem"], journal["keep_days"], journal["keep_bytes"]) == ("", 30.0, 10**10)


def test_only_an_admin_may_push_ahead(person, kernel):
    with kernel.person() as other:
        status, error = other.refused("POST", "api/jobs", json=TURBO | {"priority": "urgent"})
        assert (status, error["kind"]) == (403, "not_allowed")
    assert person.ended(person.submit(priority="urgent")["id"])["state"] == "done"


def test_without_a_token_there_is_nothing(server):
    with Person(server, token="wrong") as stranger:
        for method, path in (
            ("GET", "status"),
            ("GET", "models"),
            ("POST", "jobs"),
            ("GET", "jobs/x"),
            ("DELETE", "jobs/x"),
            ("GET", "events"),
            ("POST", "holds"),
            ("POST", "models/shapes/evict"),
            ("GET", "openapi.json"),
        ):
            status, error = stranger.refused(method, f"api/{path}")
            assert (status, error["kind"]) == (403, "not_allowed"), path


def test_an_address_that_nobody_serves_is_told_in_the_same_form(person):
    assert person.refused("GET", "api/nowhere")[1]["kind"] == "not_found"
    assert person.refused("PATCH", "api/jobs")[1]["kind"] == "method_not_allowed"


def test_a_refusal_says_in_words_what_was_wrong(person):
    assert person.refused("PATCH", "api/jobs")[1]["message"] == "Method Not Allowed."
    assert "nowhere%20" in person.refused("GET", "api/nowhere%20")[1]["message"]
    with Person(person.server, token="wrong") as stranger:
        assert stranger.refused("GET", "api/me")[1]["message"] == "Forbidden."


def test_the_name_of_a_model_in_an_address_is_read_once(person):
    error = person.refused("POST", "api/models/a%2525b/load")[1]
    assert error["model"] == "a%25b"
