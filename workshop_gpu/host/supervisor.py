"""Keeps one worker per device alive: starts it, hands on its reports, starts it again."""

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import anyio

from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.watchdog import Watchdog
from workshop_gpu.host.weight_pool import WeightPool
from workshop_gpu.host.worker_process import WorkerProcess
from workshop_gpu.worker.protocol import (
    Done,
    FromWorker,
    Heartbeat,
    Loaded,
    PoolReport,
    Ready,
    ToWorker,
)

_PAUSES_S = (0.0, 1.0, 3.0, 10.0)
"""Before the first, second, … start in a row that did not come to `Ready`."""
_READY_TIMEOUT_S = 300.0
"""Torch from a cold network disk takes a minute or two; a driver that hangs takes for ever."""
_KILL_TIMEOUT_S = 5.0
_NOTE_COUNTS_S = 30.0
"""So long after the driver said something a worker's end is taken for its consequence."""
_DEATHS_OF_SAFE_MODE = 2
"""After so many in a row the next worker is a fresh process: the spare shares too much with it."""

StartWorker = Callable[[DeviceConfig, Path, int], Awaitable[WorkerProcess]]
TakeSpare = Callable[[DeviceConfig, Path, int], Awaitable[WorkerProcess | None]]
"""The number is the bytes that a worker holds of the device before it has any models."""
OnReport = Callable[[DeviceConfig, FromWorker], Awaitable[None]]


@dataclass(frozen=True)
class WorkerEnd:
    """How a worker's life ended, in words, with the last lines of its log. `given_up`: the device
    is taken out."""

    reason: str
    log: tuple[str, ...] = ()
    given_up: bool = False


OnEnd = Callable[[DeviceConfig, WorkerEnd], None]


class Supervisor:
    """One device's worker.

    When one dies while it worked well, the spare (`take_spare`; None: there never is one) becomes
    its heir: it opens the device at once, and begins when the dead one is gone. A worker that is
    silent for `silence_limit_s` (0: without limit) is ended. A device that was
    given up is tried again every `retry_s` (None: never).
    """

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
        start_fresh: StartWorker = WorkerProcess.start,
        take_spare: TakeSpare | None = None,
        pauses_s: tuple[float, ...] = _PAUSES_S,
        ready_timeout_s: float = _READY_TIMEOUT_S,
        silence_limit_s: float = 0.0,
        retry_s: float | None = None,
    ) -> None:
        self.device = device
        self._log_folder = log_folder
        self._threads = threads
        self._pool = pool
        self._on_report = on_report
        self._on_end = on_end
        self._log = log
        self._start = start
        self._start_fresh = start_fresh
        self._take_spare = take_spare
        self._pauses_s = pauses_s
        self._ready_timeout_s = ready_timeout_s
        self._silence_limit_s = silence_limit_s
        self._retry_s = retry_s
        self._worker: WorkerProcess | None = None
        self._heir: WorkerProcess | None = None
        self._context_bytes = 0
        self._stopped_because = ""
        self._deaths = 0
        """Of workers that were ready, in a row, without a picture between them."""
        self._taken_out = False
        self._noted = ""
        self._noted_at = float("-inf")

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

    def take_out(self, reason: str) -> None:
        """The device does not work any more: its worker ends at once, and it is tried again as
        one that was given up."""
        self._taken_out = True
        self.stop_worker(reason)

    def note(self, text: str) -> None:
        """The driver said something of the device. If the worker ends now, that is why."""
        self._noted, self._noted_at = text, anyio.current_time()

    async def run(self) -> None:
        """Runs until cancelled, or until the worker failed to start too often in a row."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._disinherit_when_cancelled)
                await self._keep_one_alive()
                group.cancel_scope.cancel()
        finally:
            await self._disinherit()  # one that was named later than that

    async def _disinherit_when_cancelled(self) -> None:
        """At once, beside the worker's own end: both may be stuck in the driver."""
        try:
            await anyio.sleep_forever()
        finally:
            await self._disinherit()

    async def _keep_one_alive(self) -> None:
        failures = 0
        while True:
            await anyio.sleep(self._pauses_s[failures])
            try:
                became_ready, end = await self._live()
            except Exception as fault:  # of ours: nobody may count on a worker that has ended
                self._log.exception("The server failed over the worker of %s", self.device.id)
                became_ready, end = False, WorkerEnd(f"the server failed: {fault!r}")
            failures = 0 if became_ready else failures + 1
            self._deaths += became_ready
            given_up = failures >= len(self._pauses_s) or self._taken_out
            self._taken_out = False
            self._log.warning("The worker of %s ended (%s).", self.device.id, end.reason)
            self._on_end(self.device, replace(end, given_up=given_up))
            if given_up:
                await self._disinherit()
                if self._retry_s is None:
                    return
                await anyio.sleep(self._retry_s)
                failures = len(self._pauses_s) - 1

    async def _live(self) -> tuple[bool, WorkerEnd]:
        """One worker's life. Returns whether it ever was ready, and how it ended."""
        heir, self._heir = self._heir, None
        if heir is not None:
            heir.begin()
            worker = heir
        else:
            start = self._start if self._deaths < _DEATHS_OF_SAFE_MODE else self._start_fresh
            try:
                worker = await start(self.device, self._log_folder, self._threads)
            except OSError as error:
                return False, WorkerEnd(f"it could not be started: {error.strerror or error}")
        self._worker, became_ready = worker, anyio.Event()
        watchdog = Watchdog(self._silence_limit_s)
        try:
            with anyio.move_on_after(self._ready_timeout_s) as until_ready:
                async with anyio.create_task_group() as group:
                    scope = group.cancel_scope
                    group.start_soon(self._end_if_silent, worker, watchdog, became_ready, scope)
                    group.start_soon(self._name_heir_when_it_dies, worker, became_ready)
                    while (report := await worker.receive()) is not None:
                        watchdog.heard()
                        if isinstance(report, Ready):
                            until_ready.deadline = math.inf
                            became_ready.set()
                            if heir is None:  # an heir was told how much it is
                                self._context_bytes = report.memory.ours_bytes
                        await self._hand_on(worker, report)
                    scope.cancel()
            await self._name_heir(became_ready)
        finally:
            self._worker = None
            with anyio.CancelScope(shield=True):
                reason = await worker.end()
            self._pool.release(worker)
        if self._stopped_because:
            reason, self._stopped_because = self._stopped_because, ""
        elif until_ready.cancelled_caught:
            reason = f"it was not ready within {self._ready_timeout_s:g} s"
        elif self._noted and anyio.current_time() - self._noted_at < _NOTE_COUNTS_S:
            reason = f"{reason} ({self._noted})"
        return became_ready.is_set(), WorkerEnd(reason, worker.last_lines())

    async def _name_heir_when_it_dies(
        self, worker: WorkerProcess, became_ready: anyio.Event
    ) -> None:
        """Its socket tells later. One that never was ready has no heir."""
        if self._take_spare is not None:
            await became_ready.wait()
            await worker.dies()
            await self._name_heir(became_ready)

    async def _name_heir(self, became_ready: anyio.Event) -> None:
        """Unless one that is a fresh process is to be next, or none."""
        next_is_spare = self._deaths + became_ready.is_set() < _DEATHS_OF_SAFE_MODE
        goes_on = became_ready.is_set() and not self._taken_out
        if self._take_spare and self._heir is None and goes_on and next_is_spare:
            self._heir = await self._take_spare(self.device, self._log_folder, self._context_bytes)

    async def _disinherit(self) -> None:
        """There is nothing to take over any more."""
        heir, self._heir = self._heir, None
        if heir is not None:
            with anyio.CancelScope(shield=True):
                await heir.end()

    async def _hand_on(self, worker: WorkerProcess, report: FromWorker) -> None:
        if isinstance(report, PoolReport):
            self._pool.handle(worker, report)
        elif not isinstance(report, Heartbeat):
            if isinstance(report, Loaded):
                self._pool.loaded(worker, report)
            if isinstance(report, Done):
                self._deaths = 0
            await self._on_report(self.device, report)

    async def _end_if_silent(
        self,
        worker: WorkerProcess,
        watchdog: Watchdog,
        became_ready: anyio.Event,
        reading: anyio.CancelScope,
    ) -> None:
        """Before it is ready, the time to get ready is the limit: imports may block everything."""
        await became_ready.wait()
        await watchdog.silence()
        silence = f"it hung: no sign of life for {self._silence_limit_s:g} s"
        self._stopped_because = self._stopped_because or silence
        await worker.kill_hung()
        await anyio.sleep(_KILL_TIMEOUT_S)
        reading.cancel()  # stuck in the driver: its socket would stay open for ever
