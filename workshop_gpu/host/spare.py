"""The spare worker: a process with everything imported stands by, so that a restart takes little.

Importing the libraries takes seconds, from a cold disk many. The spare has done that. To open a
card takes most of a second, or two beside the end of its last worker. So where there is one device,
a card so large that half a gigabyte of it is little, the spare opens it while it stands by.
Elsewhere it touches no card before it takes a device over, and opens it while the last worker goes.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import anyio

from workshop_gpu.conductor.effects import Snapshot
from workshop_gpu.conductor.states import ReservationState
from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.worker_process import UNCOMPILED, Compilation, WorkerProcess
from workshop_gpu.worker.protocol import Prepare, Ready
from workshop_gpu.worker.protocol_spare import StandingBy

_PAUSES_S = (0.0, 3.0, 10.0)
"""Before the first, second, … start in a row of a spare that was of no use."""
_IMPORTS_TIMEOUT_S = 300.0
_RETRY_S = 300.0
"""Before it is tried again after that."""
_REST_S = 10.0
"""After one was taken: first the new worker has the cores for itself, to load its models."""
_LARGE_CARD_BYTES = 40_000_000_000
"""A CUDA context takes half a gigabyte."""


class SpareWorker:
    """Starts the devices' workers, from the spare where one stands by; keeps the spare.

    `devices` are those that it may have to take over; `prepare` says what it should build ahead
    meanwhile. `holds` is called with its process number when it opens a device ahead, and with None
    once it no longer stands by; `tell` with what people should read.
    """

    def __init__(
        self,
        log_folder: Path,
        threads: int,
        devices: tuple[DeviceConfig, ...],
        log: logging.Logger,
        *,
        prepare: Callable[[], Prepare] | None = None,
        compilation: Compilation = UNCOMPILED,
        holds: Callable[[int | None], None] = lambda pid: None,
        tell: Callable[[str], None] = lambda text: None,
        pauses_s: tuple[float, ...] = _PAUSES_S,
        retry_s: float = _RETRY_S,
        rest_s: float = _REST_S,
    ) -> None:
        self._log_folder = log_folder
        self._threads = threads
        self._cards = tuple(each.gpu_uuid for each in devices if each.gpu_uuid)
        self._is_alone = len(devices) == 1
        self._log = log
        self._prepare = prepare
        self._compilation = compilation
        self._holds = holds
        self._tell = tell
        self._pauses_s = pauses_s
        self._retry_s = retry_s
        self._rest_s = rest_s
        self._opens: tuple[DeviceConfig, int] | None = None
        self._gives_way = False
        self._standing_by: WorkerProcess | None = None
        self._stands_by = asyncio.Event()
        self._is_time = asyncio.Event()
        self._taken = asyncio.Event()
        self._let_go = asyncio.Event()
        self._given_up = asyncio.Event()
        self.problem = ""
        """Why there is none, after several tries; "" where all is well."""

    async def start(self, device: DeviceConfig, log_folder: Path, threads: int) -> WorkerProcess:
        """A worker for this device; it reports Ready by itself. Raises OSError."""
        worker = await self.take(device, log_folder)
        if worker is None:
            return await self.start_fresh(device, log_folder, threads)
        worker.begin()
        return worker

    async def take(
        self, device: DeviceConfig, log_folder: Path, context_bytes: int = 0
    ) -> WorkerProcess | None:
        """The spare, if there is one. It opens the device while the last worker may still be going,
        and is to be told to `begin` once that is gone. `context_bytes`: see `TakeOver`."""
        worker = self._standing_by
        if worker is None:
            return None
        self._standing_by = None
        self._stands_by.clear()
        # The next one is not to take the cores from this one: it waits until this is ready.
        self._is_time = asyncio.Event()
        self._taken.set()
        with anyio.CancelScope(shield=True):
            await self._let_go.wait()  # until nobody else reads from it
        if not worker.opens:
            worker.take_over(device, log_folder, context_bytes)
        return worker

    async def start_fresh(
        self, device: DeviceConfig, log_folder: Path, threads: int
    ) -> WorkerProcess:
        """A worker for this device in a new process. Raises OSError."""
        return await WorkerProcess.start(device, log_folder, threads, self._compilation)

    async def stands_by(self) -> int:
        """Waits until a process stands by; returns its number."""
        while self._standing_by is None:
            await self._stands_by.wait()
        return self._standing_by.pid

    async def taken(self) -> None:
        """Waits until the process that stands by is to take a device over."""
        await self._taken.wait()

    def worker_is_ready(self, device: DeviceConfig, report: Ready) -> None:
        """A device's worker has begun to work: now a spare may be prepared."""
        large = bool(device.gpu_uuid) and report.total_bytes >= _LARGE_CARD_BYTES
        if self._is_alone and large and self._opens is None and not self._gives_way:
            # The first worker's figure: one that was told it counts it as its own.
            self._opens = device, report.memory.ours_bytes
        self._is_time.set()

    def look(self, snapshot: Snapshot) -> None:
        """Whether somebody waits for the memory that a spare with the card open has: a job beside
        which others hold too much, or a notebook for room or for the whole card. Then the spare
        gives it back, and opens no card ahead any more: it would take what they need again."""
        if self._opens is not None and _is_short(snapshot):
            self._log.info("The spare worker gives its memory of the card to those who wait.")
            self._opens, self._gives_way = None, True
            self._given_up.set()

    async def run(self) -> None:
        """Keeps a spare until cancelled. One that was of no use too often in a row is tried again
        now and then only."""
        failures = 0
        while True:
            await self._is_time.wait()
            often = failures < len(self._pauses_s)
            await anyio.sleep(self._pauses_s[failures] if often else self._retry_s)
            if reason := await self._keep_one():
                failures += 1
                self._log.warning("The spare worker ended (%s).", reason)
                if failures >= len(self._pauses_s) and not self.problem:
                    self._miss(reason)
            else:
                failures = 0
                await self._is_time.wait()
                await anyio.sleep(self._rest_s)

    def _miss(self, reason: str) -> None:
        self.problem = (
            f"There is no spare worker: restarts of GPU workers take longer. It ended ({reason}), "
            f"and is tried again every {self._retry_s / 60:.0f} minutes."
        )
        self._tell(self.problem)

    async def _keep_one(self) -> str:
        """One spare, until it is taken or given up: then "". Otherwise how it ended."""
        self._taken, self._let_go, self._given_up = (asyncio.Event() for _ in range(3))
        try:
            worker = await WorkerProcess.stand_by(
                self._log_folder, self._threads, self._cards, self._compilation
            )
        except OSError as error:
            return f"it could not be started: {error.strerror or error}"
        reason, report = "", None
        try:
            with anyio.move_on_after(_IMPORTS_TIMEOUT_S):
                report = await worker.receive()
            if isinstance(report, StandingBy):
                if self._prepare is not None:
                    worker.send(self._prepare())
                if self._opens is not None:
                    device, context_bytes = self._opens
                    worker.take_over(device, self._log_folder, context_bytes)
                    self._holds(worker.pid)
                self._standing_by = worker
                self._stands_by.set()
                if self.problem:
                    self.problem = ""
                    self._tell("A spare worker stands by again.")
                await self._until_taken_or_ended(worker)
        finally:
            self._standing_by = None
            self._stands_by.clear()
            self._holds(None)
            if not self._taken.is_set():
                with anyio.CancelScope(shield=True):
                    reason = await worker.end()
            self._let_go.set()
        return "" if self._given_up.is_set() else reason

    async def _until_taken_or_ended(self, worker: WorkerProcess) -> None:
        async with anyio.create_task_group() as group:

            async def until_ended() -> None:
                await worker.receive()  # it says nothing while it stands by
                group.cancel_scope.cancel()

            async def until_given_up() -> None:
                await self._given_up.wait()
                group.cancel_scope.cancel()

            group.start_soon(until_ended)
            group.start_soon(until_given_up)
            await self._taken.wait()
            group.cancel_scope.cancel()


def _is_short(snapshot: Snapshot) -> bool:
    waits = any(job.waiting_for == "foreign" for job in snapshot.jobs)
    return waits or any(
        each.state is ReservationState.WAITING or each.size_bytes is None
        for each in snapshot.reservations
    )
