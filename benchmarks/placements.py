"""What each rung of the placement ladder costs: seconds a step and peak memory, peers beside it.

`python -m benchmarks.placements --folder FOLDER --part PART` takes the model `large` that the
switching benchmark's `switching_models` writes: SD3.5-Large's shape with random weights. The parts:

- `ours`: every rung and 25 to 100 % of the denoiser's blocks streamed, in one process (`--only
  NAME`: the resident one and some of them);
- `compiled`: resident and half streamed with compiled blocks, and how long compiling them takes;
- `second`: blocks and text encoders in a second card's memory, against the host's;
- `peers`: other libraries (`--only NAME` some of them), each in a process of its own;
- `cards`: the whole product on simulated cards (`--card 8 16`, `--jobs` random ones on each);
- `together`: one table of what the parts have written, and how ours stands to the peers.

Each row is printed as it comes, and what was found is kept in FOLDER: called again, a part that was
broken off goes on with the rung, peer, card or random job that is missing. `--anew` forgets it. The
model comes from the disk once and then from a weight pool (`--no-pool`: always from the disk).
`--small` tries it all on the CPU with a shipped model; its numbers say nothing, and nothing is kept
unless a folder is named.

Limits: a step cannot be faster than the resident one, nor than the bus brings what is streamed. A
plan promises what stays on the device and, above it, the larger of what comes for a while and of
the activations, which are measured on the resident rung.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.keeping import Keeping
from benchmarks.placements_against import against_peers
from benchmarks.placements_bench import (
    BUFFERS,
    Bench,
    Limits,
    Measured,
    drawn,
    load,
    loader,
    placed,
    profile,
)
from benchmarks.placements_cards import cards, rows_of_jobs
from benchmarks.placements_compiled import NotCompiled, compiled
from benchmarks.placements_peers import PEERS
from benchmarks.placements_second import second
from benchmarks.report import RESULTS, ROOT, Result, publish, read, shown
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, RESIDENT, ROLES, VAE, Placement

PARTS = ("ours", "compiled", "second", "peers", "cards")
CARDS = (0.0, 48.0, 24.0, 16.0, 12.0, 8.0)
SMALL_CARDS = (0.0, 0.02)
"""GB; 0: the device as it is."""
SHARES = (0.25, 0.5, 0.75, 1.0)


FIRST = "resident"
"""The rung that the others are judged by."""


def ours(bench: Bench, only: str) -> None:
    """Every rung in turn, in place."""
    names = [name for name in _rungs(0) if name == FIRST or only in name]
    if all(map(bench.keeping.done, names)):
        return
    worker = loader(bench)
    roles = {role.role: role for role in load(worker, bench, RESIDENT).roles}
    rungs = _rungs(sum(roles[DENOISER].blocks_bytes))
    for name in names:
        bench.keeping.attempt(name, partial(_rung, worker, bench, name, rungs[name]))


def _rung(worker: Any, bench: Bench, name: str, placement: Placement) -> None:
    """Raises RuntimeError where the first one could not be measured."""
    model = placed(worker, bench, name, placement)
    found = drawn(worker, bench, model)
    for row in profile(worker, bench, model, name):
        bench.add(row)
    if name == FIRST:
        bench.found.limits = Limits.of(bench, model, found)
    if bench.found.limits is None:
        raise RuntimeError("the resident model was not measured")
    bench.found.limits.judge(bench, name, model, found)


def _rungs(blocks_bytes: int) -> dict[str, Placement]:
    """By name; the denoiser's blocks have so many bytes."""
    found = {FIRST: RESIDENT, "encoders staged": Placement(staged=(ENCODERS,))}
    for share in SHARES:
        streamed = Placement((ENCODERS, VAE), (), int(share * blocks_bytes), BUFFERS)
        found[f"{share:.0%} streamed, the others staged"] = streamed
    low = Placement((VAE,), (), blocks_bytes, BUFFERS, streamed=(ENCODERS,))
    found["100% streamed, encoders streamed too"] = low
    lowest = replace(low, tiled=True)
    found["100% streamed, encoders streamed too, VAE tiled"] = lowest
    found["100% streamed, encoders streamed too, VAE tiled, two buffers"] = replace(
        lowest, buffers=2
    )
    found["everything staged"] = Placement(staged=ROLES)
    found["resident, VAE tiled"] = Placement(tiled=True)
    return found


def _compiled(bench: Bench) -> None:
    try:
        compiled(bench)
    except NotCompiled as problem:
        bench.note(f"Compiled blocks were not measured: {problem}.")


def peers(bench: Bench, only: str) -> None:
    """What others offer, each in a process of its own."""
    for name in PEERS:
        if only in name:
            bench.keeping.attempt(name, partial(_peer, bench, name))


def _peer(bench: Bench, name: str) -> None:
    command = [
        sys.executable, "-m", "benchmarks.placements_peers", name, str(bench.folder),
        bench.kind,
        "--steps", str(bench.steps), "--side", str(bench.side),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = done.stdout.strip().splitlines()
    found = json.loads(said[-1]) if done.returncode == 0 and said else {}
    if "step_s" not in found:
        why = found.get("missing") or done.stderr[-300:] or f"exit code {done.returncode}"
        bench.note(f"{name} was not measured: {why}")
        return
    bench.add(shown(f"{name}, a step", found["step_s"], "s"))
    bench.add(shown(f"{name}, a job", found["job_s"], "s"))
    bench.add(shown(f"{name}, peak", found["peak_bytes"] / 1e9, "GB"))


def on_cards(bench: Bench, options: argparse.Namespace) -> None:
    """The planner's choices on cards of several sizes."""
    data = options.folder / "placements-cards"
    if not bench.keeping.went_on:  # what another machine has learned is of no use
        shutil.rmtree(data, ignore_errors=True)
    sizes = options.card or (SMALL_CARDS if bench.small else CARDS)
    device = "cpu:500MB" if bench.small else "cuda:0"
    cards(bench, data, device, sizes, options.jobs)


def together(bench: Bench, folder: Path) -> Result | None:
    """The parts that were measured one by one, and how ours stands to the others; the first of
    the parts, None where there is none. Parts may be of several days and machines: notes say so.

    Of a part there may be further files, `placements-PART-WHATEVER.json`: they add what the others
    do not have."""
    first = None
    for part in PARTS:
        there = {row.name for row in bench.rows}
        added: set[str] = set()
        for path in sorted(folder.glob(f"placements-{part}*.json"), key=lambda each: each.stem):
            result = read(path)
            first = first or result
            new = [row for row in result.rows if row.name not in added]
            added |= {row.name for row in new}
            # Each part measures the bus anew.
            bench.rows.extend(
                replace(row, name=f"{row.name} ({part})") if row.name in there else row
                for row in new
            )
            cards = ", ".join(card.name for card in result.machine.gpus) or "no GPU"
            words = f"{part}: {cards}, {result.date}, commit {result.commit[:10]}. {result.notes}"
            bench.note(words.strip())
    for row in against_peers(bench.rows, bars=not bench.small):
        bench.add(row)
    return first


def measure(bench: Bench, options: argparse.Namespace) -> None:
    """The part that was asked for."""
    attempt = bench.keeping.attempt
    match options.part:
        case "ours":
            ours(bench, options.only)
        case "compiled":
            attempt("compiled", partial(_compiled, bench))
        case "second":
            attempt("second", partial(second, bench))
        case "peers":
            peers(bench, options.only)
        case "cards":
            on_cards(bench, options)


def main() -> int:
    """Measures and publishes; 1 if a bar was missed."""
    parser = argparse.ArgumentParser(description="Measure the rungs of the placement ladder")
    parser.add_argument("--folder", type=Path, help="of the models (default: models)")
    parser.add_argument("--part", choices=[*PARTS, "together"], required=True)
    parser.add_argument("--only", default="", help="rungs or peers with this in their name")
    parser.add_argument("--card", type=float, nargs="*", help="sizes of simulated cards in GB")
    parser.add_argument("--jobs", type=int, default=100, help="random jobs on each card")
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--no-pool", action="store_true", help="models come from the disk")
    parser.add_argument("--anew", action="store_true", help="forget what was found before")
    parser.add_argument("--results", type=Path, help="where the table goes (default: results)")
    options = parser.parse_args()
    # Whoever ends a run that takes too long gets the rows so far; a shell ignores SIGINT for what
    # it runs in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with tempfile.TemporaryDirectory() as passing:
        if options.folder is None:
            options.folder = Path(passing) if options.small else Path("models")
        results = options.results or (Path(passing) if options.small else RESULTS)
        if options.part == "together":
            bench = Bench(options)
            first = together(bench, results)
            notes = " ".join(bench.found.notes)
            return publish("placements", bench.rows, notes, folder=results, measured=first)
        return _one_part(options, results)


def _one_part(options: argparse.Namespace, results: Path) -> int:
    kept = options.folder / f"placements-{options.part}-found.json"
    if options.anew:
        kept.unlink(missing_ok=True)
    pool = "no pool" if options.no_pool else "a pool"
    asked = f"{'small' if options.small else 'large'}, {options.steps} steps, {pool}"
    bench = Bench(options, Keeping(kept, Measured, asked))
    try:
        measure(bench, options)
    except KeyboardInterrupt:  # minutes went into what is there
        print("The run was broken off.", flush=True)
    found = bench.found
    rows = [*found.rows, *rows_of_jobs(found.cards, bars=not bench.small), found.breaks()]
    return publish(f"placements-{options.part}", rows, " ".join(found.notes), folder=results)


if __name__ == "__main__":
    sys.exit(main())
