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

Each row is printed as it comes. `--small` tries it all on the CPU with a shipped model; its numbers
say nothing.

Limits: a step cannot be faster than the resident one, nor than the bus brings what is streamed. A
plan promises what stays on the device and, above it, the larger of what comes for a while and of
the activations, which are measured on the resident rung.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.placements_against import against_peers
from benchmarks.placements_bench import BUFFERS, Bench, Limits, drawn, load, loader, profile
from benchmarks.placements_cards import cards
from benchmarks.placements_compiled import NotCompiled, compiled
from benchmarks.placements_peers import PEERS
from benchmarks.placements_second import second
from benchmarks.report import RESULTS, ROOT, publish, read, shown
from workshop_gpu.conductor.rungs import ENCODERS, RESIDENT, ROLES, VAE, Placement

PARTS = ("ours", "compiled", "second", "peers", "cards")
CARDS = (0.0, 48.0, 24.0, 16.0, 12.0, 8.0)
SMALL_CARDS = (0.0, 0.02)
"""GB; 0: the device as it is."""
SHARES = (0.25, 0.5, 0.75, 1.0)


def ours(bench: Bench, only: str) -> None:
    """Every rung in turn, in place."""
    worker = loader(bench)
    limits: Limits | None = None
    for name, placement in _rungs(worker, bench):
        if limits and only not in name:
            continue
        started = time.perf_counter()
        model = load(worker, bench, placement)
        bench.add(shown(f"{name}, getting there", time.perf_counter() - started, "s"))
        found = drawn(worker, bench, model)
        for row in profile(worker, bench, model, name):
            bench.add(row)
        limits = limits or Limits.of(bench, model, found)
        limits.judge(bench, name, model, found)


def _rungs(worker: Any, bench: Bench) -> list[tuple[str, Placement]]:
    """The rungs, with shares of the denoiser's blocks in bytes."""
    roles = {role.role: role for role in load(worker, bench, RESIDENT).roles}
    blocks_bytes = sum(roles["denoiser"].blocks_bytes)
    found = [("resident", RESIDENT), ("encoders staged", Placement(staged=(ENCODERS,)))]
    for share in SHARES:
        placement = Placement((ENCODERS, VAE), (), int(share * blocks_bytes), BUFFERS)
        found.append((f"{share:.0%} streamed, the others staged", placement))
    low = Placement((VAE,), (), int(blocks_bytes), BUFFERS, streamed=(ENCODERS,))
    found.append(("100% streamed, encoders streamed too", low))
    found.append(("everything staged", Placement(staged=ROLES)))
    found.append(("resident, VAE tiled", Placement(tiled=True)))
    return found


def _compiled(bench: Bench) -> None:
    try:
        compiled(bench)
    except NotCompiled as problem:
        bench.note(f"Compiled blocks were not measured: {problem}.")


def peers(bench: Bench, only: str) -> None:
    """What others offer, each in a process of its own."""
    for name in PEERS:
        if only not in name:
            continue
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
            continue
        bench.add(shown(f"{name}, a step", found["step_s"], "s"))
        bench.add(shown(f"{name}, a job", found["job_s"], "s"))
        bench.add(shown(f"{name}, peak", found["peak_bytes"] / 1e9, "GB"))


def on_cards(bench: Bench, options: argparse.Namespace) -> None:
    """The planner's choices on cards of several sizes."""
    sizes = options.card or (SMALL_CARDS if bench.small else CARDS)
    device = "cpu:500MB" if bench.small else "cuda:0"
    models = {"large": bench.folder, "turbo": bench.sibling}
    for row in cards(models, device, sizes, options.jobs, bench.side, bench.steps):
        bench.add(row)


def together(bench: Bench, folder: Path) -> None:
    """The parts that were measured one by one, and how ours stands to the others."""
    for part in PARTS:
        path = folder / f"placements-{part}.json"
        if path.is_file():
            result = read(path)
            bench.rows += result.rows
            bench.note(
                f"{part}: {result.date}, commit {result.commit[:10]}. {result.notes}".strip()
            )
    for row in against_peers(bench.rows, bars=not bench.small):
        bench.add(row)


def measure(bench: Bench, options: argparse.Namespace, folder: Path) -> None:
    """The part that was asked for."""
    match options.part:
        case "ours":
            ours(bench, options.only)
        case "compiled":
            _compiled(bench)
        case "second":
            second(bench)
        case "peers":
            peers(bench, options.only)
        case "cards":
            on_cards(bench, options)
        case "together":
            together(bench, folder)


def main() -> int:
    """Measures and publishes; 1 if a bar was missed."""
    parser = argparse.ArgumentParser(description="Measure the rungs of the placement ladder")
    parser.add_argument("--folder", type=Path, default=Path("models"))
    parser.add_argument("--part", choices=[*PARTS, "together"], required=True)
    parser.add_argument("--only", default="", help="rungs or peers with this in their name")
    parser.add_argument("--card", type=float, nargs="*", help="sizes of simulated cards in GB")
    parser.add_argument("--jobs", type=int, default=100, help="random jobs on each card")
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--results", type=Path, help="where the table goes (default: results)")
    options = parser.parse_args()
    bench = Bench(options)
    with tempfile.TemporaryDirectory() as passing:
        folder = options.results or (Path(passing) if options.small else RESULTS)
        try:
            measure(bench, options, folder)
        except KeyboardInterrupt:  # minutes went into what is there
            bench.note("The run was broken off.")
        name = "placements" + ("" if options.part == "together" else f"-{options.part}")
        return publish(name, bench.rows, " ".join(bench.notes), folder=folder)


if __name__ == "__main__":
    sys.exit(main())
