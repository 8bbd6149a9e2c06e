"""Drives the conductor: one event at a time, each with its effects carried out at once."""

import logging
import time
from collections import deque
from collections.abc import Callable

from workshop_gpu.conductor.conductor import Conductor
from workshop_gpu.conductor.effects import Effect
from workshop_gpu.conductor.events import Event


class Driver:
    """On the event loop's thread only."""

    def __init__(
        self, conductor: Conductor, carry_out: Callable[[Effect], None], log: logging.Logger
    ) -> None:
        self._conductor = conductor
        self._carry_out = carry_out
        self._log = log
        self._pending: deque[Event] = deque()
        self._handling = False

    def ask(self, event: Event) -> None:
        """Hands a request to the conductor; its refusal goes to the caller."""
        if self._handling:
            raise RuntimeError("a request must not come from within an effect")
        self._handle(event)
        self._drain()

    def tell(self, event: Event) -> None:
        """Hands a fact to the conductor, after those that are being handled."""
        self._pending.append(event)
        if not self._handling:
            self._drain()

    def _drain(self) -> None:
        while self._pending:
            event = self._pending.popleft()
            try:
                self._handle(event)
            except Exception:
                # A fact cannot be refused: this is a fault of ours, and must not stop the rest.
                self._log.exception("The conductor failed on %r", event)

    def _handle(self, event: Event) -> None:
        self._handling = True
        try:
            for effect in self._conductor.handle(event, time.monotonic()):
                try:
                    self._carry_out(effect)
                except Exception:
                    # Also a fault of ours, which must not cost the orders behind it.
                    self._log.exception("This could not be carried out: %r", effect)
        finally:
            self._handling = False
