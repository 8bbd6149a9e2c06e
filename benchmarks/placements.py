"""What each rung of the placement ladder costs: seconds a step and peak memory, peers beside it.

`python -m benchmarks.placements --folder FOLDER` takes the model `large` that the switching
benchmark's `switching_models` writes: SD3.5-Large's shape with random weights. `--part ours` or
`--part peers` measures one half. Each row is printed as it comes. `--small` tries it all on the
CPU with a shipped model; its numbers say nothing.

Limits: a step cannot be faster than the resident one, nor than the bus brings what is streamed. A
plan promises what stays on the device and, above it, the larger of what comes for a while and of
the activations, which are measured on the resident rung.
"""

import argparse
import importlib
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.placements_peers import PEERS
from benchmarks.report import RESULTS, Row, at_most, publish, shown
from workshop_gpu.catalogue.shipped import ASSETS
from workshop_gpu.conductor.rungs import ENCODERS, RESIDENT, ROLES, VAE, Placement

PROMPT = "a red circle on a blue background"
STEP_BAR = 1.04
MEMORY_BAR = 1.05
SHARES = (0.25, 0.5, 0.75, 1.0)
BUFFERS = 3


class Bench:
    """The device, the pictures' size, and the rows so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.small: bool = options.small
        self.folder: Path = ASSETS / "shapes-dit" if options.small else options.folder / "large"
        self.side = 128 if options.small else 1024
        self.steps: int = 4 if options.small else options.steps
        self.kind = "cpu" if options.small else "cuda"
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print(f"{row.name}: {row.value:.4g} {row.unit}, limit {row.limit}", flush=True)

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
    protocol = importlib.import_module("workshop_gpu.worker.protocol")
    wanted = protocol.GenerateParams(
        prompt=PROMPT, seed=11, steps=bench.steps, guidance=3.0,
        width=bench.side, height=bench.side,
    )  # fmt: skip
    for _ in range(2):
        steps = Steps(bench)
        bench.reset_peak()
        started = bench.now()
        call = course(model, worker.stager)
        (picture,) = draw(model, [wanted], lambda _, steps=steps: steps.ended(), call)
        job_s = bench.now() - started
    return picture.pixels, steps.each_s, bench.peak_bytes(), job_s


def peers(bench: Bench) -> None:
    """What diffusers itself offers, each in a pipeline of its own."""
    for name, place in PEERS.items():
        try:
            step_s, peak_bytes, job_s = _peer(bench, place)
        except Exception as problem:  # each has failures of its own; the others go on
            print(f"{name} was not measured: {type(problem).__name__}: {problem}", flush=True)
            continue
        bench.add(shown(f"{name}, a step", step_s, "s"))
        bench.add(shown(f"{name}, a job", job_s, "s"))
        bench.add(shown(f"{name}, peak", peak_bytes / 1e9, "GB"))


def _peer(bench: Bench, place: Callable[[Any, str], None]) -> tuple[float, int, float]:
    diffusers: Any = importlib.import_module("diffusers")
    dtype = bench.torch.float32 if bench.small else bench.torch.bfloat16
    pipeline = diffusers.DiffusionPipeline.from_pretrained(
        str(bench.folder), torch_dtype=dtype, local_files_only=True
    )
    pipeline.set_progress_bar_config(disable=True)
    place(pipeline, bench.kind)

    def after_step(_: Any, index: int, time_step: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        steps.ended()
        return {}

    for _ in range(2):
        steps = Steps(bench)
        bench.reset_peak()
        started = bench.now()
        pipeline(
            PROMPT, num_inference_steps=bench.steps, guidance_scale=3.0,
            width=bench.side, height=bench.side,
            generator=bench.torch.Generator("cpu").manual_seed(11),
            callback_on_step_end=after_step,
        )  # fmt: skip
        job_s = bench.now() - started
    return steps.each_s, bench.peak_bytes(), job_s


def main() -> int:
    """Measures and publishes; 1 if a bar was missed."""
    parser = argparse.ArgumentParser(description="Measure the rungs of the placement ladder")
    parser.add_argument("--folder", type=Path, default=Path("models"))
    parser.add_argument("--part", choices=["ours", "peers", "all"], default="all")
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--results", type=Path, help="where the table goes (default: results)")
    options = parser.parse_args()
    bench = Bench(options)
    if options.part != "peers":
        ours(bench)
    if options.part != "ours":
        peers(bench)
    name = "placements" if options.part == "all" else f"placements-{options.part}"
    with tempfile.TemporaryDirectory() as passing:
        usual = Path(passing) if options.small else RESULTS
        return publish(name, bench.rows, folder=options.results or usual)


if __name__ == "__main__":
    sys.exit(main())
