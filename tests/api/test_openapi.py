import re

import jsonschema
import pytest

from tests.api.people import TURBO
from workshop_gpu.api.openapi import OPERATIONS, description
from workshop_gpu.api.routes import routes

VERBS = ("get", "post", "put", "delete", "patch")


def schema(reference):
    components = description()["components"]
    return {"$ref": f"#/components/schemas/{reference}", "components": components}


def test_every_verb_of_every_route_is_described_and_nothing_else():
    described = {(re.sub(r"\{\w+\}", "7", op.path), op.verb) for op in OPERATIONS}
    served = set()
    for pattern, handler in routes():
        if handler.__name__.endswith("NotFound"):
            continue
        path = re.sub(r"\([^)]*\)", "7", pattern.removeprefix("workshop-gpu/")).replace("\\", "")
        for verb in VERBS:
            if verb in handler.__dict__:
                served.add((path, verb))
    assert described == served


def test_every_described_verb_asks_who_it_is_and_may_be_described_once():
    assert len({(op.path, op.verb) for op in OPERATIONS}) == len(OPERATIONS)
    for operation in OPERATIONS:
        paths = description()["paths"]
        answers = paths[f"/workshop-gpu/{operation.path}"][operation.verb]["responses"]
        assert "403" in answers
        assert str(operation.status) in answers
        assert all("X-Request-ID" in answer["headers"] for answer in answers.values())


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("api/me", "Me"),
        ("api/status", "Status"),
        ("api/models", "ModelList"),
        ("api/jobs", "JobList"),
        ("api/holds", "HoldList"),
        ("v1/models", "ModelEntries"),
    ],
)
def test_answers_are_as_described(person, path, name):
    jsonschema.validate(person.get(path), schema(name))


def test_jobs_holds_errors_and_events_are_as_described(person):
    jsonschema.validate(TURBO, schema("GenerateRequest"))
    job = person.ended(person.submit()["id"])
    jsonschema.validate(job, schema("Job"))
    hold = person.hold("shapes")
    jsonschema.validate(hold, schema("Hold"))
    person.http.delete(f"api/holds/{hold['id']}")
    error = person.http.get("api/jobs/nonsense").json()
    jsonschema.validate(error, schema("ErrorBody"))
    jsonschema.validate(next(person.events())[1], schema("SnapshotEvent"))


def test_the_description_is_served(person):
    served = person.get("api/openapi.json")
    assert served["openapi"] == "3.1.0"
    assert served["paths"] == description()["paths"]
