"""Keeps one worker per device alive: starts it, hands on its reports, starts it again."""

import logging
import math
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.weight_pool import WeightPool
from workshop_gpu.host.worker_process import WorkerProcess
from workshop_gpu.worker.protocol import FromWorker, Loaded, PoolReport, Ready, ToWorker

_PAUSES_S = (0.0, 1.0, 3.0, 10.0)
"""Before the first, second, … start in a row that did not come to `Ready`."""
_READY_TIMEOUT_S = 300.0
"""Torch from a cold network disk takes a minute or two; a driver that hangs takes for ever."""

StartWorker = Callable[[DeviceConfig, Path, int], Awaitable[WorkerProcess]]
OnReport = Callable[[DeviceConfig, FromWorker], Awaitable[None]]
OnEnd = Callable[[DeviceConfig, str, bool], None]


class Supervisor:
    """One device's worker. `on_end` gets the reason and whether the device is given up."""

    def __init__(
        self,
        device: DeviceConfig,
        log_folder: Path,
        threads: int,
        pool: WeightPool,
        *,
        on_report: OnReport,
        on_end: OnEnd,
        log: logging.Logger,
        start: StartWorker = WorkerProcess.start,
        pauses_s: tuple[float, ...] = _PAUSES_S,
        ready_timeout_s: float = _READY_TIMEOUT_S,
    ) -> None:
        self.device = device
        self._log_folder = log_folder
        self._threads = threads
        self._pool = pool
        self._on_report = on_report
        self._on_end = on_end
        self._log = log
        self._start = start
        self._pauses_s = pauses_s
        self._ready_timeout_s = ready_timeout_s
        self._worker: WorkerProcess | None = None
        self._stopped_because = ""

    @property
    def pid(self) -> int | None:
        return self._worker.pid if self._worker else None

    def send(self, order: ToWorker) -> None:
        """Sends an order. Without a worker it is dropped: the conductor learns of the death."""
        if self._worker is not None:
            self._worker.send(order)

    def stop_worker(self, reason: str) -> None:
        """Ends the worker at once, as one that hangs; the next one starts."""
        if self._worker is not None:
            self._stopped_because = reason
            self._worker.kill()

    async def run(self) -> None:
        """Runs until cancelled, or until the worker failed to start too often in a row."""
        failures = 0
        while True:
            await anyio.sleep(self._pauses_s[failures])
            became_ready, reason = await self._live()
            failures = 0 if became_ready else failures + 1
            given_up = failures >= len(self._pauses_s)
            self._log.warning("The worker of %s ended (%s).", self.device.id, reason)
            self._on_end(self.device, reason, given_up)
            if given_up:
                return

    async def _live(self) -> tuple[bool, str]:
        """One worker's life. Returns whether it ever was ready, and how it ended."""
        became_ready = False
        try:
            worker = await self._start(self.device, self._log_folder, self._threads)
        except OSError as error:
            return False, f"it could not be started: {error.strerror or error}"
        self._worker = worker
        try:
            with anyio.move_on_after(self._ready_timeout_s) as until_ready:
                while (report := await worker.receive()) is not None:
                    if isinstance(report, PoolReport):
                        self._pool.handle(worker, report)
                        continue
                    if isinstance(report, Ready):
                        became_ready, until_ready.deadline = True, math.inf
                    if isinstance(report, Loaded):
                        self._pool.loaded(worker, report)
                    await self._on_report(self.device, report)
        finally:
            self._worker = None
            with anyio.CancelScope(shield=True):
                reason = await worker.end()
            self._pool.release(worker)
        if self._stopped_because:
            reason, self._stopped_because = self._stopped_because, ""
        elif until_ready.cancelled_caught:
            reason = f"it was not ready within {self._ready_timeout_s:g} s"
        return became_ready, reason
