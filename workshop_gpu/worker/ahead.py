"""Models are built ahead of time, but for their weights, while nothing else goes on.

To build a large model's modules for the first time takes a process a second or two, in which the
threads that read its weights hardly get on. A worker that waits for work has that time, and so
has the spare: then a load is nothing but bytes.
"""

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from workshop_gpu.worker.bare import BareModel, bare_model
from workshop_gpu.worker.devices import default_dtype
from workshop_gpu.worker.failures import attempt
from workshop_gpu.worker.pipelines import Plan, plan_model
from workshop_gpu.worker.protocol import ModelSource, Prepare
from workshop_gpu.worker.stored import Identity, identities_in
from workshop_gpu.worker.turns import Turns

_REST_S = 0.5
"""Nothing is built so soon after something else went on: more of it may come."""


@dataclass(frozen=True)
class _Ready:
    plan: Plan
    files: dict[str, Identity]
    model: BareModel


class Ahead:
    """Bare models that wait for their first load. `start` begins to build what `orders` name."""

    def __init__(self, turns: Turns, orders: "queue.SimpleQueue[Prepare] | None" = None) -> None:
        self._turns = turns
        self._orders = orders or queue.SimpleQueue()
        self._ready: dict[ModelSource, _Ready] = {}
        self._opened: set[ModelSource] = set()
        self._devices: dict[ModelSource, str] = {}
        """What was ordered, and for which kind of device."""
        self._lock = threading.Lock()
        """Of what is ready and what was opened: one thread builds, another takes."""
        self._nothing_else = threading.Event()
        self._nothing_else.set()

    def start(self) -> None:
        threading.Thread(target=self._work_for_ever, name="ahead", daemon=True).start()

    @contextmanager
    def stands_aside(self) -> Iterator[None]:
        """While models come and go nothing is built."""
        self._nothing_else.clear()
        try:
            yield
        finally:
            self._nothing_else.set()

    def take(self, plan: Plan) -> BareModel | None:
        """The model, if it was built and its files are still the same; nobody gets it twice."""
        with self._lock:
            self._opened.add(plan.source)
            there = self._ready.pop(plan.source, None)
        if there is None or there.plan != plan or there.files != identities_in(plan.path):
            return None
        return there.model

    def closed(self, source: ModelSource) -> None:
        """The model has to be opened anew: if it was ordered once, it is built again."""
        self._opened.discard(source)
        if device := self._devices.get(source):
            self._orders.put(Prepare(device, (source,)))

    def build(self, source: ModelSource, device: str) -> bool:
        """Build a model for a "cuda" or a "cpu" device, unless it is there or was opened already.
        Whether it is there now. Raises BadCheckpoint and the libraries' errors."""
        if source in self._opened:
            return False
        if source not in self._ready:
            plan = plan_model(source, default_dtype(device))
            files = identities_in(plan.path)
            model = bare_model(plan, self._turns)
            if model is None:
                return False
            with self._lock:
                if source in self._opened:  # meanwhile: nobody would come for this one
                    return False
                self._ready[source] = _Ready(plan, files, model)
        return True

    def _work_for_ever(self) -> None:
        while True:
            order = self._orders.get()
            for source in order.sources:
                self._devices[source] = order.device
                self._wait_for_rest()
                attempt(partial(self.build, source, order.device))  # a load says what is wrong

    def _wait_for_rest(self) -> None:
        while True:
            self._nothing_else.wait()
            time.sleep(_REST_S)
            if self._nothing_else.is_set() and not self._turns.taken:
                return
