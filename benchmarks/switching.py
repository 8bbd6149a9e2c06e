"""How fast models come and go, against what the machine allows and what other tools take.

`python -m benchmarks.switching [--folder DIR] [--device cuda:0]` measures, side by side in one run:

- the machine's limits: the disk, the bus, CUDA's registering of memory;
- other ways to load (`from_pretrained`, `device_map`, runai-model-streamer, fastsafetensors), each
  in a process of its own, from the disk and from the page cache;
- ours, through the whole product but for the Jupyter server: from the disk, from the page cache,
  from the pool, with and without shared components, while another model draws, after the worker
  was killed, on a second GPU where there is one;
- whether the pictures stay the same bit for bit through all of it.

The models have the exact shape of SD3.5-Large (27.6 GB) with random weights; `--folder` keeps them
for the next run (57 GB). `--small` takes the shipped models and the CPU instead: it shows that the
benchmark works, and nothing else.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from benchmarks.report import ROOT, Row, at_most, publish, shown
from benchmarks.room import Room, open_room
from benchmarks.switching_limits import disk_speed, leave_page_cache, weight_files
from benchmarks.switching_models import DENOISER, MODELS, NEEDED_BYTES
from benchmarks.switching_peers import PEERS, PROMPT, SEED, digest
from workshop_gpu.catalogue.shipped import ASSETS
from workshop_gpu.host.gpu_readings import gpus
from workshop_gpu.worker.protocol import GenerateParams

FEW_STEPS = 4
_CHILD_S = 300.0


@dataclass
class Run:
    """What a run works with and what it has found."""

    folders: dict[str, Path]
    devices: list[str]
    peers: list[str]
    small: bool
    work: Path
    disk: float = 0.0
    bus: float = 0.0
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pictures: dict[int, set[str]] = field(default_factory=dict)
    """Digests of all pictures of so many steps; all of one number should be the same."""
    broken: int = 0

    @property
    def kind(self) -> str:
        return "cpu" if self.devices[0].startswith("cpu") else "cuda"

    @property
    def steps(self) -> int:
        """Of a picture that is drawn while models come and go."""
        return 8 if self.small else 28

    def bytes(self, model: str, part: str = "*") -> int:
        files = {path.resolve() for path in self.folders[model].glob(f"{part}/*.safetensors")}
        return sum(path.stat().st_size for path in files)

    def params(self, steps: int, seed: int = SEED) -> GenerateParams:
        side = 128 if self.small else 1024
        return GenerateParams(
            prompt=PROMPT, seed=seed, steps=steps, guidance=3.0, width=side, height=side
        )

    def attempt(self, name: str, action: Callable[[], None]) -> None:
        """What breaks off takes none of the rest with it: minutes went into that."""
        try:
            action()
        except Exception as problem:
            traceback.print_exc()
            self.broken += 1
            self.notes.append(f"{name} broke off: {type(problem).__name__}: {problem}")

    def pairs(self, other: str) -> list[tuple[str, str]]:
        """Who leaves and who comes: from large to the other and back, a few times."""
        return [("large", other), (other, "large")] * (1 if self.small else 5)

    def saw(self, steps: int, picture: str) -> None:
        self.pictures.setdefault(steps, set()).add(picture)

    def add(self, name: str, value_s: float, factor: float = 0, limit_s: float = 0) -> None:
        """A row in seconds. The bar is `factor` times the limit, or `factor` itself without one."""
        limit = limit_s or None
        bar = factor * (limit_s or 1.0)
        if factor and not self.small:
            self.rows.append(at_most(name, value_s, "s", bar, limit))
        else:
            self.rows.append(shown(name, value_s, "s", limit))

    def add_gb(self, name: str, size_bytes: float) -> None:
        self.rows.append(shown(name, size_bytes / 1e9, "GB"))


def main() -> int:
    """Measures, prints, writes; the exit code is 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, help="where the models are kept")
    parser.add_argument("--device", action="append", help="cuda:0 (default); again for a second")
    parser.add_argument("--small", action="store_true", help="shipped models, on the CPU")
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="default: all", default=[*PEERS])
    parser.add_argument("--parts", nargs="*", choices=PARTS, help="likewise", default=[*PARTS])
    parser.add_argument("--out", type=Path, help="folder of the result, default benchmarks/results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="workshop-gpu-") as work:
        run = _prepare(options, Path(work))
        _limits(run)
        for peer in run.peers:
            run.attempt(peer, partial(_peer, run, peer))
        for part in options.parts:
            run.attempt(part, partial(_in_a_room, PARTS[part], run))
    run.rows.append(_same_pictures(run))
    run.rows.append(at_most("parts of this benchmark that broke off", run.broken, "", 0))
    name = "switching-small" if options.small else "switching"
    where = {"folder": options.out} if options.out else {}
    return publish(name, run.rows, "\n".join(run.notes), **where)


def _prepare(options: argparse.Namespace, work: Path) -> Run:
    if options.small:
        names = dict(zip(MODELS, ("shapes-dit", "shapes-dit-turbo", "shapes"), strict=True))
        folders = {name: ASSETS / shipped for name, shipped in names.items()}
        return Run(folders, options.device or ["cpu:2GB"], options.peers, True, work)
    folder = options.folder or work / "models"
    if not (folder / MODELS[-1]).is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder).free < NEEDED_BYTES:
            sys.exit(f"{folder} has less than the {NEEDED_BYTES / 1e9:.0f} GB that the models take")
        print("writing the models took", _child("switching_models", str(folder)), "s", flush=True)
    folders = {name: folder / name for name in MODELS}
    return Run(folders, options.device or ["cuda:0"], options.peers, False, work)


def _child(module: str, *arguments: str) -> str:
    """The last line that a module of ours prints in a process of its own."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=_CHILD_S
    )
    return done.stdout.strip().splitlines()[-1]


def _limits(run: Run) -> None:
    found = json.loads(_child("switching_limits", str(run.folders["large"]), run.kind))
    run.disk, run.bus = found["disk"], found["bus"]
    run.rows.append(shown("the disk", run.disk / 1e9, "GB/s"))
    if run.bus:
        run.rows.append(shown("pinned memory to the GPU", run.bus / 1e9, "GB/s"))
        run.rows.append(
            shown("CUDA's registering of filled memory", found["register"] / 1e9, "GB/s")
        )


def _peer(run: Run, peer: str) -> None:
    where = str(run.folders["large"])
    size, steps = f"--size={run.params(1).width}", f"--steps={FEW_STEPS}"
    result = json.loads(_child("switching_peers", peer, where, run.kind, size, steps))
    if "missing" in result:
        run.notes.append(f"{peer} was not measured: {result['missing']}.")
        return
    run.add(f"{peer}, from the disk", result["cold_s"])
    run.add(f"{peer}, from the page cache", result["warm_s"])
    if "picture" in result:
        run.saw(FEW_STEPS, result["picture"])


async def _shared(run: Run) -> None:
    """Large and its sibling, which share all but the denoiser."""
    models = {name: run.folders[name] for name in ("large", "turbo")}
    host_before = _host_bytes()
    folder = run.work / "shared"
    async with open_room(run.devices[:1], models, folder, spare_worker=True) as room:
        leave_page_cache(weight_files(run.folders["large"]))
        cold_s = await room.load("large")
        run.add("large from the disk", cold_s, 1.08, run.bytes("large") / run.disk)
        await _compare(run, room)
        run.add("turbo, its encoders and VAE already there", await room.load("turbo"))
        run.add_gb("host memory, large and turbo", _host_bytes() - host_before)
        run.add_gb("GPU memory, large and turbo", _device_bytes(run, room))
        moved_s = run.bytes("turbo", DENOISER) / run.bus if run.bus else 0.0
        after = [await _brought_then_sent(room, *pair) for pair in run.pairs("turbo")]
        run.add("large ↔ turbo, both fit", statistics.median(after), 1.2, moved_s)
        before = [await room.switch(*pair) for pair in run.pairs("turbo")]
        run.add("large ↔ turbo, one leaves first", statistics.median(before), 0, moved_s)
        await room.load("large")
        await _compare(run, room)
        await _while_drawing(run, room)
        await _killed(run, room)


async def _unshared(run: Run) -> None:
    """Large and a model that shares nothing with it, in a fresh pool."""
    models = {name: run.folders[name] for name in ("large", "other")}
    for model in models:
        disk_speed(weight_files(run.folders[model]))  # a reading leaves them there
    host_before = _host_bytes()
    async with open_room(run.devices[:1], models, run.work / "unshared") as room:
        run.add("large from the page cache", await room.load("large"), 3.0)
        run.add("other from the page cache", await room.load("other"), 3.0)
        run.add_gb("host memory, large and other", _host_bytes() - host_before)
        run.add_gb("GPU memory, large and other", _device_bytes(run, room))
        await room.evict("other")
        moved_s = run.bytes("large") / run.bus if run.bus else 0.0
        seconds = [await room.switch(*pair) for pair in run.pairs("other")]
        pool = room.runtime.pool.state()
        used, budget = pool.used_bytes / 1e9, pool.budget_bytes / 1e9
        run.notes.append(f"The pool of large and other: {used:.1f} of {budget:.1f} GB.")
        run.add("large ↔ other, the first time", seconds[0])
        run.add("large ↔ other", statistics.median(seconds[1:]), 1.15, moved_s)
        await room.evict(*(name for name in models if room.present(name)))
        await room.load("large")
        await _compare(run, room)


async def _without_pool(run: Run) -> None:
    """As where there is too little memory for a pool: each load reads the files again."""
    models = {"large": run.folders["large"]}
    async with open_room(run.devices[:1], models, run.work / "bare", pool_bytes=0) as room:
        for _ in range(2):
            disk_speed(weight_files(run.folders["large"]))
            seconds_s = await room.load("large")
            await _compare(run, room)
            await room.evict("large")
        run.add("no pool: large from the page cache, again", seconds_s)


async def _brought_then_sent(room: Room, leaving: str, coming: str) -> float:
    if room.present(coming):
        await room.evict(coming)
    if not room.ready(leaving):
        await room.load(leaving)
    return await room.load(coming) + await room.evict(leaving)


async def _while_drawing(run: Run, room: Room) -> None:
    """What a load costs a picture that is being drawn, and the other way round."""
    await room.draw("large", run.params(FEW_STEPS))
    alone = await room.draw("large", run.params(run.steps))
    if room.present("turbo"):
        await room.evict("turbo")
    load_s = await room.load("turbo")
    await room.evict("turbo")
    drawing = asyncio.create_task(room.draw("large", run.params(run.steps)))
    await room.until(lambda: any(job.step > 0 for job in room.runtime.snapshot().jobs))
    loads = []
    while not drawing.done():
        loads.append(await room.load("turbo"))
        await room.evict("turbo")
    busy = await drawing
    for drawn in (alone, busy):
        run.saw(run.steps, digest(drawn.image()))
    run.add(f"a picture of {run.steps} steps", alone.seconds_s)
    run.add(f"the same while turbo comes and goes {len(loads)} times", busy.seconds_s)
    run.add("turbo into an idle GPU", load_s)
    run.add("turbo while large draws", statistics.median(loads))


async def _killed(run: Run, room: Room) -> None:
    """From the worker's death to the start of the next picture with the model that it had."""
    await room.kill_worker()
    started = time.perf_counter()
    record = room.submit("large", run.params(FEW_STEPS))
    await room.until(lambda: any(job.step > 0 for job in room.runtime.snapshot().jobs))
    run.add(
        "worker killed, to the first step of the next picture", time.perf_counter() - started, 3
    )
    await room.runtime.finished(record.id)
    await _compare(run, room)


async def _second_gpu(run: Run) -> None:
    """Two pictures at once: the second has the model loaded on the other GPU."""
    if len(run.devices) < 2:
        return
    models = {"large": run.folders["large"]}
    async with open_room(run.devices[:2], models, run.work / "two") as room:
        await room.load("large")
        started = time.perf_counter()
        records = [room.submit("large", run.params(4 * run.steps, seed)) for seed in range(2)]
        await room.until(lambda: all(room.ready("large", device) for device in room.devices))
        run.add("a second GPU loads what the first has", time.perf_counter() - started, 2.5)
        for record in records:
            await room.runtime.finished(record.id)


async def _compare(run: Run, room: Room) -> None:
    drawing = await room.draw("large", run.params(FEW_STEPS))
    run.saw(FEW_STEPS, digest(drawing.image()))


def _same_pictures(run: Run) -> Row:
    differing = sum(len(digests) - 1 for digests in run.pictures.values())
    return at_most("pictures that are not the bare pipeline's, bit for bit", differing, "", 0)


def _host_bytes() -> int:
    """What lies in shared memory, the pool among it."""
    return int(psutil.virtual_memory().shared)


def _device_bytes(run: Run, room: Room) -> int:
    if run.kind == "cuda":
        return sum(card.used_bytes for card in gpus()[:1])
    return sum(slot.bytes for slot in room.runtime.snapshot().slots)


def _in_a_room(part: Callable[[Run], Coroutine[None, None, None]], run: Run) -> None:
    asyncio.run(part(run))


PARTS = {
    "turbo": _shared,
    "other": _unshared,
    "no-pool": _without_pool,
    "second-gpu": _second_gpu,
}
"""What is measured of ours, each in a room of its own."""


if __name__ == "__main__":
    sys.exit(main())
