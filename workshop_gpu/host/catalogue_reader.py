"""The catalogue as it is on disk: read again whenever it may have changed."""

import asyncio
import logging
from collections.abc import Callable

import anyio

from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.conductor import events
from workshop_gpu.conductor.errors import ModelUnavailable, WorkshopError
from workshop_gpu.host.downloads import Downloads
from workshop_gpu.host.log_entries import CatalogueRead


class CatalogueReader:
    """Tells the conductor which models there are, and fetches those that are not on disk.

    `tell` hands a fact to the conductor, `announce` a reading to those who show the models.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        downloads: Downloads,
        tell: Callable[[events.Event], None],
        announce: Callable[[CatalogueRead], None],
        log: logging.Logger,
    ) -> None:
        self._catalogue = catalogue
        self._downloads = downloads
        self._tell = tell
        self._announce = announce
        self._log = log
        self._reading = asyncio.Lock()
        self._fault = ""

    async def read(self) -> None:
        """Looks at the file and at the disk. A mistake in the file is told, and keeps what was."""
        # One at a time: the end of a download and a change of the file may come together, and
        # one reading must not take away the models whose facts the other is gathering.
        async with self._reading:
            try:
                await anyio.to_thread.run_sync(self._catalogue.load)
                facts_of_models = await anyio.to_thread.run_sync(self._catalogue.facts)
            except Exception as fault:
                # A fault of ours must not end the workers with it. It is tried again every
                # second, but told once.
                if repr(fault) != self._fault:
                    self._fault = repr(fault)
                    self._log.exception("The catalogue could not be read; it stays as it was")
                return
        self._fault = ""
        self._tell(events.CatalogueChanged(facts_of_models))
        self._announce(CatalogueRead())
        for problem in self._catalogue.problems:
            self._log.warning("%s", problem)

    async def fetch(self, model: str) -> None:
        """Downloads a model; nobody waits for one that was stopped."""
        try:
            await self._downloads.fetch(self._catalogue.get(model))
        except WorkshopError as error:
            self._log.warning("%s", error.message)
            self._tell(events.FetchFailed(model, error.report()))
        except Exception as fault:
            self._log.exception("The download of %s failed", model)
            problem = ModelUnavailable(model, f"its download failed ({type(fault).__name__}).")
            self._tell(events.FetchFailed(model, problem.report()))
        await self.read()
