"""The product on cards of several sizes, for the benchmark of placements.

Each card is simulated by `max_vram_gb`. First the planner says which rung it takes and how long a
job will be there, then jobs are drawn; then come jobs of random models, sizes and numbers of
pictures at once while another process takes memory of the GPU and gives it back. What was learned
on one card is known on the next, as on a server that was started again.
"""

import asyncio
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import Row, at_most, shown
from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.conductor.errors import WorkshopError
from workshop_gpu.conductor.explaining import RungView
from workshop_gpu.conductor.states import DeviceState, JobState
from workshop_gpu.host.devices import find_devices
from workshop_gpu.host.records import JobRecord, Participant
from workshop_gpu.host.runtime import Runtime, RuntimeSettings
from workshop_gpu.worker.protocol import GenerateParams

EXPECTED_BAR = 0.15
_ANN = Participant("ann", "Ann")
_SIDES = (512, 768, 1024, 1280)
_SMALL_SIDES = (64, 96, 128)
_MOST_AT_ONCE = 4
_FEW_STEPS = 2
_BALLAST = """
import random, sys, time, torch
most, dice = float(sys.argv[1]), random.Random(5)
while True:
    held = torch.empty(int(dice.random() * most), dtype=torch.uint8, device="cuda")
    time.sleep(dice.uniform(1, 5))
    del held
    torch.cuda.empty_cache()
    time.sleep(dice.uniform(1, 3))
"""
"""Takes up to so many bytes of the GPU, for a few seconds again and again."""


def cards(
    models: Mapping[str, Path],
    device: str,
    gigabytes: Sequence[float],
    jobs: int,
    side: int,
    steps: int,
) -> Iterator[Row]:
    """Rows for each card; 0 GB is the device as it is, and comes first so that a step is known.

    The first of the models is the one whose choice of a rung is looked at.
    """
    with tempfile.TemporaryDirectory(prefix="workshop-gpu-") as data:
        for size_gb in gigabytes:
            bench = _Card(models, device, Path(data), size_gb, side, steps)
            yield from asyncio.run(bench.measure(jobs))


class _Card:
    """One simulated card."""

    def __init__(
        self,
        models: Mapping[str, Path],
        device: str,
        data: Path,
        size_gb: float,
        side: int,
        steps: int,
    ) -> None:
        self._models = list(models)
        self._device = device
        self._size_gb = size_gb
        self._name = f"{size_gb:g} GB" if size_gb else "no cap"
        self._params = GenerateParams(
            prompt="a red circle", seed=11, steps=steps, guidance=3.0, width=side, height=side
        )
        models_file = data / "models.toml"
        models_file.write_text(
            "".join(
                f'[[model]]\nid = "{model}"\ncompile = "off"\n'
                f'source = {{ folder = "{folder.resolve()}" }}\n'
                f"memory = {{ max_vram_gb = {size_gb} }}\n"
                for model, folder in models.items()
            )
        )
        settings = RuntimeSettings(tuple(find_devices([device])), data)
        self._runtime = Runtime(settings, Catalogue(models_file))

    async def measure(self, jobs: int) -> list[Row]:
        """What the planner thought and what came of it; then the random jobs."""
        async with self._runtime.running() as runtime:
            await runtime.catalogue_read()
            await self._ready()
            try:
                rows = await self._expected()
            except WorkshopError as error:
                print(f"{self._name}: {error.message}", flush=True)
                return [shown(f"{self._name}, refused", 1, "")]
            with ballast(self._ballast_bytes()) if jobs and self._on_card else _nothing():
                return rows + await self._random_jobs(jobs)

    @property
    def _on_card(self) -> bool:
        return self._device.startswith("cuda")

    def _ballast_bytes(self) -> float:
        """So much that the model's part is now and then all that is left."""
        total = self._runtime.snapshot().devices[0].total_bytes
        return max(1e9, total - 1.3e9 * max(self._size_gb, 8))

    async def _expected(self) -> list[Row]:
        plan = self._chosen()
        if plan is None:
            return [shown(f"{self._name}, no rung fits now", 1, "")]
        words = f"{self._name}: {plan.rung}, {plan.needed_bytes / 1e9:.1f} GB"
        first_s = await self._drawn(self._params)
        seconds_s = await self._drawn(self._params)
        off = abs(seconds_s / plan.expected_s - 1)
        known = self._size_gb > 0  # else it is the run that makes them known
        bar = EXPECTED_BAR if known and self._on_card else float("inf")
        return [
            shown(f"{words}, first job", first_s, "s"),
            shown(f"{words}, a job", seconds_s, "s", plan.expected_s),
            at_most(f"{words}, off from what was expected", off, "", bar),
        ]

    def _chosen(self) -> RungView | None:
        params = self._params
        plan = self._runtime.plan(
            self._models[0], params.width, params.height, 1, params.steps, None
        )
        return next((rung for rung in plan.rungs if rung.chosen), None)

    async def _random_jobs(self, count: int) -> list[Row]:
        dice, failed, lower = random.Random(7), 0, 0
        for number in range(count):
            sides = _SIDES if self._on_card else _SMALL_SIDES
            params = GenerateParams(
                prompt=f"picture {number}", seed=number, steps=_FEW_STEPS, guidance=3.0,
                width=dice.choice(sides), height=dice.choice(sides),
                batch=dice.randint(1, _MOST_AT_ONCE),
            )  # fmt: skip
            record = await self._job(params, dice.choice(self._models))
            view = record.view
            if view is None or view.state is not JobState.DONE:
                failed += 1
                print(f"{self._name}: {view and view.error}", flush=True)
            lower += bool(view and view.went_on)
        if not count:
            return []
        what = f"{self._name}, of {count} random jobs"
        return [
            at_most(f"{what} failed", failed, "", 0),
            at_most(f"{what} ran out of memory", lower, "", 0 if self._on_card else count),
        ]

    async def _drawn(self, params: GenerateParams) -> float:
        record = await self._job(params, self._models[0])
        view = record.view
        if view is None or view.state is not JobState.DONE:
            raise RuntimeError(f"{self._name}: {view and view.error}")
        return record.seconds_s or 0.0

    async def _job(self, params: GenerateParams, model: str) -> JobRecord:
        record = await self._runtime.submit(_ANN, model, params)
        await self._runtime.finished(record.id)
        return record

    async def _ready(self) -> None:
        runtime = self._runtime
        while True:
            position = runtime.events.position
            if all(each.state != DeviceState.STARTING.value for each in runtime.snapshot().devices):
                return
            await runtime.events.grown(position)


@contextmanager
def ballast(most_bytes: float) -> Iterator[None]:
    """Another program that takes up to so much of the GPU and gives it back."""
    process = subprocess.Popen([sys.executable, "-c", _BALLAST, str(most_bytes)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _nothing() -> Iterator[None]:
    yield
