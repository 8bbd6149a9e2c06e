"""The benchmark of placements, as far as it can be tried without a GPU."""

from argparse import Namespace
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.keeping import Keeping
from benchmarks.placements import ours, together
from benchmarks.placements_against import against_peers
from benchmarks.placements_bench import Bench, Measured
from benchmarks.placements_cards import cards, rows_of_jobs, throws
from benchmarks.placements_compiled import HALF, HALF_LOW
from benchmarks.placements_plot import steps_against_memory, steps_spent
from benchmarks.report import Row, publish, shown

OPTIONS = Namespace(small=False, folder=Path("models"), steps=28)
OURS = [
    ("50% streamed", 0.2, 20.0),
    ("100% streamed", 0.3, 9.0),
]
PEERS = [("diffusers, enable_model_cpu_offload", 0.45, 21.0), ("mmgp, profile 2", 0.36, 12.0)]


def rows(measured: list[tuple[str, float, float]]) -> list[object]:
    return [
        row
        for name, step_s, peak in measured
        for row in (
            shown(f"{name}, a step", step_s, "s", 0.19),
            shown(f"{name}, peak", peak, "GB"),
        )
    ]


def small_bench(folder: Path) -> Bench:
    bench = Bench(
        Namespace(small=True, folder=folder, steps=28), Keeping(folder / "found.json", Measured)
    )
    bench.side, bench.steps = 64, 2
    return bench


def test_a_small_card_is_planned_for_and_goes_on_with_the_random_jobs_that_are_missing(
    tmp_path: Path,
) -> None:
    def measured(jobs: int) -> dict[str, Row]:
        bench = small_bench(tmp_path)
        cards(bench, tmp_path / "data", "cpu:500MB", [0.02], jobs)
        rows = [*bench.rows, *rows_of_jobs(bench.found.cards, bars=False)]
        assert len({row.name for row in rows}) == len(rows)
        return {row.name: row for row in rows}

    once = measured(1)
    assert once["0.02 GB, of 1 random jobs failed"].holds
    (off,) = [name for name in once if name.endswith("off from what was expected")]
    assert not off.startswith("0.02 GB: resident")
    (job,) = [row for name, row in once.items() if name.endswith(", a job")]
    assert job.value > 0
    assert job.limit is not None

    assert measured(1) == once, "there was nothing left to do"
    again = measured(2)
    assert again["0.02 GB, of 2 random jobs failed"].holds
    assert again[off] == once[off], "it was not compared a second time"
    assert again[job.name] == job


def test_the_random_jobs_are_the_same_in_each_run() -> None:
    first, second = (list(islice(throws(["a", "b"], [64, 96]), 40)) for _ in range(2))
    assert first == second
    assert {throw.model for throw in first} == {"a", "b"}
    assert any(throw.share for throw in first)
    assert any(throw.share == 0 for throw in first)


@pytest.mark.filterwarnings("ignore")  # the libraries' advice is no error of ours
def test_rungs_come_from_the_pool_and_those_that_were_measured_stay(tmp_path: Path) -> None:
    bench = small_bench(tmp_path)
    ours(bench, "50%")
    named = "50% streamed, the others staged, pictures that differ"
    differ = [row for row in bench.rows if row.name == named]
    assert [row.holds for row in differ] == [True]
    assert bench.found.notes == [], "all weights are in the pool"
    assert bench.found.broken == 0

    again = small_bench(tmp_path)
    ours(again, "75%")
    assert again.rows[: len(bench.rows)] == bench.rows
    new = [row.name for row in again.rows[len(bench.rows) :]]
    assert new
    assert all(name.startswith("75%") for name in new)


def test_ours_is_compared_at_no_more_memory_than_the_peer_takes(tmp_path: Path) -> None:
    publish("placements-ours", rows(OURS), folder=tmp_path)  # type: ignore[arg-type]
    publish("placements-peers", rows(PEERS), folder=tmp_path)  # type: ignore[arg-type]
    bench = Bench(OPTIONS)
    together(bench, tmp_path)
    ratios = {row.name.split(", times")[0]: row for row in bench.rows if ", times" in row.name}
    assert ratios[PEERS[0][0]].value == 0.45 / 0.2
    assert ratios[PEERS[1][0]].value == 0.36 / 0.3, "the faster of ours needs more than it has"
    assert (ratios[PEERS[0][0]].holds, ratios[PEERS[1][0]].holds) == (True, False)


def test_compiled_blocks_are_compared_with_the_best_peer_that_needs_no_more_memory() -> None:
    ours = [(f"{HALF}, compiled", 0.15, 21.0), (f"{HALF_LOW}, compiled", 0.16, 12.0)]
    names = "diffusers, enable_model_cpu_offload", "mmgp, profile 2", "mmgp, profile 4"
    peers = [(names[0], 0.19, 20.0), (names[1], 0.41, 9.0), (names[2], 0.39, 12.3)]
    measured: list[Row] = rows([*ours, *peers])  # type: ignore[assignment]
    found = {row.name.split(", times")[0]: row for row in against_peers(measured, bars=True)}
    assert found[ours[0][0]].value == 0.19 / 0.15, "it could keep the whole denoiser there"
    assert found[ours[1][0]].value == 0.41 / 0.16, "the other needs 2.5 % more"
    assert (found[ours[0][0]].holds, found[ours[1][0]].holds) == (None, True)
    assert not {*names} & {*found}, "compiled blocks are not what peers are compared with else"


def test_the_pictures_show_every_placement() -> None:
    measured = rows([*OURS, *PEERS])
    profile = [
        shown(f"50% streamed, {what} in a step", 0.1, "s")
        for what in ("copying", "waiting", "computing")
    ]
    drawn = steps_against_memory(measured)  # type: ignore[arg-type]
    assert all(name in drawn for name, _, _ in [*OURS, *PEERS])
    assert drawn.count("· limit") == 4
    assert steps_spent(profile).count("<rect") == 1 + 3
