"""The planner's reasons over REST."""

import pytest

from tests.api.people import Person


def test_a_plan_has_rungs_with_bytes_and_seconds(person: Person) -> None:
    person.ended(person.submit()["id"])
    plan = person.get("api/models/shapes/plan?width=128&height=128")
    assert [rung["rung"] for rung in plan["rungs"] if rung["chosen"]] == ["resident"]
    assert all(rung["expected_s"] > 0 and rung["why"] for rung in plan["rungs"])


@pytest.mark.parametrize(
    ("query", "status", "kind"),
    [
        ("nothing/plan", 404, "model_unknown"),
        ("shapes/plan?width=-1", 400, "invalid_request"),
        ("shapes/plan?width=1e9", 400, "invalid_request"),
        ("shapes/plan?height=100000000", 400, "invalid_request"),
        ("shapes/plan?batch=0", 400, "invalid_request"),
        ("shapes/plan?batch=500", 400, "invalid_request"),
        ("shapes/plan?device=gpu7", 404, "device_unknown"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    person: Person, query: str, status: int, kind: str
) -> None:
    told, error = person.refused("GET", f"api/models/{query}")
    assert (told, error["kind"]) == (status, kind)
