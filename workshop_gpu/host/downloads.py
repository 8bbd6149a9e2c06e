"""The downloads that are under way, and how far they are."""

import asyncio
from collections.abc import Callable

import anyio

from workshop_gpu.catalogue.download import Progress, download
from workshop_gpu.catalogue.spec import ModelSpec

Download = Callable[[ModelSpec, Progress], object]
"""Brings a model onto this disk; blocks, and raises a WorkshopError where it cannot."""


class Downloads:
    """Runs downloads in threads. `changed` is called on the event loop's thread as they go on."""

    def __init__(self, changed: Callable[[], None], run: Download = download) -> None:
        self._changed = changed
        self._download = run
        self._bytes: dict[str, tuple[int, int]] = {}

    def get(self, model: str) -> tuple[int, int] | None:
        """(done, total) bytes of a download that is under way; (0, 0) while the size is unknown."""
        return self._bytes.get(model)

    async def fetch(self, spec: ModelSpec) -> None:
        """Downloads a model. Raises the WorkshopError that says why it could not."""
        loop = asyncio.get_running_loop()

        def progress(done_bytes: int, total_bytes: int) -> None:
            loop.call_soon_threadsafe(self._note, spec.id, done_bytes, total_bytes)

        self._bytes[spec.id] = (0, 0)
        try:
            await anyio.to_thread.run_sync(self._download, spec, progress, abandon_on_cancel=True)
        finally:
            del self._bytes[spec.id]

    def _note(self, model: str, done_bytes: int, total_bytes: int) -> None:
        before = self._bytes.get(model)
        if before is None:
            return
        self._bytes[model] = (done_bytes, total_bytes)
        # Told in hundredths, so that a fast download does not flood those who read.
        if not total_bytes or done_bytes * 100 // total_bytes != before[0] * 100 // total_bytes:
            self._changed()
