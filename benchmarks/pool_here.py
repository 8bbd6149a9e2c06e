"""The server's weight pool in a worker's own process, for benchmarks that have no server.

Both ends are the product's own; only the socket between them is left out.
"""

import os
import queue
from typing import Any

from workshop_gpu.host.weight_pool import WeightPool
from workshop_gpu.worker import protocol
from workshop_gpu.worker.link import PoolAnswer
from workshop_gpu.worker.pool_link import PoolLink


class _ServersEnd:
    """Sends what the pool answers; nothing else is ever sent to a pool's only worker."""

    def __init__(self, answers: "queue.SimpleQueue[PoolAnswer]") -> None:
        self._answers = answers

    def send(self, order: protocol.ToWorker, *descriptors: int) -> None:
        """The descriptors stay the pool's, so the worker gets its own, as by a socket."""
        if isinstance(order, protocol.PartGranted | protocol.PartRefused):
            self._answers.put((order, [os.dup(descriptor) for descriptor in descriptors]))


class _WorkersEnd:
    """What a `PoolLink` needs of a worker's link."""

    def __init__(self) -> None:
        self.pool_answers: queue.SimpleQueue[PoolAnswer] = queue.SimpleQueue()
        self._pool = WeightPool()
        self._user = _ServersEnd(self.pool_answers)

    def send(self, report: protocol.PoolReport) -> None:
        self._pool.handle(self._user, report)


def pool_here() -> PoolLink:
    """A pool with the usual budget, half of the memory that is available; its memory goes with
    this process."""
    link: Any = _WorkersEnd()
    return PoolLink(link)
