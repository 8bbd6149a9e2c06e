"""What the parts of the placements' benchmark share: the device, a model on it, a timed picture."""

import argparse
import hashlib
import importlib
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import keeping
from benchmarks.keeping import Keeping
from benchmarks.placements_peers import PROMPT, SEED
from benchmarks.report import Row, at_most, shown
from workshop_gpu.catalogue.shipped import ASSETS
from workshop_gpu.conductor.rungs import Placement
from workshop_gpu.conductor.working_memory import Activations

STEP_BAR = 1.04
MEMORY_BAR = 1.05
BUFFERS = 3
_WORKSPACES_GB = 0.2
"""What CUDA's libraries keep for themselves once they have computed; a model's parts are larger."""


class Bench:
    """The device, the pictures' size, and what was found so far."""

    def __init__(
        self, options: argparse.Namespace, kept: "Keeping[Measured] | None" = None
    ) -> None:
        self.keeping = kept or Keeping(None, Measured)
        self.small: bool = options.small
        self.folder: Path = ASSETS / "shapes-dit" if options.small else options.folder / "large"
        sibling = ASSETS / "shapes-dit-turbo" if options.small else options.folder / "turbo"
        self.sibling: Path = sibling
        self.side = 128 if options.small else 1024
        self.steps: int = 4 if options.small else options.steps
        self.kind = "cpu" if options.small else "cuda"
        self.pooled = not getattr(options, "no_pool", False)

    @property
    def found(self) -> "Measured":
        return self.keeping.found

    @property
    def rows(self) -> list[Row]:
        return self.found.rows

    @cached_property
    def torch(self) -> Any:
        """Parts that draw in other processes need it not."""
        return importlib.import_module("torch")

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print(f"{row.name}: {row.value:.4g} {row.unit}, limit {row.limit}", flush=True)

    def note(self, text: str) -> None:
        self.found.notes.append(text)
        print(text, flush=True)

    def reset_peak(self) -> None:
        if self.kind == "cuda":
            self.torch.cuda.reset_peak_memory_stats()

    def peak_bytes(self) -> int:
        return int(self.torch.cuda.max_memory_allocated()) if self.kind == "cuda" else 0

    def bytes_now(self) -> int:
        return int(self.torch.cuda.memory_allocated()) if self.kind == "cuda" else 0

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


def loader(bench: Bench, neighbours: tuple[str, ...] = ()) -> Any:
    """What loads models, as in a worker: the first time from the disk, then from a pool."""
    beside = importlib.import_module("workshop_gpu.worker.neighbours")
    devices = importlib.import_module("workshop_gpu.worker.devices")
    loading = importlib.import_module("workshop_gpu.worker.loading")
    pool = importlib.import_module("workshop_gpu.worker.pool")
    turns = importlib.import_module("workshop_gpu.worker.turns")
    here = importlib.import_module("benchmarks.pool_here")
    device = devices.open_device(bench.kind, 10**12)
    there = beside.Neighbours(neighbours, on_card=bench.kind == "cuda")
    client = here.pool_here() if bench.pooled else pool.NoPool("the benchmark was told so")
    worker = loading.Loader(device, turns.Turns(), client, None, there)
    worker.prepare()
    return worker


def load(worker: Any, bench: Bench, placement: Placement) -> Any:
    """The model in this placement; nothing of another one lingers, and the pool has all of it."""
    protocol = importlib.import_module("workshop_gpu.worker.protocol")
    source = protocol.ModelSource("large", "diffusers", str(bench.folder))
    model = worker.load(source, lambda *_: None, placement)
    if worker.fills_pool:  # it was in the page cache, and is on the card only
        started = time.perf_counter()
        worker.fill_pool(lambda: False)
        print(f"(the pool was filled in {time.perf_counter() - started:.1f} s)", flush=True)
    if bench.pooled and (problem := worker.no_pool_because):
        bench.note(f"Not all weights are in the pool: {problem}.")
    worker.let_linger_go()
    if bench.kind == "cuda":
        bench.torch.cuda.empty_cache()
    return model


def placed(worker: Any, bench: Bench, name: str, placement: Placement) -> Any:
    """As `load`, with rows: what it took, and on a card whether anything else is still there."""
    started = time.perf_counter()
    model = load(worker, bench, placement)
    bench.add(shown(f"{name}, getting there", time.perf_counter() - started, "s"))
    if bench.kind == "cuda":
        left_gb = max(0, bench.bytes_now() - model.weights_bytes) / 1e9
        bench.add(at_most(f"{name}, left over from before", left_gb, "GB", _WORKSPACES_GB))
    return model


class Drawn(msgspec.Struct, frozen=True):
    """A picture, by the digest of its pixels, and what it took."""

    picture: str
    step_s: float
    peak_bytes: int
    job_s: float


def drawn(
    worker: Any,
    bench: Bench,
    model: Any,
    during: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Drawn:
    """The second of two jobs; each is drawn within a context of its own."""
    course = importlib.import_module("workshop_gpu.worker.course").Course
    draw = importlib.import_module("workshop_gpu.worker.drawing").draw
    for _ in range(2):
        steps = Steps(bench)
        bench.reset_peak()
        started = bench.now()
        call = course(model, worker.stager)
        with during():
            (picture,) = draw(model, [wanted(bench)], lambda _, steps=steps: steps.ended(), call)
        job_s = bench.now() - started
    digest = hashlib.sha256(picture.pixels.tobytes()).hexdigest()
    return Drawn(digest, steps.each_s, bench.peak_bytes(), job_s)


class Limits(msgspec.Struct, frozen=True):
    """What the resident model's picture says of those in other placements."""

    resident: Drawn
    activations_bytes: int
    bus_bytes_per_s: float

    @classmethod
    def of(cls, bench: Bench, model: Any, resident: Drawn) -> "Limits":
        """The bus is measured here."""
        if bench.kind == "cuda":
            bus = importlib.import_module("benchmarks.switching_limits").bus_speed()
        else:
            device = bench.torch.device(bench.kind)
            bus = importlib.import_module("workshop_gpu.worker.bus").bus_bytes_per_s(device)
        bench.add(shown("pinned memory to the device", bus / 1e9, "GB/s"))
        return cls(resident, 0, bus).with_resident(model, resident)

    def with_resident(self, model: Any, resident: Drawn) -> "Limits":
        """The same for pictures that are drawn in another way."""
        return msgspec.structs.replace(
            self,
            resident=resident,
            activations_bytes=max(0, resident.peak_bytes - model.weights_bytes),
        )

    def judge(self, bench: Bench, name: str, model: Any, found: Drawn) -> None:
        """The rows of one placement."""
        limit_s = max(self.resident.step_s, model.placement.streamed_bytes / self.bus_bytes_per_s)
        bar_s = None if bench.small else STEP_BAR * limit_s
        bench.add(at_most(f"{name}, a step", found.step_s, "s", bar_s, limit_s))
        bench.add(shown(f"{name}, a job", found.job_s, "s"))
        activations = Activations(self.activations_bytes, bench.side**2)
        working_bytes = activations.decode(model.placement)  # tiles leave what the denoiser needs
        promised = model.weights_bytes + max(model.transient_bytes, working_bytes)
        bar = MEMORY_BAR * promised / 1e9
        bench.add(at_most(f"{name}, peak", found.peak_bytes / 1e9, "GB", bar, promised / 1e9))
        if model.placement.exact:
            differs = float(found.picture != self.resident.picture)
            bench.add(at_most(f"{name}, pictures that differ", differs, "", 0.0))


class OnCard(msgspec.Struct):
    """What one simulated card has done: whether it refused the model, whether the expected seconds
    were looked at, and how its random jobs went: how many there were, failed, were refused at
    once, ran out of memory and went on lower, and waited too long for another program's memory."""

    refused: bool = False
    compared: bool = False
    jobs: int = 0
    failed: int = 0
    refusals: int = 0
    lower: int = 0
    waited: int = 0
    seconds_s: float = 0.0


class Measured(keeping.Found):
    """What was found of one part."""

    limits: Limits | None = None
    cards: dict[str, OnCard] = msgspec.field(default_factory=dict)


def profile(worker: Any, bench: Bench, model: Any, name: str) -> list[Row]:
    """The medians of a step's copying, waiting and computing; measuring them takes a job more."""
    course = importlib.import_module("workshop_gpu.worker.course").Course
    draw = importlib.import_module("workshop_gpu.worker.drawing").draw
    call = course(model, worker.stager, profile=True)
    draw(model, [wanted(bench)], lambda _: None, call)
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


def wanted(bench: Bench) -> Any:
    """What is drawn."""
    protocol = importlib.import_module("workshop_gpu.worker.protocol")
    return protocol.GenerateParams(
        prompt=PROMPT, seed=SEED, steps=bench.steps, guidance=3.0,
        width=bench.side, height=bench.side,
    )  # fmt: skip
