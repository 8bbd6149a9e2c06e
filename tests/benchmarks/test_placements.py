"""The benchmark of placements, as far as it can be tried without a GPU."""

from argparse import Namespace
from pathlib import Path

from benchmarks.placements import together
from benchmarks.placements_against import against_peers
from benchmarks.placements_bench import Bench
from benchmarks.placements_cards import cards
from benchmarks.placements_compiled import HALF, HALF_LOW
from benchmarks.placements_plot import steps_against_memory, steps_spent
from benchmarks.report import Row, publish, shown
from workshop_gpu.catalogue.shipped import ASSETS

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


def test_a_small_card_is_planned_for_and_holds_a_random_job() -> None:
    models = {"large": ASSETS / "shapes-dit", "turbo": ASSETS / "shapes-dit-turbo"}
    found = {row.name: row for row in cards(models, "cpu:500MB", [0.02], 1, side=64, steps=2)}
    assert found["0.02 GB, of 1 random jobs failed"].holds
    (off,) = [row for name, row in found.items() if name.endswith("off from what was expected")]
    assert not off.name.startswith("0.02 GB: resident")
    (job,) = [row for name, row in found.items() if name.endswith(", a job")]
    assert job.value > 0
    assert job.limit is not None


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
