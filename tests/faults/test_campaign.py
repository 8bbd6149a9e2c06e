"""The fault campaign in short: a few faults of each cheap kind, and nothing is lost."""

from pathlib import Path

from tests.faults.campaign import Campaign, Plan

WEIGHTS = {
    "worker killed": 0.3,
    "worker late": 1.0,
    "server late": 1.0,
    "connections cut": 1.0,
    "half a request": 1.0,
    "client killed": 0.3,
}


def test_a_few_faults_lose_nothing(tmp_path: Path) -> None:
    folder, notes = tmp_path / "server", tmp_path / "notes"
    for each in (folder, notes):
        each.mkdir()
    plan = Plan(5.0, 5, 2, 0.25, WEIGHTS, devices=("cpu:200MB",), spare_worker="off")
    report = Campaign(plan, folder, notes).run()
    assert report.wrong == [], report.text()
    assert report.accepted > 0
    assert sum(report.faults.values()) > 0
