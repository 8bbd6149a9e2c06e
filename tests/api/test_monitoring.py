"""Jupyter's own metrics and events, on a real server."""

import json

import pytest

from tests.api.people import Person
from tests.serverprocess import ServerProcess

ROOT = "https://events.jupyter.org/workshop_gpu"


@pytest.fixture(scope="module")
def told(server):
    """A server whose events go to a file, after a job, a rule and an eviction: its metrics, and
    the events by the last word of their schema."""
    with Person(server, "monitored") as person:
        person.ended(person.submit()["id"])
        person.ended(person.submit()["id"])
        person.http.patch("api/policy", json={"patience_s": None}).raise_for_status()
        person.evict("shapes-dit-turbo")
        headers = {"Authorization": f"token {server.token}"}
        metrics = person.http.get(f"{server.url}metrics", headers=headers)
    lines = [json.loads(line) for line in (server.folder / "events.jsonl").read_text().splitlines()]
    events = {}
    for line in lines:
        if line["__schema__"].startswith(ROOT):
            name = line["__schema__"].removeprefix(f"{ROOT}/").removesuffix("/v1")
            events.setdefault(name, []).append(line)
    return metrics, events


def test_jupyters_own_page_of_metrics_has_ours(told):
    metrics, _ = told
    assert metrics.status_code == 200
    assert "kernel_currently_running_total" in metrics.text
    done = 'workshop_gpu_jobs_total{model="shapes-dit-turbo",outcome="done"}'
    (line,) = [line for line in metrics.text.splitlines() if line.startswith(done)]
    assert float(line.split()[-1]) >= 2
    assert 'workshop_gpu_vram_bytes{device="cpu:0",holder="free"}' in metrics.text


def test_loads_evictions_jobs_and_actions_are_events_of_jupyter(told):
    _, events = told
    assert ("shapes-dit-turbo", "loaded") in [
        (each["model"], each["outcome"]) for each in events["load"]
    ]
    assert ("shapes-dit-turbo", "asked by the instructor") in [
        (each["model"], each["why"]) for each in events["evict"]
    ]
    mine = [each for each in events["job"] if each["participant"] == "client:monitored"]
    assert [(each["outcome"], each["model"]) for each in mine] == [
        ("done", "shapes-dit-turbo"),
        ("done", "shapes-dit-turbo"),
    ]
    assert [each["action"] for each in events["admin"]][-2:] == [
        "changed the rules",
        "evicted a model",
    ]


def test_a_prompt_is_in_no_event(told):
    assert "red circle" not in str(told[1])


def test_metrics_are_for_those_who_log_in(server: ServerProcess, kernel):
    with kernel.person() as pupil:
        assert pupil.http.get(f"{server.url}metrics").status_code == 403
