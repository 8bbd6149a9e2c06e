"""Fills a grid: as many jobs at once as the server lets one have waiting, in the grid's order.

A thread for each job that is under way submits and waits. Only one of them submits at a time; where
the queue is full it tries again whenever one of the others has started or ended.
"""

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress

from workshop_gpu.client.errors import ClientError, ServerRefused
from workshop_gpu.client.grid_plan import Cell
from workshop_gpu.client.job_handle import JobHandle
from workshop_gpu.client.words import Progress, describe

_AT_ONCE = 8
_SHOW_S = 0.25
_TRY_AGAIN_S = 1.0
_NOT_NOW = ("queue_full", "too_many_requests")

Submit = Callable[[Cell], JobHandle]


class Filling:
    """One run over a grid's cells. `submit` asks for a cell's picture."""

    def __init__(self, cells: list[Cell], submit: Submit) -> None:
        self._cells = cells
        self._submit = submit
        self._turn = threading.Lock()
        self._moved = threading.Event()
        self._stopped = threading.Event()

    def run(self, show: Callable[[], None]) -> bool:
        """Return once all is made, or has failed; whether nobody interrupted it.

        `show` is called in this thread, a few times a second. An interrupt cancels what is under
        way, and what is made stays.
        """
        pool = ThreadPoolExecutor(_AT_ONCE, "workshop-gpu-grid")
        left: set[Future[None]] = {pool.submit(self._make, cell) for cell in self._cells}
        try:
            while left:
                show()
                done, left = wait(left, _SHOW_S, FIRST_COMPLETED)
                for each in done:
                    each.result()
        except KeyboardInterrupt:
            self._stop()
        finally:
            self._stopped.set()
            self._moved.set()
            pool.shutdown(wait=True, cancel_futures=True)
        for cell in self._cells:
            if cell.image is None and cell.problem is None:
                cell.words = "not made"
        show()
        return not left

    def _stop(self) -> None:
        self._stopped.set()
        self._moved.set()
        for cell in self._cells:
            if cell.handle is not None and cell.image is None:
                with suppress(ClientError):
                    cell.handle.cancel()

    def _make(self, cell: Cell) -> None:
        try:
            cell.handle = self._accepted(cell)
            if cell.handle is None:
                return
            if self._stopped.is_set():
                cell.handle.cancel()
            (cell.image,) = cell.handle.wait(watch=lambda progress: self._watch(cell, progress))
        except ClientError as problem:
            if not self._stopped.is_set():
                cell.problem, cell.words = problem, str(problem)
        finally:
            self._moved.set()

    def _watch(self, cell: Cell, progress: Progress) -> None:
        if progress.job.state.value == "running" and cell.words == "waiting":
            self._moved.set()
        cell.words = describe(progress).line()

    def _accepted(self, cell: Cell) -> JobHandle | None:
        """The job, once there is a place for it; None where the grid was stopped before."""
        with self._turn:
            while not self._stopped.is_set():
                self._moved.clear()
                try:
                    return self._submit(cell)
                except ServerRefused as refused:
                    # With a limit of 0 no place will ever be free.
                    if refused.kind not in _NOT_NOW or refused.facts.get("limit") == 0:
                        raise
                self._moved.wait(_TRY_AGAIN_S)
        return None
