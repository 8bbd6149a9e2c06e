"""The part `compiled` of the placements' benchmark: steps with compiled blocks, and what they cost.

The blocks are compiled once, from nothing, into a folder that is deleted afterwards. A second
process (`python -m benchmarks.placements_compiled`) then begins with what is kept there, as a
server does after its next start; it prints a JSON object: `ready_s`, `step_s` and the picture's
`digest`.
"""

import argparse
import importlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.placements_bench import BUFFERS, Bench, Drawn, Limits, drawn, load, loader, wanted
from benchmarks.report import ROOT, at_most, shown
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, RESIDENT, ROLES, VAE, Placement
from workshop_gpu.worker.compilers import EAGER, INDUCTOR, compilers_folders, why_not

MOST_STEPS = 12
"""Of a picture: only the seconds of one step are asked for."""
LONGEST_S = 600.0
HALF = "50% streamed, the others staged"
HALF_LOW = "50% streamed, encoders streamed too"
STAGED = "everything staged"
COMPILED, PLAIN = ", compiled", ", not compiled"


class NotCompiled(Exception):
    """The blocks cannot be compiled here."""


@dataclass(frozen=True)
class Compiler:
    """A worker's compiled blocks, kept in a folder."""

    blocks: Any
    told: "queue.SimpleQueue[Any]"

    @classmethod
    def opened(cls, bench: Bench, kept: str) -> "Compiler":
        """Raises NotCompiled."""
        backend = EAGER if bench.small else INDUCTOR
        if problem := "" if bench.small else why_not():
            raise NotCompiled(problem)
        stores = importlib.import_module("workshop_gpu.worker.twin_store")
        compiling = importlib.import_module("workshop_gpu.worker.compiling")
        turns = importlib.import_module("workshop_gpu.worker.turns")
        told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        store = stores.TwinStore(Path(kept), bench.kind, backend)
        blocks = compiling.Compiling(store, turns.Turns(), bench.kind, told.put)
        blocks.start()
        return cls(blocks, told)

    def look_at(self, model: Any) -> Any:
        """The model has come."""
        self.blocks.look_at(model)
        return model

    def compile(self, model: Any) -> float:
        """Make what was noted while the model drew; returns the seconds. Raises NotCompiled."""
        return self._until_ready(partial(self.blocks.compile, model.source.model))

    def recall(self, model: Any) -> float:
        """Read what is kept for the model; returns the seconds. Raises NotCompiled."""
        return self._until_ready(partial(self.blocks.recall, model.source.model))

    def _until_ready(self, order: Any) -> float:
        started = time.perf_counter()
        order()
        try:
            answer = self.told.get(timeout=LONGEST_S)
        except queue.Empty:
            raise NotCompiled(f"the blocks were not ready after {LONGEST_S:.0f} s") from None
        if not answer.ready:
            raise NotCompiled(answer.problem or "there is nothing to compile")
        return time.perf_counter() - started

    def drawing(self, bench: Bench, model: Any, *, compiled: bool) -> AbstractContextManager[None]:
        """The context of one job. Raises NotCompiled where it would not be drawn so."""
        request = [wanted(bench)]
        if compiled and not self.blocks.chooses(model, request):
            raise NotCompiled("the blocks do not go with the picture's size")
        found: AbstractContextManager[None] = self.blocks.drawing(model, request, compiled)
        return found


def compiled(bench: Bench) -> None:
    """Resident and half streamed, without and with compiled blocks, and staged with them. Raises
    NotCompiled."""
    bench.steps = min(bench.steps, MOST_STEPS)
    with tempfile.TemporaryDirectory() as kept:
        os.environ.update(compilers_folders(kept))
        expected, streamed_bytes = _here(bench, kept)
        _after_a_start(bench, kept, expected, streamed_bytes)


def _here(bench: Bench, kept: str) -> tuple[str, int]:
    """The rows of this process; returns the compiled picture's digest, and what was streamed."""
    worker = loader(bench)
    compiler = Compiler.opened(bench, kept)
    model = compiler.look_at(load(worker, bench, RESIDENT))
    draw = partial(_drawn, worker, bench, compiler)

    plain = draw(model, compiled=False)
    without = Limits.of(bench, model, plain)
    without.judge(bench, f"resident{PLAIN}", model, plain)
    bench.add(shown("the compiler, the first time", compiler.compile(model), "s"))
    fast = draw(model, compiled=True)
    with_blocks = without.with_resident(model, fast)
    with_blocks.judge(bench, f"resident{COMPILED}", model, fast)
    bench.add(shown("resident, times faster compiled", plain.step_s / fast.step_s, ""))

    denoiser = next(each for each in model.roles if each.role == DENOISER)
    half_bytes = sum(denoiser.blocks_bytes) // 2
    model = compiler.look_at(load(worker, bench, _half(half_bytes)))
    without.judge(bench, f"{HALF}{PLAIN}", model, draw(model, compiled=False))
    with_blocks.judge(bench, f"{HALF}{COMPILED}", model, draw(model, compiled=True))
    low = Placement((VAE,), (), half_bytes, BUFFERS, streamed=(ENCODERS,))
    for name, placement in ((HALF_LOW, low), (STAGED, Placement(staged=ROLES))):
        model = compiler.look_at(load(worker, bench, placement))
        with_blocks.judge(bench, f"{name}{COMPILED}", model, draw(model, compiled=True))
    model = compiler.look_at(load(worker, bench, RESIDENT))
    again = draw(model, compiled=True)
    bench.add(shown(f"resident{COMPILED}, once more, a step", again.step_s, "s"))
    worker.evict("large")
    worker.close("large")
    return fast.picture, half_bytes


def _half(streamed_bytes: int) -> Placement:
    return Placement((ENCODERS, VAE), (), streamed_bytes, BUFFERS)


def _drawn(worker: Any, bench: Bench, compiler: Compiler, model: Any, *, compiled: bool) -> Drawn:
    return drawn(worker, bench, model, partial(compiler.drawing, bench, model, compiled=compiled))


def _after_a_start(bench: Bench, kept: str, expected: str, streamed_bytes: int) -> None:
    command = [
        *(sys.executable, "-m", "benchmarks.placements_compiled", str(bench.folder), kept),
        *("--steps", str(bench.steps), "--streamed", str(streamed_bytes)),
        *(["--small"] if bench.small else []),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotCompiled(f"the second process ended: {done.stderr[-500:]}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    bench.add(shown("the compiler, from what is kept", found["ready_s"], "s"))
    bench.add(shown(f"{HALF}{COMPILED}, after a start, a step", found["step_s"], "s"))
    differs = float(found["digest"] != expected)
    bench.add(at_most("compiled, after a start, pictures that differ", differs, "", 0.0))


def main() -> None:
    """The second process."""
    parser = argparse.ArgumentParser(description="Draw half streamed with blocks that are kept")
    parser.add_argument("folder", type=Path)
    parser.add_argument("kept")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--streamed", type=int, required=True)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    os.environ.update(compilers_folders(options.kept))
    bench = Bench(options)
    bench.folder, bench.steps = options.folder, options.steps
    worker = loader(bench)
    compiler = Compiler.opened(bench, options.kept)
    model = compiler.look_at(load(worker, bench, _half(options.streamed)))
    ready_s = compiler.recall(model)
    found = _drawn(worker, bench, compiler, model, compiled=True)
    print(json.dumps({"ready_s": ready_s, "step_s": found.step_s, "digest": found.picture}))


if __name__ == "__main__":
    main()
