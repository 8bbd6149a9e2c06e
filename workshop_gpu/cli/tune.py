"""`workshop-gpu tune MODEL`: what each rung of the ladder takes on this machine, measured and kept.

The model draws on every rung that fits, at each size, with the same planner that the server has.
The server finds the bus, the step times and the working memory in its data folder at its next
start.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
from pathlib import Path

import msgspec
from jupyter_core.paths import jupyter_data_dir

from workshop_gpu.api.generation import complete
from workshop_gpu.api.schemas import GenerateRequest
from workshop_gpu.catalogue.catalogue import Catalogue, default_models_file
from workshop_gpu.catalogue.spec import ModelSpec
from workshop_gpu.cli.progress import ProgressLine
from workshop_gpu.cli.tune_plot import Point, picture
from workshop_gpu.conductor.errors import InvalidRequest, ReportedError, WorkshopError, gigabytes
from workshop_gpu.conductor.explaining import RungView
from workshop_gpu.conductor.ladder import RUNGS, rung_named
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.states import DeviceState, JobState
from workshop_gpu.host.devices import DeviceConfig, find_devices
from workshop_gpu.host.kept import Kept
from workshop_gpu.host.records import Participant
from workshop_gpu.host.runtime import Runtime, RuntimeSettings
from workshop_gpu.worker.protocol import GenerateParams

_YOU = Participant("cli", "you")


class Row(msgspec.Struct, frozen=True):
    """One rung at one size. `step_s` is a job's seconds by its steps, encoding and decoding
    included; `expected_s` what the planner had thought of the whole job."""

    rung: str
    size: str
    weights_bytes: int
    working_bytes: int
    job_s: float
    step_s: float
    expected_s: float
    problem: str = ""


def tune(options: argparse.Namespace) -> int:
    """Measure, print the table, keep what was learned; returns the exit status."""
    catalogue = Catalogue(options.models_file or default_models_file())
    catalogue.load()
    spec = catalogue.get(options.model)
    catalogue.source(spec.id)  # raises where the weights are not here
    rungs = _rungs(options.rungs)
    orders = [_params(spec, options, size) for size in options.sizes or [(None, None)]]
    devices = tuple(find_devices([options.device]))
    line = ProgressLine()
    try:
        with tempfile.TemporaryDirectory(prefix="workshop-gpu-") as folder:
            run = _Run(catalogue, devices, Path(folder), line)
            rows = asyncio.run(run.measure(spec, orders, rungs, options.data_folder))
    finally:
        line.close()
    for text in table(rows):
        print(text)
    if options.plot is not None:
        _plot(options.plot, rows)
    return 0 if any(not row.problem for row in rows) else 1


def table(rows: list[Row]) -> list[str]:
    """The rows as lines of text."""
    head = ("RUNG", "SIZE", "ON THE GPU", "WORKING", "STEP", "JOB", "EXPECTED")
    cells = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def _cells(row: Row) -> tuple[str, ...]:
    if row.problem:
        return (row.rung, row.size, row.problem, "", "", "", "")
    return (
        row.rung,
        row.size,
        gigabytes(row.weights_bytes),
        gigabytes(row.working_bytes),
        f"{row.step_s:.3f} s",
        f"{row.job_s:.2f} s",
        f"{row.expected_s:.2f} s",
    )


def _rungs(names: list[str]) -> tuple[str, ...]:
    for name in names:
        if rung_named(name) is None:
            known = ", ".join(rung.name for rung in RUNGS)
            raise InvalidRequest("rungs", f'"{name}" is none of {known}')
    return tuple(names) or tuple(rung.name for rung in RUNGS)


def _params(
    spec: ModelSpec, options: argparse.Namespace, size: tuple[int | None, int | None]
) -> GenerateParams:
    width, height = size
    request = GenerateRequest(
        model=spec.id,
        prompt="a red circle on a blue background",
        seed=1,
        steps=options.steps,
        width=width,
        height=height,
    )
    return complete(request, spec)


def _plot(target: Path, rows: list[Row]) -> None:
    points = [
        Point(f"{row.rung}, {row.size}", row.weights_bytes + row.working_bytes, row.step_s)
        for row in rows
        if not row.problem
    ]
    try:
        target.write_text(picture(points), encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(
            "plot", f"{target} was not written ({error.strerror}); name another place"
        ) from None
    print(target, file=sys.stderr)


class _Run:
    """A runtime on the first of the devices, for as long as it takes."""

    def __init__(
        self,
        catalogue: Catalogue,
        devices: tuple[DeviceConfig, ...],
        folder: Path,
        line: ProgressLine,
    ) -> None:
        self._log = logging.getLogger("workshop_gpu.cli")
        self._log.addHandler(logging.NullHandler())
        self._log.propagate = False
        self._devices = devices
        self._line = line
        self._runtime = Runtime(RuntimeSettings(devices[:1], folder), catalogue, self._log)

    async def measure(
        self,
        spec: ModelSpec,
        orders: list[GenerateParams],
        rungs: tuple[str, ...],
        data_folder: Path | None,
    ) -> list[Row]:
        """Each rung at each size. Raises WorkshopError."""
        rows: list[Row] = []
        async with self._runtime.running() as runtime:
            await runtime.catalogue_read()
            await self._ready()
            for params in orders:
                for rung in rungs:
                    self._line.show(f"{rung} at {params.width}x{params.height}")
                    rows.append(await self._row(spec.id, params, rung))
            await self._keep(data_folder)
        return rows

    async def _ready(self) -> None:
        """What the device has is known once its worker stands ready."""
        runtime = self._runtime
        while True:
            position = runtime.events.position
            states = {device.state for device in runtime.snapshot().devices}
            if DeviceState.STARTING.value not in states:
                return
            await runtime.events.grown(position)

    async def _row(self, model: str, params: GenerateParams, rung: str) -> Row:
        size = f"{params.width}x{params.height}"
        view = self._view(model, params, rung)
        if view is None:
            return Row(rung, size, 0, 0, 0.0, 0.0, 0.0, "this model has no such rung")
        try:
            await self._drawn(model, params, rung)  # the first warms up
            seconds_s = await self._drawn(model, params, rung)
        except WorkshopError as error:
            return Row(rung, size, 0, 0, 0.0, 0.0, 0.0, error.message)
        (slot,) = (slot for slot in self._runtime.snapshot().slots if slot.model == model)
        after = self._view(model, params, rung) or view
        return Row(
            rung,
            size,
            slot.bytes,
            after.working_bytes,
            seconds_s,
            seconds_s / params.steps,
            view.expected_s,
        )

    def _view(self, model: str, params: GenerateParams, rung: str) -> RungView | None:
        plan = self._runtime.plan(model, params.width, params.height, 1, params.steps, None)
        return next((each for each in plan.rungs if each.rung == rung), None)

    async def _drawn(self, model: str, params: GenerateParams, rung: str) -> float:
        runtime = self._runtime
        record = await runtime.submit(_YOU, model, params, placement=rung)
        await runtime.finished(record.id)
        view = record.view
        if view is not None and view.state is JobState.FAILED and view.error is not None:
            raise ReportedError(view.error)
        return record.seconds_s or 0.0

    async def _keep(self, data_folder: Path | None) -> None:
        """Beside what the server has learned by itself, in its data folder."""
        folder = data_folder or Path(jupyter_data_dir()) / "workshop_gpu"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = tuple(device.name for device in self._devices)
        kept = Kept(folder, Policy(), names, self._log)
        await kept.keep_learned(kept.read_learned().with_news(self._runtime.learned()))
