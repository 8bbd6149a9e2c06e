"""A plan as a table."""

from typing import Any

from workshop_gpu.api.schemas_plans import PlanView, RungView
from workshop_gpu.client.plans import PlanTable

GB = 1_000_000_000
ELSEWHERE = "On the other GPU"


def a_rung(name: str, **more: Any) -> RungView:
    values = {
        "rung": name,
        "words": name,
        "weights_bytes": 20 * GB,
        "working_bytes": 2 * GB,
        "needed_bytes": 22 * GB,
        "streamed_bytes": 0,
        "expected_s": 4.0,
        "exact": True,
        "chosen": False,
        "why": "fits, and is no faster",
    }
    return RungView(**{**values, **more})


def a_plan(*rungs: RungView, **more: Any) -> PlanTable:
    return PlanTable(PlanView("large", "gpu0", 24 * GB, 24 * GB, 0.1, 1e10, "", rungs, **more))


def test_what_a_rung_takes_of_the_other_gpu_has_a_column_where_one_takes_anything() -> None:
    table = a_plan(a_rung("resident"), a_rung("swap-encoders", elsewhere_bytes=9_300_000_000))
    lines = repr(table).splitlines()
    column = lines[1].index(ELSEWHERE)
    assert [line[column:].split("  ")[0] for line in lines[3:]] == ["", "9.3 GB"]
    assert ELSEWHERE in table._repr_html_()
    assert "9.3 GB" in table._repr_html_()
    for shown in (repr(a_plan(a_rung("resident"))), a_plan(a_rung("resident"))._repr_html_()):
        assert ELSEWHERE not in shown


def test_a_warning_and_notes_stand_above_the_rungs() -> None:
    told = {"warning": "This takes 22.1 GB.", "notes": ("Its VAE cannot work in tiles.",)}
    assert "This takes 22.1 GB. Its VAE cannot work in tiles." in repr(
        a_plan(a_rung("resident"), **told)
    )
