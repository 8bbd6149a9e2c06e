"""`workshop-gpu generate`: the same conductor, host and worker as in the server, in one process."""

import argparse
import asyncio
import logging
import os
import signal
import sys
import tempfile
from pathlib import Path

from workshop_gpu.api.generation import complete
from workshop_gpu.api.schemas import GenerateRequest
from workshop_gpu.catalogue.catalogue import Catalogue, default_models_file
from workshop_gpu.catalogue.download import download
from workshop_gpu.catalogue.files import LocalState
from workshop_gpu.catalogue.spec import ModelSpec
from workshop_gpu.cli.progress import ProgressLine, bar
from workshop_gpu.cli.swapping import LocalCatalogue, device_and_swap, swaps
from workshop_gpu.client.images import read_metadata
from workshop_gpu.client.step_profile import step_table
from workshop_gpu.conductor import effects
from workshop_gpu.conductor.errors import (
    InvalidRequest,
    ModelDisabled,
    NoDevice,
    ReportedError,
    gigabytes,
)
from workshop_gpu.conductor.ladder import is_placement, names
from workshop_gpu.conductor.rungs import HOST
from workshop_gpu.conductor.states import JobState, SlotState
from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.records import JobRecord, Participant
from workshop_gpu.host.runtime import Runtime, RuntimeSettings
from workshop_gpu.worker.protocol import GenerateParams


def generate(options: argparse.Namespace) -> int:
    """Make the pictures and print their paths; returns the exit status."""
    catalogue = LocalCatalogue(options.models_file or default_models_file())
    catalogue.load()
    for problem in catalogue.problems:
        print(f"workshop-gpu: {problem}", file=sys.stderr)
    spec = _chosen(catalogue, options.model)
    if options.placement and not is_placement(options.placement):
        known = ", ".join(names())
        raise InvalidRequest("placement", f'"{options.placement}" is none of {known}')
    params = complete(_request(options, spec), spec, loras=catalogue.loras_for(spec.id))
    targets = _targets(options.output, spec, params)
    devices = _devices(catalogue, options, spec)
    line = ProgressLine()
    try:
        _fetch(catalogue, spec, line)
        with tempfile.TemporaryDirectory(prefix="workshop-gpu-") as folder:
            images = asyncio.run(
                _Run(catalogue, devices, options, Path(folder), line).draw(spec, params)
            )
    finally:
        line.close()
    if not images:
        raise KeyboardInterrupt
    for target, image in zip(targets, images, strict=True):
        _write(target, image)
        print(target)
        if options.profile:
            print(step_table(read_metadata(image).get("profile")), file=sys.stderr)
    return 0


def _chosen(catalogue: Catalogue, model: str) -> ModelSpec:
    enabled = [spec.id for spec in catalogue.specs if spec.enabled]
    spec = catalogue.get(model or (enabled[0] if enabled else ""))
    if not spec.enabled:
        raise ModelDisabled(spec.id, spec.reason)
    if catalogue.local(spec.id).state is LocalState.UNUSABLE:
        catalogue.source(spec.id)  # raises, with the reason
    return spec


def _devices(
    catalogue: LocalCatalogue, options: argparse.Namespace, spec: ModelSpec
) -> tuple[DeviceConfig, ...]:
    """One, and the model's swap device for a rung that takes memory of it."""
    device, swap = device_and_swap(options.device, spec)
    if swaps(options.placement or spec.memory.named):
        return (device,) if swap is None else (device, swap)
    if spec.memory.swap_device not in HOST:
        catalogue.swap_aside = True
        print(
            f'workshop-gpu: "{spec.memory.swap_device}" is left aside; a rung such as --placement '
            "swap-streamed uses it.",
            file=sys.stderr,
        )
    return (device,)


def _request(options: argparse.Namespace, spec: ModelSpec) -> GenerateRequest:
    width, height = options.size
    return GenerateRequest(
        model=spec.id,
        prompt=options.prompt,
        negative_prompt=options.negative,
        seed=options.seed,
        steps=options.steps,
        guidance=options.guidance,
        width=width,
        height=height,
        images=options.images,
        loras=dict(options.lora),
        profile=options.profile,
    )


def _targets(output: Path | None, spec: ModelSpec, params: GenerateParams) -> list[Path]:
    """Where the images go. Checked first: nobody waits for a picture that cannot be written."""
    output = output or Path(f"{spec.id}-{params.seed}.png")
    if output.suffix.lower() != ".png":
        raise InvalidRequest("output", f"{output} must end in .png")
    if not output.parent.is_dir() or not os.access(output.parent, os.W_OK):
        raise InvalidRequest(
            "output", f"{output.parent} is no folder that can be written to; name another"
        )
    if params.images == 1:
        return [output]
    numbers = range(1, params.images + 1)
    return [output.with_stem(f"{output.stem}-{number}") for number in numbers]


def _write(target: Path, image: bytes) -> None:
    try:
        target.write_bytes(image)
    except OSError as error:
        raise InvalidRequest(
            "output", f"{target} was not written ({error.strerror}); name another place"
        ) from None


def _fetch(catalogue: Catalogue, spec: ModelSpec, line: ProgressLine) -> None:
    if catalogue.local(spec.id).state is LocalState.TO_DOWNLOAD:
        stage = f"downloading {spec.source.hub}"
        line.show(stage)
        download(
            spec,
            lambda done, total: line.show(
                stage, f"{bar(done, total)} {gigabytes(done)} of {gigabytes(total)}"
            ),
        )
        catalogue.look_again(spec.id)


class _Run:
    """One picture's way through a runtime that lives as long as it takes."""

    def __init__(
        self,
        catalogue: Catalogue,
        devices: tuple[DeviceConfig, ...],
        options: argparse.Namespace,
        folder: Path,
        line: ProgressLine,
    ) -> None:
        log = logging.getLogger("workshop_gpu.cli")
        log.addHandler(logging.NullHandler())
        log.propagate = False
        self._settings = RuntimeSettings(devices, folder, threads=options.threads)
        self._runtime = Runtime(self._settings, catalogue, log)
        self._folder = folder
        self._line = line
        self._placement: str = options.placement

    async def draw(self, spec: ModelSpec, params: GenerateParams) -> list[bytes]:
        """The images, or none where the person cancelled. Raises WorkshopError."""
        self._line.show(f"starting {self._settings.devices[0].id}")
        async with self._runtime.running() as runtime:
            await runtime.catalogue_read()
            record = await runtime.submit(
                Participant("cli", "you"), spec.id, params, placement=self._placement
            )
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGINT, self._cancel, record)
            try:
                await self._follow(record)
            finally:
                loop.remove_signal_handler(signal.SIGINT)
            paths = [runtime.images.path(record.id, i) for i in range(record.saved_images)]
            return [path.read_bytes() for path in paths]

    def _cancel(self, record: JobRecord) -> None:
        """The first Ctrl-C cancels the job in good order, the next one ends the process."""
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        self._line.show("cancelling")
        self._runtime.cancel(record.id)

    async def _follow(self, record: JobRecord) -> None:
        events = self._runtime.events
        position = 0
        while not record.ended:
            await events.grown(position)
            for number, event in events.after(position):
                self._show(event)
                position = number
        view = record.view
        if view is not None and view.error is not None and view.state is not JobState.CANCELLED:
            raise ReportedError(view.error)

    def _show(self, event: object) -> None:
        match event:
            case effects.AnnounceSlot(slot) if slot.state is SlotState.LOADING:
                self._line.show(f"loading {slot.model}", bar(slot.done_bytes, slot.total_bytes))
            case effects.AnnounceJob(job) if job.state is JobState.RUNNING:
                self._line.show(
                    "drawing", f"{bar(job.step, job.steps)} step {job.step} of {job.steps}"
                )
            case effects.AnnounceDevice(device) if device.state == "lost":
                raise NoDevice(self._worker_words())

    def _worker_words(self) -> str:
        """The last line of the worker's own log says why it could not start."""
        logs = sorted((self._folder / "logs").glob("*"))
        lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
        reason = next((line.strip() for line in reversed(lines) if line.strip()), "no reason given")
        return f"the worker did not start ({reason}). `workshop-gpu doctor` says more."
