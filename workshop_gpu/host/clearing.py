"""GPUs that the instructor cleared: they stay cleared in the server's next life.

Whoever trains on such a GPU does so outside of the server, and does not notice that it restarts.
"""

import asyncio
import logging
from pathlib import Path

import anyio

from workshop_gpu.conductor.effects import ReservationView
from workshop_gpu.conductor.errors import WorkshopError
from workshop_gpu.host.json_file import JsonFile
from workshop_gpu.host.records import Participant
from workshop_gpu.host.reserving import Reservations

Cleared = dict[str, Participant]
"""By device, who cleared it."""


class Clearing:
    """Clears and opens GPUs, and keeps in a file which are cleared. A disk that fails is told in
    the log, and costs no more than that."""

    def __init__(self, reservations: Reservations, folder: Path, log: logging.Logger) -> None:
        self._reservations = reservations
        self._file: JsonFile[Cleared] = JsonFile(folder / "cleared.json", Cleared)
        self._log = log
        self._written: Cleared = {}
        self._writing = asyncio.Lock()

    async def clear(self, participant: Participant, device: str) -> ReservationView:
        """Raises DeviceUnknown, NoDevice or what else a reservation is refused for."""
        view = self._reservations.clear(participant, device)
        await self.keep()
        return view

    async def open(self, device: str) -> None:
        """Raises DeviceUnknown or NotCleared."""
        self._reservations.open(device)
        await self.keep()

    async def keep(self) -> None:
        """Returns once the file says what is cleared now, if it can be written."""
        async with self._writing:
            cleared = self._reservations.cleared()
            if cleared == self._written:
                return
            self._written = cleared
            try:
                await anyio.to_thread.run_sync(self._file.write, cleared)
            except OSError as error:
                self._log.warning("%s was not written: %s", self._file.path, error.strerror)

    async def restore(self) -> None:
        """What was cleared in the server's last life is cleared again, before anything is loaded
        there. A GPU that this server has not is told in the log."""
        cleared, problem = await anyio.to_thread.run_sync(self._file.read)
        if problem:
            self._log.warning("%s. No GPU is cleared.", problem)
        self._written = cleared or {}
        for device, participant in self._written.items():
            try:
                self._reservations.clear(participant, device)
            except WorkshopError as error:
                self._log.warning("%s is not cleared again: %s", device, error.message)
