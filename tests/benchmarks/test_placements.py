"""The benchmark of placements, as far as it can be tried without a GPU."""

from argparse import Namespace
from itertools import islice
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from benchmarks.keeping import Keeping
from benchmarks.placements import PARTS, ours, together
from benchmarks.placements_against import against_peers
from benchmarks.placements_bench import Bench, Measured
from benchmarks.placements_cards import cards, rows_of_jobs, throws
from benchmarks.placements_compiled import HALF, HALF_LOW
from benchmarks.placements_plot import steps_against_memory, steps_spent
from benchmarks.report import Gpu, Row, publish, read, shown

OPTIONS = Namespace(small=False, folder=Path("models"), steps=28)
OURS = [
    ("50% streamed", 0.2, 20.0),
    ("100% streamed", 0.3, 9.0),
]
WORDS = "", " with compiled blocks"
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
    # Without the resident step nobody knows which peers keep the denoiser there.
    assert all(found[name].holds is None for name in names if name in found)


def test_a_peer_with_its_whole_denoiser_there_is_compared_with_compiled_blocks() -> None:
    ours = [("resident", 0.18, 30.0), ("everything staged", 0.181, 17.0)]
    blocks = [("everything staged, compiled", 0.13, 17.0)]
    peers = [("mmgp, profile 1", 0.183, 17.2), ("mmgp, profile 2", 0.36, 17.2)]
    measured: list[Row] = rows([*ours, *blocks, *peers])  # type: ignore[assignment]
    found = {row.name: row for row in against_peers(measured, bars=True)}
    one, two = (
        {word: found[f"{peer}, times ours{word} at no more memory"] for word in WORDS}
        for peer, _, _ in peers
    )
    assert one[""].value == 0.183 / 0.181
    assert one[WORDS[1]].value == 0.183 / 0.13
    assert (one[""].holds, one[WORDS[1]].holds) == (None, True), "faster than resident is nothing"
    assert (two[""].holds, two[WORDS[1]].holds) == (True, None)


def test_the_pictures_show_every_placement() -> None:
    measured = rows([*OURS, *PEERS])
    profile = [
        shown(f"50% streamed, {what} in a step", 0.1, "s")
        for what in ("copying", "waiting", "computing")
    ]
    drawn = steps_against_memory(measured)  # type: ignore[arg-type]
    assert all(name in drawn for name, _, _ in [*OURS, *PEERS])
    assert drawn.count("<circle") == 4
    assert drawn.count('stroke="#1f2933"') == 4, "a dash for each limit"
    assert steps_spent(profile).count("<rect") == 1 + 3


def test_what_a_step_was_faster_than_is_drawn_as_no_limit() -> None:
    measured: list[Row] = rows([("resident", 0.2, 30.0), ("100% streamed", 0.15, 9.0)])  # type: ignore[assignment]
    assert steps_against_memory(measured).count('stroke="#1f2933"') == 1


def test_parts_of_several_machines_keep_their_names_their_days_and_their_machine(
    tmp_path: Path,
) -> None:
    for part in ("ours", "compiled"):
        bus = shown("registered memory to the device", 50.0, "GB/s")
        publish(f"placements-{part}", [bus], folder=tmp_path)
        path = tmp_path / f"placements-{part}.json"
        card = Gpu(f"card of {part}", 1, "1")
        result = read(path)
        there = replace(result, date=f"day of {part}", machine=replace(result.machine, gpus=[card]))
        path.write_bytes(msgspec.json.encode(there))
    bench = Bench(OPTIONS)
    first = together(bench, tmp_path)
    assert [row.name for row in bench.rows] == [bus.name, f"{bus.name} (compiled)"]
    assert all(
        f"card of {part}, day of {part}" in " ".join(bench.found.notes) for part in PARTS[:2]
    )
    publish("placements", bench.rows, folder=tmp_path, measured=first)
    assert read(tmp_path / "placements.json").machine.gpus[0].name == "card of ours"
