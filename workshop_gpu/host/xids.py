"""What the NVIDIA driver reports of its cards by itself: Xid errors, and which of them end a card.

Numbers and their meaning are those of NVIDIA's Xid catalogue
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html).
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from typing import Any, TypeVar

import anyio
import msgspec
import pynvml

from workshop_gpu.host.own_thread import in_own_thread
from workshop_gpu.host.watchdog import Watchdog

_WAIT_MS = 500
"""So long one look lasts at most, and so long the server's end may have to wait for it."""
_GRACE_S = 1.0
"""So long the server's end waits for a driver that does not answer."""
_SILENCE_S = 30.0
"""After this people are told of it. A driver that has to wake its cards takes some seconds."""
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
Heard = Callable[[tuple[str, Xid] | None], object]
T = TypeVar("T")


class XidWatch:
    """Listens to the driver on a thread of its own.

    `cards` are the devices' names by the cards' UUIDs; `on_xid` is called on the event loop's
    thread. A card that does not report Xids, or a driver that tells us none (as in some
    containers), is said once in the log. `tell` is called with what people should read when the
    driver no longer answers, and when it does again.
    """

    def __init__(
        self,
        cards: Mapping[str, str],
        on_xid: OnXid,
        log: logging.Logger,
        tell: Callable[[str], None] = lambda text: None,
        *,
        rest_s: float = _REST_S,
        silence_s: float = _SILENCE_S,
    ) -> None:
        self._cards = cards
        self._on_xid = on_xid
        self._log = log
        self._tell = tell
        self._rest_s = rest_s
        self._silence_s = silence_s
        self._told = ""
        self._gone: set[str] = set()
        self.problem = ""
        """Why nothing would be heard of an Xid at present; "" where all is well."""

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._ask(self._listen)
            gone = await self._ask(self._lost)
            for device in gone - self._gone:
                self._on_xid(device, Xid(_LOST))
            self._gone = gone
            await anyio.sleep(self._rest_s)

    async def _ask(self, call: Callable[[threading.Event, Heard], T]) -> T:
        """Calls the driver in a thread, which is to end when the event is set, and to tell after
        each look that it goes on, with what it has found."""
        loop, over = asyncio.get_running_loop(), threading.Event()
        watchdog = Watchdog(self._silence_s)

        def hear(found: tuple[str, Xid] | None) -> None:
            if over.is_set():
                return
            watchdog.heard()
            self._answers()
            if found is not None:
                self._on_xid(*found)

        async with anyio.create_task_group() as group:
            group.start_soon(self._tell_silence, watchdog)
            answer = await in_own_thread(
                "workshop-gpu-xids",
                lambda: call(over, lambda found: loop.call_soon_threadsafe(partial(hear, found))),
                stop=over.set,
                grace_s=_GRACE_S,
            )
            group.cancel_scope.cancel()
        self._answers()
        return answer

    async def _tell_silence(self, watchdog: Watchdog) -> None:
        await watchdog.silence()
        self.problem = "The driver does not answer: errors of the cards (Xid) are not heard of."
        self._tell(self.problem)

    def _answers(self) -> None:
        if self.problem:
            self.problem = ""
            self._tell("The driver answers again: errors of the cards (Xid) are heard of.")

    def _listen(self, over: threading.Event, hear: Heard) -> None:
        """Until there is nothing to listen to any more."""
        try:
            with _events(self._cards) as (events, deaf):
                if deaf:
                    self._tell_once(f"No Xid reports of {', '.join(deaf)}")
                while len(deaf) < len(self._cards) and not over.is_set():
                    hear(self._wait(events))
        except pynvml.NVMLError as error:
            self._tell_once(f"The driver's Xid reports cannot be read ({error})")

    def _wait(self, events: Any) -> tuple[str, Xid] | None:
        """The next report of a card of ours; None where there was none so long."""
        try:
            event = pynvml.nvmlEventSetWait_v2(events, _WAIT_MS)
        except pynvml.NVMLError_Timeout:
            return None
        device = self._cards.get(str(pynvml.nvmlDeviceGetUUID(event.device)))
        return None if device is None else (device, Xid(int(event.eventData)))

    def _lost(self, over: threading.Event, hear: Heard) -> set[str]:
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
