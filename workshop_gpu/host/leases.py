"""Holds and reservations of kernels that are at work: the server renews them too.

A thread in the kernel renews what the kernel has. But one call that keeps Python's lock for minutes
(a compiler, a library's own loop, a debugger that stops all threads) keeps that thread waiting as
well, and what it should have renewed would be taken away in the middle of a cell. So what is about
to run out stays as long as its kernel executes something. A kernel at rest renews its own: what
nobody refers to any more ends there. Whether it is busy is Jupyter's to say; where that does not
see it (for a kernel that started after another one was killed, say), its own thread is all.
"""

from collections.abc import Callable
from contextlib import suppress

from workshop_gpu.conductor import events
from workshop_gpu.conductor.effects import Snapshot
from workshop_gpu.conductor.errors import WorkshopError

LOOK_S = 5.0
"""How often it is looked."""
_SOON_S = 3 * LOOK_S
_RENEWED_S = 2 * _SOON_S


class Leases:
    """`ask` hands a request to the conductor; `is_busy` says whether a kernel of this server
    executes something at the moment."""

    def __init__(self, ask: Callable[[events.Event], None], is_busy: Callable[[str], bool]) -> None:
        self._ask = ask
        self._is_busy = is_busy

    def renew(self, seen: Snapshot) -> None:
        """Renews what would run out soon and whose kernel is busy."""
        for hold in seen.holds:
            if hold.kernel is not None and self._needs(hold.kernel, hold.expires_in_s):
                self._renew(events.HoldRenewed(hold.hold, hold.kernel, _RENEWED_S))
        for view in seen.reservations:
            if view.kernel is not None and self._needs(view.kernel, view.expires_in_s):
                self._renew(events.ReservationRenewed(view.reservation, view.kernel, _RENEWED_S))

    def _needs(self, kernel: str, left_s: float | None) -> bool:
        return left_s is not None and left_s < _SOON_S and self._is_busy(kernel)

    def _renew(self, event: events.HoldRenewed | events.ReservationRenewed) -> None:
        with suppress(WorkshopError):  # its time was over before the tick that ends it
            self._ask(event)
