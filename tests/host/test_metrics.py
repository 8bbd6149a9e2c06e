"""Metrics for Prometheus: what is counted, and that the number of series is bounded."""

import json
import re
from pathlib import Path

from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import REGISTRY, CollectorRegistry

from tests.conductor.staging import GB, stage
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.states import JobState
from workshop_gpu.host.happenings import Evicted, JobEnded, Loaded, LoadFailed
from workshop_gpu.host.metrics import Metrics

OPERATORS = Path(__file__).parent.parent.parent / "docs" / "operators"


def exported(metrics):
    """The value of each series, as a scrape gives it."""
    registry = CollectorRegistry()
    registry.register(metrics)
    text = generate_latest(registry).decode()
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def a_job(outcome=JobState.DONE, model="shapes", wait_s=2.0, gpu_s=3.0):
    error = ErrorReport("load_failed", "no") if outcome is JobState.FAILED else None
    return JobEnded("1", "user:ann", model, "gpu0", outcome, error, wait_s, gpu_s)


def metrics_of(room):
    return Metrics(lambda: room.conductor.snapshot(room.now))


def test_what_happens_is_counted_by_model_and_outcome():
    metrics = metrics_of(stage())
    for happening in (
        a_job(),
        a_job(),
        a_job(JobState.FAILED),
        a_job(JobState.CANCELLED, wait_s=None, gpu_s=0.0),
        Loaded("gpu0", "shapes", 3 * GB, 4.0, ""),
        LoadFailed("gpu0", "shapes", ErrorReport("load_failed", "no")),
        Evicted("gpu0", "shapes", 3 * GB, "why", "user:ann", 1.0),
    ):
        metrics.note(happening)
    found = exported(metrics)
    assert found["workshop_gpu_jobs_total", "done", "shapes"] == 2
    assert found["workshop_gpu_jobs_total", "cancelled", "shapes"] == 1
    assert found["workshop_gpu_gpu_seconds_total", "shapes"] == 9.0
    assert found["workshop_gpu_job_wait_seconds_count", "shapes"] == 3
    assert found["workshop_gpu_load_seconds_sum", "shapes"] == 4.0
    assert found["workshop_gpu_loads_total", "failed", "gpu0", "shapes"] == 1
    assert found["workshop_gpu_evictions_total", "gpu0", "shapes"] == 1
    assert found["workshop_gpu_evicted_bytes_total", "gpu0"] == 3 * GB


def test_memory_that_did_not_come_back_is_not_counted():
    metrics = metrics_of(stage())
    metrics.note(Evicted("gpu0", "shapes", -1, "", "", 0.0))
    assert exported(metrics)["workshop_gpu_evicted_bytes_total", "gpu0"] == 0


def test_the_state_is_that_of_the_moment_and_holders_sum_up_to_the_total():
    room = stage(gb=80)
    metrics = metrics_of(room)
    room.load("a")
    room.submit("a")
    room.submit("a")
    found = exported(metrics)
    held = sum(value for key, value in found.items() if key[0] == "workshop_gpu_vram_bytes")
    assert held == found["workshop_gpu_vram_total_bytes", "gpu0"] == 80 * GB
    assert found["workshop_gpu_model_bytes", "a", "gpu0"] == 30 * GB
    assert found["workshop_gpu_slots", "gpu0", "ready"] == 1
    assert found["workshop_gpu_jobs_now", "queued"] == 1
    assert found["workshop_gpu_jobs_now", "running"] == 1
    assert found["workshop_gpu_device_up", "gpu0"] == 1


def test_however_many_models_there_are_the_number_of_series_is_bounded():
    metrics = metrics_of(stage())
    for number in range(500):
        metrics.note(a_job(model=f"model-{number}"))
    counted = [key for key in exported(metrics) if key[0] == "workshop_gpu_jobs_total"]
    assert len(counted) == 101
    assert exported(metrics)["workshop_gpu_jobs_total", "done", "other"] == 400


def test_two_servers_in_one_process_do_not_collide_and_leave_nothing_behind():
    first, second = metrics_of(stage()), metrics_of(stage())
    first.serve()
    second.serve()
    second.stop()
    first.stop()
    first.stop()
    assert not any(family.name.startswith("workshop_gpu") for family in REGISTRY.collect())


def test_no_label_names_a_participant():
    metrics = metrics_of(stage())
    metrics.note(a_job())
    metrics.note(Evicted("gpu0", "shapes", 1, "to make room for turbo", "user:ann", 1.0))
    assert "ann" not in str(exported(metrics))


def test_each_metric_is_in_the_documentation_and_the_dashboard_asks_for_no_other():
    metrics = metrics_of(stage())
    names = {family.name for family in metrics.collect()}
    page = (OPERATORS / "monitoring.md").read_text()
    told = {name.removesuffix("_total") for name in re.findall(r"`(workshop_gpu_\w+)`", page)}
    assert told == {name.removesuffix("_total") for name in names}
    dashboard = (OPERATORS / "grafana.json").read_text()
    asked = set(re.findall(r"workshop_gpu_\w+", dashboard))
    known = names | {
        f"{name}_{end}" for name in names for end in ("total", "bucket", "sum", "count")
    }
    assert asked <= known
    assert len({panel["id"] for panel in json.loads(dashboard)["panels"]}) >= 10
