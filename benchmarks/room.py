"""The product without its Jupyter server: a runtime with real workers, as benchmarks drive it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import msgspec
import psutil
from PIL import Image

from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.conductor.states import SlotState
from workshop_gpu.host.devices import find_devices
from workshop_gpu.host.gpu_readings import gpus
from workshop_gpu.host.records import JobRecord, Participant
from workshop_gpu.host.runtime import Runtime, RuntimeSettings
from workshop_gpu.worker.protocol import GenerateParams

_WAIT_S = 120.0
_WORKER = "workshop_gpu.worker"
_READING_S = 0.1
_SETTLED_READINGS = 7
_BALLAST = """
import sys, torch
free = torch.cuda.mem_get_info()[0]
kept = torch.empty(max(0, free - int(sys.argv[1])), dtype=torch.uint8, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Drawing:
    """A finished job: the whole wait, the worker's own time, and the picture's PNG file."""

    wait_s: float
    seconds_s: float
    png: bytes

    def image(self) -> Image.Image:
        return Image.open(BytesIO(self.png))


class Room:
    """A running runtime. All times are from asking until it is told: what a person waits."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    @property
    def devices(self) -> list[str]:
        return [device.id for device in self.runtime.settings.devices]

    async def load(self, model: str) -> float:
        """Seconds until the model is ready somewhere. Raises RuntimeError if it fails."""
        started = time.perf_counter()
        self.runtime.load(model)
        await self.until(lambda: self.ready(model))
        return time.perf_counter() - started

    async def evict(self, *models: str) -> float:
        """Seconds until the models have left."""
        started = time.perf_counter()
        for model in models:
            self.runtime.evict(model)
        await self.until(lambda: not any(self.present(model) for model in models))
        return time.perf_counter() - started

    async def switch(self, leaving: str, coming: str) -> float:
        """Seconds until one has left and the other is ready, both asked for at once."""
        await self.settled()
        started = time.perf_counter()
        self.runtime.evict(leaving)
        self.runtime.load(coming)
        await self.until(lambda: self.ready(coming) and not self.present(leaving))
        return time.perf_counter() - started

    async def submit(self, model: str, params: GenerateParams) -> JobRecord:
        return await self.runtime.submit(Participant("benchmark", "benchmark"), model, params)

    async def draw(self, model: str, params: GenerateParams) -> Drawing:
        """One picture. Raises RuntimeError if the job fails."""
        started = time.perf_counter()
        record = await self.submit(model, params)
        await self.runtime.finished(record.id)
        wait_s = time.perf_counter() - started
        if record.view is None or record.view.error is not None or not record.saved_images:
            raise RuntimeError(f"drawing with {model}: {record.view}")
        png = self.runtime.images.path(record.id, 0).read_bytes()
        return Drawing(wait_s, record.seconds_s or 0.0, png)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a state of the room. Raises RuntimeError for a failed slot, TimeoutError."""
        async with asyncio.timeout(_WAIT_S):
            while not condition():
                for slot in self.runtime.snapshot().slots:
                    if slot.state is SlotState.FAILED:
                        raise RuntimeError(f"{slot.model} on {slot.device}: {slot.error}")
                await self.runtime.events.grown(self.runtime.events.position)

    async def settled(self) -> None:
        """Wait until a card's used memory has stayed the same for a while; a CPU needs none."""
        same, before = 0, -1
        while same < _SETTLED_READINGS and self.runtime.settings.devices[0].gpu_uuid:
            await asyncio.sleep(_READING_S)
            used = sum(card.used_bytes for card in gpus())
            same, before = (same + 1 if used == before else 0), used

    async def pooled(self) -> None:
        """Wait until the pool has all that is to come into it: what was in the page cache comes
        there only after it is on the card."""
        used_bytes, complete_bytes = 1, 0
        async with asyncio.timeout(_WAIT_S):
            while used_bytes != complete_bytes:
                await asyncio.sleep(_READING_S)
                pool = self.runtime.pool.state()
                used_bytes = pool.used_bytes
                complete_bytes = sum(part.size_bytes for part in pool.parts)

    def ready(self, model: str, device: str = "") -> bool:
        return any(
            slot.model == model and slot.state is SlotState.READY and device in ("", slot.device)
            for slot in self.runtime.snapshot().slots
        )

    def present(self, model: str) -> bool:
        return any(
            slot.model == model and slot.state is not SlotState.ABSENT
            for slot in self.runtime.snapshot().slots
        )

    async def kill_worker(self) -> psutil.Process:
        """Kill the first device's worker as a crash would, once a spare one stands by."""
        async with asyncio.timeout(_WAIT_S):
            spare = await self.runtime.spare.stands_by()
        working = [process for process in workers() if process.pid != spare]
        killed = max(working, key=lambda process: process.memory_info().rss)
        os.kill(killed.pid, signal.SIGKILL)
        return killed

    async def gone(self, process: psutil.Process) -> None:
        """Wait until nothing is left of a killed process but its exit code."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return
        try:
            loop.add_reader(descriptor, ended.set)
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)


def workers() -> list[psutil.Process]:
    """The worker processes of this process, spare ones included."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if _WORKER in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


@contextmanager
def ballast(left_bytes: int) -> Iterator[None]:
    """Another process holds the first card's memory but for so much; 0: nobody holds any."""
    if left_bytes == 0:
        yield
        return
    command = [sys.executable, "-c", _BALLAST, str(left_bytes)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "held\n":
            raise RuntimeError("the ballast could not be loaded")
        yield
        process.communicate()


@asynccontextmanager
async def open_room(
    devices: list[str], models: dict[str, Path], folder: Path, **settings: object
) -> AsyncIterator[Room]:
    """A room with these devices ("cuda:0", "cpu:2GB") and models, once its workers are ready."""
    runtime = _runtime(devices, models, folder, settings)
    async with runtime.running():
        room = Room(runtime)
        await runtime.catalogue_read()
        await room.until(lambda: all(d.state == "ready" for d in runtime.snapshot().devices))
        yield room


def _runtime(
    devices: list[str], models: dict[str, Path], folder: Path, settings: dict[str, object]
) -> Runtime:
    folder.mkdir(parents=True, exist_ok=True)
    models_file = folder / "models.toml"
    models_file.write_text(
        "".join(
            f'[[model]]\nid = "{name}"\nsource = {{ folder = "{path}" }}\n'
            for name, path in models.items()
        )
    )
    on_card = any(not name.startswith("cpu") for name in devices)
    dtype = "bfloat16" if on_card else "float32"
    # What is measured is how whole models come and go.
    catalogue = Catalogue(models_file, default_dtype=dtype, default_placement="resident")
    plain = RuntimeSettings(tuple(find_devices(devices)), folder)
    return Runtime(msgspec.structs.replace(plain, **settings), catalogue)
