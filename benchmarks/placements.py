"""What each rung of the placement ladder costs: seconds a step and peak memory, peers beside it.

`python -m benchmarks.placements --folder FOLDER --part PART` takes the model `large` that the
switching benchmark's `switching_models` writes: SD3.5-Large's shape with random weights. The parts:

- `ours`: every rung and 25 to 100 % of the denoiser's blocks streamed, in one process;
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
import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.placements_cards import cards
from benchmarks.placements_peers import PEERS, PROMPT, SEED
from benchmarks.report import RESULTS, ROOT, Row, at_least, at_most, publish, read, shown
from workshop_gpu.catalogue.shipped import ASSETS
from workshop_gpu.conductor.rungs import ENCODERS, RESIDENT, ROLES, VAE, Placement

PARTS = ("ours", "peers", "cards")
RESIDENT_PEER = "diffusers, resident"
STEP_BAR = 1.04
MEMORY_BAR = 1.05
PEER_BAR = 1.35
EQUAL_PEAK = 1.02
CARDS = (0.0, 48.0, 24.0, 16.0, 12.0, 8.0)
SMALL_CARDS = (0.0, 0.02)
"""GB; 0: the device as it is."""
SHARES = (0.25, 0.5, 0.75, 1.0)
BUFFERS = 3


class Bench:
    """The device, the pictures' size, and the rows so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.small: bool = options.small
        self.folder: Path = ASSETS / "shapes-dit" if options.small else options.folder / "large"
        self.side = 128 if options.small else 1024
        self.steps: int = 4 if options.small else options.steps
        self.kind = "cpu" if options.small else "cuda"
        self.rows: list[Row] = []
        self.notes: list[str] = []

    @cached_property
    def torch(self) -> Any:
        """Parts that draw in other processes need it not."""
        return importlib.import_module("torch")

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print(f"{row.name}: {row.value:.4g} {row.unit}, limit {row.limit}", flush=True)

    def note(self, text: str) -> None:
        self.notes.append(text)
        print(text, flush=True)

    def reset_peak(self) -> None:
        if self.kind == "cuda":
            self.torch.cuda.reset_peak_memory_stats()

    def peak_bytes(self) -> int:
        return int(self.torch.cuda.max_memory_allocated()) if self.kind == "cuda" else 0

    def now(self) -> float:
        """The time once all that was begun is done."""
        if self.kind == "cuda":
            self.torch.cuda.synchronize()
        return time.perf_counter()


class Steps:
    """Times the steps of one call: told of each, it waits for the device at the first and last."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._first_s = self._last_s = 0.0
        self._count = 0

    def ended(self) -> None:
        self._count += 1
        if self._count == 1:
            self._first_s = self._bench.now()
        elif self._count == self._bench.steps:
            self._last_s = self._bench.now()

    @property
    def each_s(self) -> float:
        return (self._last_s - self._first_s) / (self._count - 1)


def ours(bench: Bench) -> None:
    """Every rung in turn, in place."""
    worker = _loader(bench)
    bus = importlib.import_module("workshop_gpu.worker.bus").bus_bytes_per_s(
        bench.torch.device(bench.kind)
    )
    bench.add(shown("registered memory to the device", bus / 1e9, "GB/s"))
    expected: Any = None
    resident_s, activations_bytes = 0.0, 0
    for name, placement in _rungs(worker, bench):
        started = time.perf_counter()
        model = _load(worker, bench, placement)
        bench.add(shown(f"{name}, getting there", time.perf_counter() - started, "s"))
        pixels, step_s, peak_bytes, job_s = _drawn(worker, bench, model)
        for row in _profile(worker, bench, model, name):
            bench.add(row)
        if placement == RESIDENT:
            expected, resident_s = pixels, step_s
            activations_bytes = max(0, peak_bytes - model.weights_bytes)
        limit_s = max(resident_s, model.placement.streamed_bytes / bus)
        bar_s = float("inf") if bench.small else STEP_BAR * limit_s
        bench.add(at_most(f"{name}, a step", step_s, "s", bar_s, limit_s))
        bench.add(shown(f"{name}, a job", job_s, "s"))
        promised = model.weights_bytes + max(model.transient_bytes, activations_bytes)
        bar = MEMORY_BAR * promised / 1e9
        bench.add(at_most(f"{name}, peak", peak_bytes / 1e9, "GB", bar, promised / 1e9))
        if placement.exact:
            same = float((pixels == expected).all())
            bench.add(at_most(f"{name}, pictures that differ", 1 - same, "", 0.0))


def _rungs(worker: Any, bench: Bench) -> list[tuple[str, Placement]]:
    """The rungs, with shares of the denoiser's blocks in bytes."""
    roles = {role.role: role for role in _load(worker, bench, RESIDENT).roles}
    blocks_bytes = sum(roles["denoiser"].blocks_bytes)
    found = [("resident", RESIDENT), ("encoders staged", Placement(staged=(ENCODERS,)))]
    for share in SHARES:
        placement = Placement((ENCODERS, VAE), (), int(share * blocks_bytes), BUFFERS)
        found.append((f"{share:.0%} streamed, the others staged", placement))
    found.append(("everything staged", Placement(staged=ROLES)))
    found.append(("resident, VAE tiled", Placement(tiled=True)))
    return found


def _loader(bench: Bench) -> Any:
    devices = importlib.import_module("workshop_gpu.worker.devices")
    loading = importlib.import_module("workshop_gpu.worker.loading")
    pool = importlib.import_module("workshop_gpu.worker.pool")
    turns = importlib.import_module("workshop_gpu.worker.turns")
    device = devices.open_device(bench.kind, 10**12)
    worker = loading.Loader(device, turns.Turns(), pool.NoPool("the benchmark has none"))
    worker.prepare()
    return worker


def _load(worker: Any, bench: Bench, placement: Placement) -> Any:
    protocol = importlib.import_module("workshop_gpu.worker.protocol")
    source = protocol.ModelSource("large", "diffusers", str(bench.folder))
    model = worker.load(source, lambda *_: None, placement)
    worker.let_linger_go()
    if bench.kind == "cuda":
        bench.torch.cuda.empty_cache()
    return model


def _drawn(worker: Any, bench: Bench, model: Any) -> tuple[Any, float, int, float]:
    """A picture's pixels, seconds a step, peak bytes and seconds of the second of two jobs."""
    course = importlib.import_module("workshop_gpu.worker.course").Course
    draw = importlib.import_module("workshop_gpu.worker.drawing").draw
    wanted = _wanted(bench)
    for _ in range(2):
        steps = Steps(bench)
        bench.reset_peak()
        started = bench.now()
        call = course(model, worker.stager)
        (picture,) = draw(model, [wanted], lambda _, steps=steps: steps.ended(), call)
        job_s = bench.now() - started
    return picture.pixels, steps.each_s, bench.peak_bytes(), job_s


def _profile(worker: Any, bench: Bench, model: Any, name: str) -> list[Row]:
    """The medians of a step's copying, waiting and computing; measuring them takes a job more."""
    course = importlib.import_module("workshop_gpu.worker.course").Course
    draw = importlib.import_module("workshop_gpu.worker.drawing").draw
    call = course(model, worker.stager, profile=True)
    draw(model, [_wanted(bench)], lambda _: None, call)
    steps = call.profiles()[1:]
    return [
        shown(f"{name}, {what} in a step", statistics.median(times), "s")
        for what, times in (
            ("copying", [step.copy_s for step in steps]),
            ("waiting", [step.wait_s for step in steps]),
            ("computing", [step.compute_s for step in steps]),
        )
        if times
    ]


def _wanted(bench: Bench) -> Any:
    protocol = importlib.import_module("workshop_gpu.worker.protocol")
    return protocol.GenerateParams(
        prompt=PROMPT, seed=SEED, steps=bench.steps, guidance=3.0,
        width=bench.side, height=bench.side,
    )  # fmt: skip


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
    for row in cards(bench.folder, device, sizes, options.jobs, bench.side, bench.steps):
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
    value = {row.name: row.value for row in bench.rows}
    ours_at = {
        value[f"{name}, peak"]: value[f"{name}, a step"]
        for name in (row.name.removesuffix(", peak") for row in bench.rows if ", peak" in row.name)
        if name not in PEERS
    }
    for name in PEERS:
        step_s, peak = value.get(f"{name}, a step"), value.get(f"{name}, peak")
        if step_s is None or peak is None or name == RESIDENT_PEER:
            continue
        fitting = [each_s for at, each_s in ours_at.items() if at <= peak * EQUAL_PEAK]
        if fitting:
            bar = 0.0 if bench.small else PEER_BAR
            bench.add(
                at_least(f"{name}, times ours at no more memory", step_s / min(fitting), "", bar)
            )


def main() -> int:
    """Measures and publishes; 1 if a bar was missed."""
    parser = argparse.ArgumentParser(description="Measure the rungs of the placement ladder")
    parser.add_argument("--folder", type=Path, default=Path("models"))
    parser.add_argument("--part", choices=[*PARTS, "together"], required=True)
    parser.add_argument("--only", default="", help="of the peers, those with this in their name")
    parser.add_argument("--card", type=float, nargs="*", help="sizes of simulated cards in GB")
    parser.add_argument("--jobs", type=int, default=100, help="random jobs on each card")
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--results", type=Path, help="where the table goes (default: results)")
    options = parser.parse_args()
    bench = Bench(options)
    with tempfile.TemporaryDirectory() as passing:
        folder = options.results or (Path(passing) if options.small else RESULTS)
        match options.part:
            case "ours":
                ours(bench)
            case "peers":
                peers(bench, options.only)
            case "cards":
                on_cards(bench, options)
            case "together":
                together(bench, folder)
        name = "placements" + ("" if options.part == "together" else f"-{options.part}")
        return publish(name, bench.rows, " ".join(bench.notes), folder=folder)


if __name__ == "__main__":
    sys.exit(main())
