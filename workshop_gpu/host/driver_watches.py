"""What the driver is listened to and asked for while the server lives: Xid errors, and who else
holds memory of the cards."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping

from workshop_gpu.host.foreign import ForeignProcesses
from workshop_gpu.host.foreign_watch import ForeignWatch, Processes
from workshop_gpu.host.xids import OnXid, XidWatch


class DriverWatches:
    """`cards` are the devices' names by the cards' UUIDs; where there are none nothing is watched.
    `tell` is called with what people should read."""

    def __init__(
        self,
        cards: Mapping[str, str],
        foreign: ForeignProcesses,
        on_xid: OnXid,
        tell: Callable[[str], None],
        log: logging.Logger,
    ) -> None:
        self.processes: dict[str, Processes] = {}
        """Those of others that hold memory, by device."""
        self._xids = XidWatch(cards, on_xid, log, tell)
        self._foreign = {
            device: ForeignWatch(device, foreign.read, self._on_processes, tell)
            for device in cards.values()
        }

    def tasks(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """What is to run, each with its name."""
        for device, watch in self._foreign.items():
            yield f"The watch over other programs on {device}", watch.run
        if self._foreign:
            yield "The watch over the driver", self._xids.run

    @property
    def problem(self) -> str:
        """What is not known at present, and why, for people; "" where all is known."""
        foreign = (watch.problem for watch in self._foreign.values())
        return " ".join(filter(None, (self._xids.problem, *foreign)))

    def _on_processes(self, device: str, found: Processes | None) -> None:
        others = {each: known for each, known in self.processes.items() if each != device}
        self.processes = others if found is None else {**others, device: found}
