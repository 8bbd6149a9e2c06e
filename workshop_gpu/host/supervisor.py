"""Keeps one worker per device alive: starts it, hands on its reports, starts it again."""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.worker_process import WorkerProcess
from workshop_gpu.worker.protocol import FromWorker, Ready, ToWorker

_PAUSES_S = (0.0, 1.0, 3.0, 10.0)
"""Before the first, second, … start in a row that did not come to `Ready`."""

OnReport = Callable[[DeviceConfig, FromWorker], Awaitable[None]]
OnEnd = Callable[[DeviceConfig, str, bool], None]


class Supervisor:
    """One device's worker. `on_end` gets the reason and whether the device is given up."""

    def __init__(
        self,
        device: DeviceConfig,
        log_folder: Path,
        threads: int,
        *,
        on_report: OnReport,
        on_end: OnEnd,
        log: logging.Logger,
    ) -> None:
        self.device = device
        self._log_folder = log_folder
        self._threads = threads
        self._on_report = on_report
        self._on_end = on_end
        self._log = log
        self._worker: WorkerProcess | None = None

    @property
    def pid(self) -> int | None:
        return self._worker.pid if self._worker else None

    def send(self, order: ToWorker) -> None:
        """Sends an order. Without a worker it is dropped: the conductor learns of the death."""
        if self._worker is not None:
            self._worker.send(order)

    async def run(self) -> None:
        """Runs until cancelled, or until the worker failed to start too often in a row."""
        failures = 0
        while True:
            await anyio.sleep(_PAUSES_S[failures])
            became_ready, reason = await self._live()
            failures = 0 if became_ready else failures + 1
            given_up = failures >= len(_PAUSES_S)
            self._log.warning("The worker of %s ended (%s).", self.device.id, reason)
            self._on_end(self.device, reason, given_up)
            if given_up:
                return

    async def _live(self) -> tuple[bool, str]:
        """One worker's life. Returns whether it ever was ready, and how it ended."""
        became_ready = False
        worker = await WorkerProcess.start(self.device, self._log_folder, self._threads)
        self._worker = worker
        try:
            while (report := await worker.receive()) is not None:
                became_ready = became_ready or isinstance(report, Ready)
                await self._on_report(self.device, report)
        finally:
            self._worker = None
            with anyio.CancelScope(shield=True):
                reason = await worker.end()
        return became_ready, reason
