"""The switching benchmark's own part: models that come and go in the product, in several rooms.

Bytes of a model that left linger on the card for a moment, so that the next one finds there what
it shares. So before each switch the room waits until the card has them back: what comes must
really be copied.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import psutil

from benchmarks.report import Row, at_most
from benchmarks.room import Room, ballast, open_room
from benchmarks.switching_limits import disk_speed, leave_page_cache, weight_files
from benchmarks.switching_models import DENOISER
from benchmarks.switching_peers import digest
from benchmarks.switching_run import FEW_STEPS, Run
from workshop_gpu.conductor.settings import Settings
from workshop_gpu.conductor.states import JobState
from workshop_gpu.host import host_memory
from workshop_gpu.host.gpu_readings import gpus

_ROOM_FOR = 1.5
"""Models that fit on the card where only one is to fit: the rest of it is taken."""
_BEFORE_CLASS_S = 10.0
"""What a server has at least before people come: its worker builds the modules ahead."""
_DEATHS = 3
_NEXT_STARTS = "to the start of the next picture"
_SMALL_TIGHT = "cpu:45MB"
"""Fits one of the shipped models."""


async def shared(run: Run) -> None:
    """Large and its sibling, which share all but the denoiser."""
    models = _models(run, "large", "turbo")
    host_before = _host_bytes()
    folder = run.work / "shared"
    async with open_room(run.devices[:1], models, folder, spare_worker=True) as room:
        leave_page_cache(weight_files(run.folders["large"]))
        cold_s = await room.load("large")
        _note_disk(run)
        run.add("large from the disk", cold_s, 1.08, run.bytes("large") / run.found.disk)
        await _compare(run, room)
        disk_speed(weight_files(run.folders["turbo"]))
        run.add("turbo from the page cache, its encoders and VAE there", await room.load("turbo"))
        await room.pooled()
        run.add_gb("host memory, large and turbo", _host_bytes() - host_before)
        run.add_gb("GPU memory, large and turbo", _device_bytes(run, room))
        denoiser_s = _over_the_bus_s(run, "turbo", DENOISER)
        await _come_beside(run, room, "turbo", 1.2, denoiser_s)
        _note_pool(run, room, "large and turbo")
        await _while_drawing(run, room)
        await _killed(run, room)


async def unshared(run: Run) -> None:
    """Large and a model that shares nothing with it, in a fresh pool."""
    models = _models(run, "large", "other")
    for model in models:
        disk_speed(weight_files(run.folders[model]))  # a reading leaves them there
    host_before = _host_bytes()
    async with open_room(run.devices[:1], models, run.work / "unshared") as room:
        await asyncio.sleep(_BEFORE_CLASS_S)
        await room.load("large")
        run.add("other from the page cache, right after", await room.load("other"), 3.0)
        await room.pooled()
        run.add_gb("host memory, large and other", _host_bytes() - host_before)
        run.add_gb("GPU memory, large and other", _device_bytes(run, room))
        await room.evict("other")
        await room.switch("large", "other")  # the first time CUDA registers what comes
        await _come_beside(run, room, "other", 1.15, _over_the_bus_s(run, "large"))
        _note_pool(run, room, "large and other")


async def tight(run: Run) -> None:
    """A card with room for one model only: what leaves must have left before the next comes."""
    models = _models(run, "large", "other", "turbo")
    for model in models:
        disk_speed(weight_files(run.folders[model]))
    devices = [_SMALL_TIGHT] if run.small else run.devices[:1]
    at_once = Settings(min_residency_s=0.0)
    left_bytes = 0 if run.small else int(_ROOM_FOR * run.bytes("large"))
    pool_bytes = sum(map(run.bytes, models))
    folder = run.work / "tight"
    settings = {"conductor": at_once, "pool_bytes": pool_bytes}
    with ballast(left_bytes):
        async with open_room(devices, models, folder, **settings) as room:
            await asyncio.sleep(_BEFORE_CLASS_S)
            run.add("large from the page cache", await room.load("large"), 3.0)
            await room.pooled()
            for other, factor, part in (("other", 1.15, "*"), ("turbo", 1.2, DENOISER)):
                await room.switch("large", other)
                await room.pooled()
                await room.switch(other, "large")
                limit_s = _over_the_bus_s(run, other, part)
                name = f"large ↔ {other}, only one fits"
                seconds = [await room.switch(*pair) for pair in run.pairs(other)]
                run.add(f"{name}, asked to leave and to come", statistics.median(seconds))
                wanted = (other, "large") * 2
                seconds = [await _asked_by_a_job(run, room, model) for model in wanted]
                run.add(f"{name}, by a job for it", statistics.median(seconds), factor, limit_s)
            _note_pool(run, room, "all three")
            await _compare(run, room)


async def without_pool(run: Run) -> None:
    """As where there is too little memory for a pool: each load reads the files again."""
    models = _models(run, "large")
    async with open_room(run.devices[:1], models, run.work / "bare", pool_bytes=0) as room:
        for _ in range(2):
            disk_speed(weight_files(run.folders["large"]))
            seconds_s = await room.load("large")
            await _compare(run, room)
            await room.evict("large")
        run.add("no pool: large from the page cache, again", seconds_s)


async def second_gpu(run: Run) -> None:
    """Two pictures at once: the second has the model loaded on the other GPU."""
    if len(run.devices) < 2:
        return
    models = _models(run, "large")
    async with open_room(run.devices[:2], models, run.work / "two") as room:
        await room.load("large")
        started = time.perf_counter()
        records = [await room.submit("large", run.params(4 * run.steps, seed)) for seed in range(2)]
        await room.until(lambda: all(room.ready("large", device) for device in room.devices))
        run.add("a second GPU loads what the first has", time.perf_counter() - started, 2.5)
        for record in records:
            await room.runtime.finished(record.id)


PARTS: dict[str, Callable[[Run], Coroutine[None, None, None]]] = {
    "turbo": shared,
    "other": unshared,
    "tight": tight,
    "no-pool": without_pool,
    "second-gpu": second_gpu,
}
"""What is measured of ours, each in a room of its own."""


def same_pictures(run: Run) -> Row:
    """How many pictures differ from others of the same seed."""
    differing = sum(len(digests) - 1 for digests in run.found.pictures.values())
    return at_most("pictures that are not the bare pipeline's, bit for bit", differing, "", 0)


def _models(run: Run, *names: str) -> dict[str, Path]:
    return {name: run.folders[name] for name in names}


def _over_the_bus_s(run: Run, model: str, part: str = "*") -> float:
    return run.bytes(model, part) / run.found.bus if run.found.bus else 0.0


async def _come_beside(run: Run, room: Room, other: str, factor: float, limit_s: float) -> None:
    """Where both fit nothing has to leave for what comes; both are there at the end."""
    come, leave = [], []
    for staying, coming in run.pairs(other):
        for model in (staying, coming):
            if not room.ready(model):
                await room.load(model)
        leave.append(await room.evict(coming))
        await room.settled()
        come.append(await room.load(coming))
    print("each comes:", *(f"{each:.3f} s" for each in come), flush=True)
    run.add(f"large ↔ {other}, both fit: one comes", statistics.median(come), factor, limit_s)
    run.add(f"large ↔ {other}, both fit: one leaves", statistics.median(leave))


def _note_pool(run: Run, room: Room, of: str) -> None:
    pool = room.runtime.pool.state()
    used, budget = pool.used_bytes / 1e9, pool.budget_bytes / 1e9
    free = host_memory.read().available_bytes / 1e9
    run.note(
        f"The pool of {of}: {used:.3g} of {budget:.3g} GB; {free:.3g} GB of the machine are free. "
        f"{pool.problem}".strip()
    )


def _note_disk(run: Run) -> None:
    """Read the same files once more: where a disk's speed drifts, its limit is the faster."""
    files = weight_files(run.folders["large"])
    leave_page_cache(files)
    run.found.disk = max(run.found.disk, disk_speed(files))


async def _asked_by_a_job(run: Run, room: Room, model: str) -> float:
    """Seconds from a request for a picture until its model is ready, as a participant waits."""
    await room.settled()
    started = time.perf_counter()
    record = await room.submit(model, run.params(1))
    await room.until(lambda: room.ready(model))
    seconds_s = time.perf_counter() - started
    await room.runtime.finished(record.id)
    return seconds_s


async def _while_drawing(run: Run, room: Room) -> None:
    """What a load costs a picture that is being drawn, and the other way round."""
    await room.draw("large", run.params(FEW_STEPS))
    alone = await room.draw("large", run.params(run.steps))
    load_s = await _come_and_go(room)
    drawing = asyncio.create_task(room.draw("large", run.params(run.steps)))
    await room.until(lambda: any(job.step > 0 for job in room.runtime.snapshot().jobs))
    loads = []
    while not drawing.done():
        loads.append(await _come_and_go(room))
    busy = await drawing
    for drawn in (alone, busy):
        run.saw(run.steps, digest(drawn.image()))
    run.add(f"a picture of {run.steps} steps", alone.seconds_s)
    run.add(f"the same while turbo comes and goes {len(loads)} times", busy.seconds_s)
    run.add("turbo into an idle GPU", load_s)
    run.add("turbo while large draws", statistics.median(loads))


async def _come_and_go(room: Room) -> float:
    if room.present("turbo"):
        await room.evict("turbo")
    await room.settled()
    load_s = await room.load("turbo")
    await room.evict("turbo")
    return load_s


async def _killed(run: Run, room: Room) -> None:
    """From the worker's death to the start of a picture with the model that it had."""
    found: dict[str, list[float]] = {}
    for _ in range(1 if run.small else _DEATHS):
        for what, seconds_s in (await _one_death(run, room)).items():
            found.setdefault(what, []).append(seconds_s)
    for what, each in found.items():
        median_s = statistics.median(each)
        run.add(f"worker killed, {what}", median_s, 3 if what == _NEXT_STARTS else 0)
    worst_s = max(found[_NEXT_STARTS])
    run.note(f"Worker killed, {_NEXT_STARTS}: {worst_s:.2f} s at the most.")
    await _compare(run, room)


async def _one_death(run: Run, room: Room) -> dict[str, float]:
    """Seconds until what comes after it."""
    killed = await room.kill_worker()
    started = time.perf_counter()
    found: dict[str, float] = {}

    def reached(what: str) -> None:
        found[what] = time.perf_counter() - started

    gone = asyncio.ensure_future(room.gone(killed))
    record = await room.submit("large", run.params(FEW_STEPS))
    await gone
    reached("until its process is gone")
    await room.until(lambda: not room.ready("large"))  # nobody knows of the death before
    await room.until(lambda: all(d.state == "ready" for d in room.runtime.snapshot().devices))
    reached("until the spare has the card")
    running = JobState.RUNNING
    await room.until(lambda: any(j.state is running for j in room.runtime.snapshot().jobs))
    reached(_NEXT_STARTS)
    await room.until(lambda: any(job.step > 0 for job in room.runtime.snapshot().jobs))
    reached("to its first step")
    await room.runtime.finished(record.id)
    return found


async def _compare(run: Run, room: Room) -> None:
    drawing = await room.draw("large", run.params(FEW_STEPS))
    run.saw(FEW_STEPS, digest(drawing.image()))


def _host_bytes() -> int:
    """What lies in shared memory, the pool among it."""
    return int(psutil.virtual_memory().shared)


def _device_bytes(run: Run, room: Room) -> int:
    if run.kind == "cuda":
        return sum(card.used_bytes for card in gpus()[:1])
    return sum(slot.bytes for slot in room.runtime.snapshot().slots)
