"""What stays allocated after jobs: told only where it grows, and only once that is sure."""

import gc
import mmap
from pathlib import Path

from tests.worker.worker_host import START_S, Host, params
from workshop_gpu.worker import protocol
from workshop_gpu.worker.leaks import Drift, own_host_bytes

MB = 1_000_000


def drifts(*kept_mb: int, weights: int = 7) -> list[int]:
    drift = Drift(100 * MB)
    return [drift.after_job(weights, each * MB) // MB for each in kept_mb]


def test_memory_that_grows_with_every_job_is_a_leak_after_three_jobs_too_many() -> None:
    assert drifts(0, 60, 120, 180, 240, 300) == [0, 0, 0, 0, 240, 300]


def test_a_cache_that_fills_once_and_a_peak_that_passes_are_no_leak() -> None:
    assert drifts(0, 90, 90, 90, 90, 90) == [0] * 6
    assert drifts(0, 500, 500, 0, 500, 500, 0) == [0] * 7


def test_what_is_kept_on_purpose_is_no_leak_and_hides_none() -> None:
    drift = Drift(100 * MB)
    assert drift.after_job(7, 0) == 0
    assert [drift.after_job(7, 250 * MB, 200 * MB) for _ in range(4)] == [0] * 4
    assert [drift.after_job(7, 350 * MB, 200 * MB) // MB for _ in range(3)] == [0, 0, 150]
    assert [drift.after_job(7, 150 * MB, 0) // MB for _ in range(3)] == [150, 150, 150]


def test_each_set_of_models_has_a_floor_of_its_own() -> None:
    drift = Drift(100 * MB)
    floors = {1: 0, 2: 700, 3: 350}
    for _ in range(5):
        for weights, floor in floors.items():
            assert drift.after_job(weights, floor * MB) == 0
    readings = [
        drift.after_job(1 + turn % 3, (floors[1 + turn % 3] + 200) * MB) for turn in range(4)
    ]
    assert readings[:2] == [0, 0]
    assert readings[3] == 200 * MB, "a leak shows although models change"


def test_the_process_knows_its_own_memory(tmp_path: Path) -> None:
    gc.collect()  # what earlier tests left is not given back between the two looks
    before = own_host_bytes()
    with mmap.mmap(-1, 80 * MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:  # none is reused
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        assert own_host_bytes() - before > 70 * MB
    assert own_host_bytes(tmp_path / "none") == 0


def test_a_real_worker_says_nothing_of_leaks_where_there_are_none() -> None:
    host = Host("--device", "cpu", "--total-bytes", "1000000000", "--threads", "1")
    try:
        host.expect(protocol.Ready, START_S)
        host.load("shapes-dit-turbo")
        for number in range(4):
            run = protocol.Run(f"job {number}", "shapes-dit-turbo", params(steps=1))
            host.ask(run, protocol.Done)
    finally:
        host.close()
