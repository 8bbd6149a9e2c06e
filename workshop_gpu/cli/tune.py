"""`workshop-gpu tune MODEL`: what each rung of the ladder takes on this machine, measured and kept.

The model draws on every rung that fits, at each size, with the same planner that the server has.
The server finds the bus, the step times and the working memory in its data folder at its next
start. Ctrl-C ends it early: what was measured by then is shown and kept all the same.
"""

import argparse
import asyncio
import contextlib
import functools
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from jupyter_core.paths import jupyter_data_dir

from workshop_gpu.api.generation import complete
from workshop_gpu.api.schemas import GenerateRequest
from workshop_gpu.catalogue.catalogue import Catalogue, default_models_file
from workshop_gpu.catalogue.spec import ModelSpec
from workshop_gpu.cli.progress import ProgressLine
from workshop_gpu.cli.swapping import LocalCatalogue, device_and_swap, swaps
from workshop_gpu.cli.tune_plot import Point, picture
from workshop_gpu.client.plans import SIGNS, SIGNS_MEAN
from workshop_gpu.conductor.errors import InvalidRequest, ReportedError, WorkshopError, gigabytes
from workshop_gpu.conductor.explaining import RungView
from workshop_gpu.conductor.ladder import AUTO, RUNGS, rung_named
from workshop_gpu.conductor.learned import Learned
from workshop_gpu.conductor.planning import Size
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.states import DeviceState, JobState
from workshop_gpu.host.devices import DeviceConfig, find_devices
from workshop_gpu.host.kept import Kept, devices_measured
from workshop_gpu.host.records import Participant
from workshop_gpu.host.runtime import Runtime, RuntimeSettings
from workshop_gpu.worker.protocol import GenerateParams

_YOU = Participant("cli", "you")


class Row(msgspec.Struct, frozen=True):
    """One rung at one size. `step_s` is a job's seconds by its steps, encoding and decoding
    included; `expected_s` what the planner had thought of the whole job, and `basis` from what."""

    rung: str
    size: str
    weights_bytes: int
    working_bytes: int
    job_s: float
    step_s: float
    expected_s: float
    basis: str = ""
    problem: str = ""


def tune(options: argparse.Namespace) -> int:
    """Measure, print the table, keep what was learned; returns the exit status."""
    catalogue = LocalCatalogue(options.models_file or default_models_file())
    catalogue.load()
    spec = catalogue.get(options.model)
    catalogue.source(spec.id)  # raises where the weights are not here
    rungs = _rungs(options.rungs)
    orders = [_params(spec, options, size) for size in options.sizes or [(None, None)]]
    device, swap = device_and_swap(options.device, spec)
    data_folder = options.data_folder or Path(jupyter_data_dir()) / "workshop_gpu"
    _check_writable("data-folder", data_folder)
    if options.plot is not None:
        _check_writable("plot", options.plot.parent)
    line = ProgressLine()
    cancelled = False
    runs: list[_Run] = []
    with tempfile.TemporaryDirectory(prefix="workshop-gpu-") as folder:
        try:
            for devices, takes in _turns(device, swap, rungs):
                catalogue.swap_aside = len(devices) == 1
                runs.append(_Run(catalogue, devices, Path(folder) / f"{len(devices)}", line))
                asyncio.run(runs[-1].measure(spec, orders, rungs, takes))
        except KeyboardInterrupt:
            cancelled = True
        finally:
            line.close()
    rows = [row for run in runs for row in run.rows]
    done = [row for row in rows if not row.problem]
    for text in table(rows):
        print(text)
    if done:
        learned = (run.learned() for run in runs)
        _keep(data_folder, device, functools.reduce(Learned.with_news, learned))
    if done and options.plot is not None:
        _plot(options.plot, done)
    if cancelled:
        raise KeyboardInterrupt
    return 0 if done else 1


def _turns(
    device: DeviceConfig, swap: DeviceConfig | None, rungs: tuple[str, ...]
) -> list[tuple[tuple[DeviceConfig, ...], Callable[[str], bool]]]:
    """The devices of each run, and which rungs are measured in it. With the swap device only those
    that take memory of it: the model could lie there otherwise."""
    if swap is None:
        return [((device,), lambda rung: True)]
    alone = ((device,), lambda rung: not swaps(rung))
    beside = ((device, swap), swaps)
    return [turn for turn in (alone, beside) if not rungs or any(map(turn[1], rungs))]


def table(rows: list[Row]) -> list[str]:
    """The rows as lines of text; none without rows. What went wrong has a line of its own."""
    if not rows:
        return []
    head = ("RUNG", "SIZE", "ON THE GPU", "WORKING", "STEP", "JOB", "EXPECTED")
    cells = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells if i < len(line)) for i in range(len(head))]
    lines = []
    for row, line in zip([None, *rows], cells, strict=True):
        text = "  ".join(
            cell.ljust(width) for cell, width in zip(line, widths, strict=False)
        ).rstrip()
        lines.append(f"{text}  {row.problem}" if row is not None and row.problem else text)
    signs = any(SIGNS.get(row.basis) for row in rows)
    return [*lines, "", f"EXPECTED before it was measured: {SIGNS_MEAN}"] if signs else lines


def _cells(row: Row) -> tuple[str, ...]:
    if row.problem:
        return (row.rung, row.size)
    return (
        row.rung,
        row.size,
        gigabytes(row.weights_bytes),
        gigabytes(row.working_bytes),
        f"{row.step_s:.3f} s",
        f"{row.job_s:.2f} s",
        f"{SIGNS.get(row.basis, '')}{row.expected_s:.2f} s",
    )


def _rungs(names: list[str]) -> tuple[str, ...]:
    """Raises InvalidRequest for one that is not known."""
    for name in names:
        if rung_named(name) is None:
            known = ", ".join(rung.name for rung in RUNGS)
            raise InvalidRequest("rungs", f'"{name}" is none of {known}')
    return tuple(names)


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


def _check_writable(field: str, folder: Path) -> None:
    """Before all the measuring: what was found is to be written there. Raises InvalidRequest."""
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    made = field == "data-folder" or there == folder.absolute()
    if not (made and there.is_dir() and os.access(there, os.W_OK)):
        raise InvalidRequest(field, f"nothing can be written to {folder}; name another place")


def _keep(folder: Path, device: DeviceConfig, learned: Learned) -> None:
    """Beside what the server has learned by itself, in its data folder."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        print(f"workshop-gpu: {folder} was not made: {error.strerror}", file=sys.stderr)
        return
    log = logging.getLogger("workshop_gpu.tune")  # what could not be written is said on stderr
    kept = Kept(folder, Policy(), _servers_devices(folder, device), log)
    before = kept.read_learned()
    asyncio.run(kept.keep_learned(before.with_news(learned)))
    print(f"Kept in {folder}; the server reads it at its next start.", file=sys.stderr)


def _servers_devices(folder: Path, device: DeviceConfig) -> tuple[str, ...]:
    """The names of the server's devices, by which it knows again what was measured: those of its
    file, else all of this machine's. The one that was measured is among them."""
    for names in (devices_measured(folder), tuple(each.name for each in find_devices(["auto"]))):
        if device.name in names:
            return names
    return (device.name,)


def _plot(target: Path, rows: list[Row]) -> None:
    points = [
        Point(f"{row.rung}, {row.size}", row.weights_bytes + row.working_bytes, row.step_s)
        for row in rows
    ]
    try:
        target.write_text(picture(points), encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(
            "plot", f"{target} was not written ({error.strerror}); name another place"
        ) from None
    print(target, file=sys.stderr)


class _Run:
    """A runtime on the first of the devices, for as long as it takes; `rows` are those measured so
    far. Another device only lends its memory."""

    def __init__(
        self,
        catalogue: Catalogue,
        devices: tuple[DeviceConfig, ...],
        folder: Path,
        line: ProgressLine,
    ) -> None:
        self.rows: list[Row] = []
        self._drawings = 0
        self._log = logging.getLogger("workshop_gpu.cli")
        self._log.addHandler(logging.NullHandler())
        self._log.propagate = False
        self._device = devices[0]
        self._alone = len(devices) == 1
        self._line = line
        self._runtime = Runtime(RuntimeSettings(devices, folder), catalogue, self._log)

    def learned(self) -> Learned:
        return self._runtime.learned()

    async def measure(
        self,
        spec: ModelSpec,
        orders: list[GenerateParams],
        rungs: tuple[str, ...],
        takes: Callable[[str], bool],
    ) -> None:
        """Each rung at each size: those that are named, or all that the model has; of these, those
        that it takes. Raises WorkshopError."""
        self._line.show(f"starting a worker on {self._device.id}")
        async with self._runtime.running() as runtime:
            await runtime.catalogue_read()
            await self._ready()
            # The first load tells what its parts take, and so which rungs there are.
            self._line.show(f"loading {spec.id}")
            first = AUTO if takes(AUTO) else next(rung.name for rung in RUNGS if takes(rung.name))
            with contextlib.suppress(WorkshopError):
                await self._drawn(spec.id, orders[0], first)
            for i, params in enumerate(orders):
                there = {each.rung for each in self._rungs(spec.id, params)}
                named = rungs or [rung.name for rung in RUNGS if rung.name in there]
                wanted = [rung for rung in named if takes(rung)]
                for j, rung in enumerate(wanted):
                    count = f"({i * len(wanted) + j + 1} of {len(orders) * len(wanted)})"
                    self._line.show(f"{rung} at {params.width}x{params.height}", count)
                    self.rows.append(await self._row(spec.id, params, rung))

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
        if swaps(rung) and self._alone:
            return Row(rung, size, 0, 0, 0.0, 0.0, 0.0, problem="needs another GPU")
        try:
            view = self._view(model, params, rung)
            await self._drawn(model, params, rung)  # the first warms up
            seconds_s = await self._drawn(model, params, rung)
        except WorkshopError as error:
            return Row(rung, size, 0, 0, 0.0, 0.0, 0.0, problem=error.message)
        (slot,) = (slot for slot in self._runtime.snapshot().slots if slot.model == model)
        after = self._view(model, params, rung)
        return Row(
            rung,
            size,
            slot.bytes,
            after.working_bytes,
            seconds_s,
            seconds_s / params.steps,
            view.expected_s,
            view.basis,
        )

    def _rungs(self, model: str, params: GenerateParams, named: str = "") -> tuple[RungView, ...]:
        size = Size(params.width * params.height, 1, params.steps, named)
        return self._runtime.plan(model, size, self._device.id).rungs

    def _view(self, model: str, params: GenerateParams, named: str) -> RungView:
        """Of a rung by any of its names. Raises WorkshopError."""
        rung, there = rung_named(named), self._rungs(model, params, named)
        view = next((each for each in there if rung and each.rung == rung.name), None)
        if view is None:
            raise InvalidRequest("rungs", f'"{model}" has no "{named}"; leave it out')
        return view

    async def _drawn(self, model: str, params: GenerateParams, rung: str) -> float:
        """The seconds, for a prompt that no text encoder has read before."""
        runtime = self._runtime
        self._drawings += 1
        params = msgspec.structs.replace(params, prompt=f"{params.prompt}, {self._drawings}")
        record = await runtime.submit(_YOU, model, params, placement=rung)
        await runtime.finished(record.id)
        view = record.view
        if view is not None and view.state is JobState.FAILED and view.error is not None:
            raise ReportedError(view.error)
        return record.seconds_s or 0.0
