"""What the NVIDIA driver reports of its cards by itself: Xid errors, and which of them end a card.

Numbers and their meaning are those of NVIDIA's Xid catalogue
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html).
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pynvml

_WAIT_MS = 500
"""So long one look lasts at most, and so long the server's end may have to wait for it."""
_REST_S = 60.0
"""Before the driver is asked again that could not be listened to."""
_LOST = 79


class Reach(Enum):
    """What an Xid is the end of."""

    NOTHING = "nothing"
    """It is good to know."""
    CALL = "call"
    """Something that a process did on the card failed, by its own fault: the process will say."""
    PROCESS = "process"
    """The processes that use the card have to start anew, and then it works."""
    CARD = "card"
    """The card does not work before it was reset, or the machine restarted."""


class Xid(msgspec.Struct, frozen=True):
    """One report of the driver."""

    number: int

    @property
    def reach(self) -> Reach:
        return _KNOWN.get(self.number, _UNKNOWN)[0]

    def __str__(self) -> str:
        return f"Xid {self.number}: {_KNOWN.get(self.number, _UNKNOWN)[1]}"


_UNKNOWN = (Reach.NOTHING, "see NVIDIA's catalogue of Xid errors")
_KNOWN = {
    13: (Reach.CALL, "graphics engine exception, mostly an access out of bounds"),
    31: (Reach.CALL, "GPU memory page fault, mostly an illegal address"),
    43: (Reach.CALL, "the GPU stopped processing for one program"),
    45: (Reach.CALL, "preemptive cleanup after an earlier error"),
    68: (Reach.CALL, "video processor exception"),
    109: (Reach.CALL, "a context switch took too long"),
    63: (Reach.NOTHING, "a memory row will be remapped at the next reset"),
    94: (Reach.PROCESS, "contained memory error (ECC)"),
    46: (Reach.CARD, "the GPU stopped processing"),
    48: (Reach.CARD, "double-bit memory error (ECC)"),
    62: (Reach.CARD, "the GPU's internal microcontroller halted"),
    64: (Reach.CARD, "a memory row could not be remapped"),
    74: (Reach.CARD, "NVLink error"),
    _LOST: (Reach.CARD, "the GPU has fallen off the bus"),
    95: (Reach.CARD, "uncontained memory error (ECC)"),
    119: (Reach.CARD, "the GPU's system processor (GSP) does not answer"),
    120: (Reach.CARD, "error of the GPU's system processor (GSP)"),
    140: (Reach.CARD, "unrecovered memory error (ECC)"),
}

OnXid = Callable[[str, Xid], None]


class XidWatch:
    """Listens to the driver on a thread of its own.

    `cards` are the devices' names by the cards' UUIDs; `on_xid` is called on the event loop's
    thread. A card that does not report Xids, or a driver that tells us none (as in some
    containers), is said once in the log.
    """

    def __init__(
        self, cards: Mapping[str, str], on_xid: OnXid, log: logging.Logger, rest_s: float = _REST_S
    ) -> None:
        self._cards = cards
        self._on_xid = on_xid
        self._log = log
        self._rest_s = rest_s
        self._thread = anyio.CapacityLimiter(1)
        self._told = ""
        self._gone: set[str] = set()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            try:
                await self._listen()
            except pynvml.NVMLError as error:
                self._tell_once(f"The driver's Xid reports cannot be read ({error})")
            gone = await self._in_thread(self._lost)
            for device in gone - self._gone:
                self._on_xid(device, Xid(_LOST))
            self._gone = gone
            await anyio.sleep(self._rest_s)

    async def _listen(self) -> None:
        """Raises NVMLError where there is nothing to listen to any more."""
        with _events(self._cards) as (events, deaf):
            if deaf:
                self._tell_once(f"No Xid reports of {', '.join(deaf)}")
            if len(deaf) == len(self._cards):
                return
            while True:
                found = await self._in_thread(lambda: self._wait(events))
                if found is not None:
                    self._on_xid(*found)

    def _wait(self, events: Any) -> tuple[str, Xid] | None:
        """The next report of a card of ours; None where there was none so long."""
        try:
            event = pynvml.nvmlEventSetWait_v2(events, _WAIT_MS)
        except pynvml.NVMLError_Timeout:
            return None
        device = self._cards.get(str(pynvml.nvmlDeviceGetUUID(event.device)))
        return None if device is None else (device, Xid(int(event.eventData)))

    def _lost(self) -> set[str]:
        """The devices whose cards are gone by the driver's own word."""
        lost: set[str] = set()
        for uuid, device in self._cards.items():
            try:
                with _driver():
                    pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid))
            except _GONE:
                lost.add(device)
            except pynvml.NVMLError:
                continue
        return lost

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await anyio.to_thread.run_sync(call, limiter=self._thread)

    def _tell_once(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._log.warning("%s", text)


_GONE = (pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_NotFound)


@contextmanager
def _driver() -> Iterator[None]:
    """Raises NVMLError."""
    pynvml.nvmlInit()
    try:
        yield
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


@contextmanager
def _events(cards: Mapping[str, str]) -> Iterator[tuple[Any, list[str]]]:
    """A set of events that the cards report to, and the devices of those that do not. Raises
    NVMLError."""
    with _driver():
        events, deaf = pynvml.nvmlEventSetCreate(), []
        try:
            for uuid, device in cards.items():
                try:
                    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                    kind = pynvml.nvmlEventTypeXidCriticalError
                    pynvml.nvmlDeviceRegisterEvents(handle, kind, events)
                except (pynvml.NVMLError_NotSupported, *_GONE):
                    deaf.append(device)
            yield events, deaf
        finally:
            pynvml.nvmlEventSetFree(events)
