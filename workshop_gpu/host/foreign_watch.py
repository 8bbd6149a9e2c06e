"""Asks the driver now and then which processes hold memory of one card.

Each card is asked in a thread of its own, so that one that does not answer keeps the server neither
from the others nor from its end.
"""

from collections.abc import Callable

import anyio

from workshop_gpu.conductor.events import ForeignProcess
from workshop_gpu.host.own_thread import in_own_thread

_REST_S = 2.0
_PATIENCE_S = 30.0
"""A driver that has to wake its cards takes some seconds."""

Processes = tuple[ForeignProcess, ...]
OnRead = Callable[[str, Processes | None], None]


class ForeignWatch:
    """Watches one device. `read` blocks and returns its processes, None where nothing is known;
    `on_read` gets that with the device's name, on the event loop's thread. `tell` is called with
    what people should read when the driver no longer answers, and when it does again."""

    def __init__(
        self,
        device: str,
        read: Callable[[str], Processes | None],
        on_read: OnRead,
        tell: Callable[[str], None],
        *,
        patience_s: float = _PATIENCE_S,
        rest_s: float = _REST_S,
    ) -> None:
        self._device = device
        self._read = read
        self._on_read = on_read
        self._tell = tell
        self._patience_s = patience_s
        self._rest_s = rest_s
        self.problem = ""
        """Why nothing is known at present; "" where all is well."""

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            async with anyio.create_task_group() as group:
                group.start_soon(self._tell_silence)
                found = await in_own_thread(
                    f"workshop-gpu-foreign-{self._device}",
                    lambda: self._read(self._device),
                    stop=lambda: None,
                )
                group.cancel_scope.cancel()
            self._on_read(self._device, found)
            if self.problem:
                self.problem = ""
                self._tell(f"The driver answers again when asked about {self._device}.")
            await anyio.sleep(self._rest_s)

    async def _tell_silence(self) -> None:
        """What was known may be wrong by now: then better nothing is."""
        await anyio.sleep(self._patience_s)
        self.problem = (
            f"The driver does not answer when asked about {self._device}: which other programs "
            "use its memory is not known."
        )
        self._on_read(self._device, None)
        self._tell(self.problem)
