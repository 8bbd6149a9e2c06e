"""The product on cards of several sizes, for the benchmark of placements.

Each card is simulated by `max_vram_gb`. First the planner says which rung it takes and how long a
job will be there, then jobs are drawn; then come jobs of random models, sizes and numbers of
pictures at once while another program takes memory of the GPU and gives it back. What was learned
on one card is known on the next, as on a server that was started again.

The other program moves between two jobs, never within one: what a job was promised cannot be taken
from it, so whoever runs out of memory was promised too much. The dice are the same in each run, so
that one that was broken off goes on with the next job.
"""

import asyncio
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.placements_ballast import Ballast, ballast
from benchmarks.placements_bench import Bench, OnCard
from benchmarks.report import Row, at_most, shown
from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.conductor.errors import WorkshopError
from workshop_gpu.conductor.explaining import PlanView
from workshop_gpu.conductor.planning import Size
from workshop_gpu.conductor.states import DeviceState, JobState
from workshop_gpu.host.devices import find_devices
from workshop_gpu.host.records import JobRecord, Participant
from workshop_gpu.host.retention import Limits
from workshop_gpu.host.runtime import Runtime, RuntimeSettings
from workshop_gpu.worker.protocol import GenerateParams

EXPECTED_BAR = 0.15
_GUESS = "guess"
"""The basis of a plan's seconds where no step was measured yet, as on the first card."""
_LEARNED_FROM = 2
"""More jobs there: half of what is learned is the last job, half all before it, of which the first
waited for what CUDA loads at its first use."""
_ANN = Participant("ann", "Ann")
_SIDES = (512, 768, 896, 1280)
_SMALL_SIDES = (64, 96, 112)
"""None makes a picture as large as the one whose seconds are expected: jobs of two steps, whose
encoding and decoding count as much as their steps, would be taken for jobs like it."""
_MOST_AT_ONCE = 4
_FEW_STEPS = 2
_MOVES = 0.2
"""The share of jobs before which the other program moves."""
_TIGHT = 0.5
"""The share of its coming after which nothing is left but the simulated card."""
_BESIDE_BYTES = 2_000_000_000
"""On that card besides what is planned: a CUDA context and the ledger's margin."""
_UNCAPPED_GB = 8
_SEEN_S = 5.0
"""An idle worker reads its card's memory every two seconds."""
_NEARLY_BYTES = 2_000_000_000
"""The other program has a little besides: what CUDA needs itself."""
_HELD_S = 45.0
"""A job that takes longer, its model's first load from the disk included, gets all memory."""
_TOLD = 10
_KEPT = Limits(image_bytes=200_000_000)
"""Hundreds of pictures lie beside the models, which fill the disk."""


def cards(bench: Bench, data: Path, device: str, gigabytes: Sequence[float], jobs: int) -> None:
    """Measures each card; 0 GB is the device as it is, and comes first so that a step is known.

    What was learned is kept in the folder `data`. The first model is the one whose choice of a
    rung is looked at.
    """
    for size_gb in gigabytes:
        name = f"{size_gb:g} GB" if size_gb else "no cap"
        card = _Card(bench, data, device, size_gb, name)
        bench.keeping.attempt(f"{name}, {jobs} jobs", partial(card.measure, jobs))


def rows_of_jobs(found: Mapping[str, OnCard], *, bars: bool) -> Iterator[Row]:
    """What the random jobs came to, as many as there were."""
    for name, card in found.items():
        if not card.jobs:
            continue
        what = f"{name}, of {card.jobs} random jobs"
        yield at_most(f"{what} failed", card.failed, "", 0)
        yield shown(f"{what} were refused at once", card.refusals, "")
        yield at_most(f"{what} ran out of memory", card.lower, "", 0 if bars else None)
        yield shown(f"{what} had to be given the other program's memory", card.waited, "")
        yield shown(f"{what}, each in the mean", card.seconds_s / card.jobs, "s")


@dataclass(frozen=True)
class _Throw:
    """One random job. The other program holds `share` of what it may hold."""

    params: GenerateParams
    model: str
    share: float


def throws(models: Sequence[str], sides: Sequence[int]) -> Iterator[_Throw]:
    """The random jobs, the same in each run."""
    dice, share, number = random.Random(7), 0.0, 0
    while True:
        params = GenerateParams(
            prompt=f"picture {number}", seed=number, steps=_FEW_STEPS, guidance=3.0,
            width=dice.choice(sides), height=dice.choice(sides),
            batch=dice.randint(1, _MOST_AT_ONCE),
        )  # fmt: skip
        model = dice.choice(models)
        if dice.random() < _MOVES:
            comes = 1.0 if dice.random() < _TIGHT else dice.random()
            share = comes if share == 0 else 0.0
        yield _Throw(params, model, share)
        number += 1


class _Card:
    """One simulated card."""

    def __init__(self, bench: Bench, data: Path, device: str, size_gb: float, name: str) -> None:
        self._bench = bench
        self._data = data
        self._device = device
        self._size_gb = size_gb
        self._name = name
        self._models = {"large": bench.folder, "turbo": bench.sibling}
        self._prompts = 0
        self._params = GenerateParams(
            prompt="a red circle", seed=11, steps=bench.steps, guidance=3.0,
            width=bench.side, height=bench.side,
        )  # fmt: skip

    def measure(self, jobs: int) -> None:
        """What was not measured yet of this card."""
        self._found = self._bench.found.cards.setdefault(self._name, OnCard())
        if not self._found.refused and (not self._found.compared or self._found.jobs < jobs):
            asyncio.run(self._measure(jobs))

    async def _measure(self, jobs: int) -> None:
        async with self._open().running() as runtime:
            self._runtime = runtime
            await runtime.catalogue_read()
            await self._ready()
            if not self._found.compared:
                await self._compare()
                self._bench.keeping.save()
            if self._found.jobs < jobs and not self._found.refused:
                async with ballast(on_card=self._on_card) as other:
                    await self._random_jobs(jobs, other)

    def _open(self) -> Runtime:
        self._data.mkdir(parents=True, exist_ok=True)
        models_file = self._data / "models.toml"
        models_file.write_text(
            "".join(
                f'[[model]]\nid = "{model}"\ncompile = "off"\n'
                f'source = {{ folder = "{folder.resolve()}" }}\n'
                f"memory = {{ max_vram_gb = {self._size_gb} }}\n"
                for model, folder in self._models.items()
            )
        )
        devices = tuple(find_devices([self._device]))
        return Runtime(RuntimeSettings(devices, self._data, keep=_KEPT), Catalogue(models_file))

    @property
    def _on_card(self) -> bool:
        return self._bench.kind == "cuda"

    # What the planner thought, and what came of it

    async def _compare(self) -> None:
        bench = self._bench
        try:
            view = self._plan()
        except WorkshopError as error:
            print(f"{self._name}: {error.message}", flush=True)
            bench.add(shown(f"{self._name}, refused", 1, ""))
            self._found.refused = self._found.compared = True
            return
        plan = next((rung for rung in view.rungs if rung.chosen), None)
        if plan is None:
            bench.add(shown(f"{self._name}, no rung fits now", 1, ""))
        else:
            words = f"{self._name}: {plan.rung}, {plan.needed_bytes / 1e9:.1f} GB, {plan.basis}"
            first_s = await self._drawn()
            seconds_s = await self._drawn()
            known_s = await self._drawn(new=False)
            off = abs(seconds_s / plan.expected_s - 1)
            known = plan.basis != _GUESS
            for _ in range(0 if known else _LEARNED_FROM):
                await self._drawn()
            bar = EXPECTED_BAR if known and self._on_card else None
            bench.add(shown(f"{words}, first job", first_s, "s"))
            bench.add(shown(f"{words}, a job", seconds_s, "s", plan.expected_s))
            bench.add(shown(f"{words}, a job whose prompt was read before", known_s, "s"))
            bench.add(at_most(f"{words}, off from what was expected", off, "", bar))
            if (placement := self._plan().placement) != plan.words:
                bench.note(f"{words}: it was drawn with {placement}.")
        self._found.compared = True

    def _plan(self) -> PlanView:
        params = self._params
        size = Size(params.width * params.height, 1, params.steps)
        return self._runtime.plan("large", size, None)

    async def _drawn(self, *, new: bool = True) -> float:
        """The seconds of a picture, of a prompt that no text encoder has read before or of the last
        one."""
        self._prompts += new
        prompt = f"{self._params.prompt}, {self._prompts}"
        record = await self._job(msgspec.structs.replace(self._params, prompt=prompt), "large")
        if problem := _problem(record):
            raise RuntimeError(f"{self._name}: {problem}")
        return record.seconds_s or 0.0

    # The random jobs

    async def _random_jobs(self, count: int, other: Ballast) -> None:
        found, held = self._found, 0.0
        sides = _SIDES if self._on_card else _SMALL_SIDES
        for number, throw in zip(range(count), throws(list(self._models), sides), strict=False):
            if number < found.jobs:
                continue
            if throw.share != held:
                held = throw.share
                await self._take(other, int(held * self._most_bytes()))
            await self._random_job(number, throw, other)
            self._bench.keeping.save()
            if found.jobs % _TOLD == 0 or found.jobs == count:
                print(
                    f"{self._name}: {found.jobs} of {count} jobs, {found.seconds_s:.0f} s, "
                    f"{found.lower} changed their rung, {found.failed} failed, "
                    f"{found.refusals} were refused",
                    flush=True,
                )

    async def _random_job(self, number: int, throw: _Throw, other: Ballast) -> None:
        found, started = self._found, time.monotonic()
        drawing = asyncio.ensure_future(self._job(throw.params, throw.model))
        done, _ = await asyncio.wait({drawing}, timeout=_HELD_S)
        if not done:
            found.waited += 1
            print(f"{self._name}, job {number}: all memory is given back", flush=True)
            await other.hold(0)
        said = f"{self._name}, job {number}, {throw.model}"
        try:
            record = await drawing
        except WorkshopError as error:  # it would fit on this card in no way
            found.refusals += 1
            print(f"{said}: {error.message}", flush=True)
        else:
            if problem := _problem(record):
                found.failed += 1
                self._bench.note(f"{said}: {problem}.")
            found.lower += bool(record.view and record.view.went_on)
        found.seconds_s += time.monotonic() - started
        found.jobs += 1

    async def _take(self, other: Ballast, size_bytes: int) -> None:
        """Have the other program hold so much, and wait until the server has seen it."""
        expected_bytes = await other.hold(size_bytes)
        events, position = self._runtime.events, self._runtime.events.position
        with suppress(TimeoutError):
            async with asyncio.timeout(_SEEN_S):
                while self._on_card and abs(self._others_bytes() - expected_bytes) > _NEARLY_BYTES:
                    await events.grown(position)
                    position = events.position

    def _most_bytes(self) -> float:
        """All but the simulated card: then memory is as short as on a real one of that size."""
        total = self._runtime.snapshot().devices[0].total_bytes
        left_bytes = 1e9 * (self._size_gb or _UNCAPPED_GB) + _BESIDE_BYTES
        return max(1e9, total - left_bytes)

    def _others_bytes(self) -> int:
        holders = self._runtime.snapshot().devices[0].holders
        return sum(holder.bytes for holder in holders if holder.kind == "foreign")

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


def _problem(record: JobRecord) -> str:
    """Why the job was not drawn; "" if it was."""
    view = record.view
    if view is not None and view.state is JobState.DONE:
        return ""
    return str(view and view.error)
