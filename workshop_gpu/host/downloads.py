"""The downloads that are under way, and how far they are."""

import asyncio
import threading
from collections.abc import Callable

import anyio

from workshop_gpu.catalogue.download import Progress, download
from workshop_gpu.catalogue.spec import ModelSpec
from workshop_gpu.host.own_thread import in_own_thread

Download = Callable[[ModelSpec, Progress], object]
"""Brings a model onto this disk; blocks, and raises a WorkshopError where it cannot."""


class _Stopped(Exception):
    """Nobody waits for the download any more."""


class Downloads:
    """Runs downloads in threads. `changed` is called on the event loop's thread as they go on."""

    def __init__(self, changed: Callable[[], None], run: Download = download) -> None:
        self._changed = changed
        self._download = run
        self._bytes: dict[str, tuple[int, int]] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}

    def get(self, model: str) -> tuple[int, int] | None:
        """(done, total) bytes of a download that is under way; (0, 0) while the size is unknown."""
        return self._bytes.get(model)

    async def fetch(self, spec: ModelSpec) -> None:
        """Downloads a model, or returns once `stop` is called. Raises the WorkshopError that
        says why it could not."""
        loop = asyncio.get_running_loop()
        stopped = threading.Event()

        def progress(done_bytes: int, total_bytes: int) -> None:
            if stopped.is_set():  # a thread cannot be cancelled: it ends here, or with the server
                raise _Stopped
            loop.call_soon_threadsafe(self._note, spec.id, done_bytes, total_bytes)

        self._bytes[spec.id] = (0, 0)
        try:
            with anyio.CancelScope() as self._scopes[spec.id]:
                await in_own_thread(
                    f"workshop-gpu-download-{spec.id}",
                    lambda: self._download(spec, progress),
                    stop=stopped.set,
                )
        finally:
            del self._bytes[spec.id], self._scopes[spec.id]

    def stop(self, model: str) -> None:
        """Ends a download that is under way; what has arrived of it stays on the disk."""
        if model in self._scopes:
            self._scopes[model].cancel()

    def _note(self, model: str, done_bytes: int, total_bytes: int) -> None:
        before = self._bytes.get(model)
        if before is None:
            return
        self._bytes[model] = (done_bytes, total_bytes)
        # Told in hundredths, so that a fast download does not flood those who read.
        if not total_bytes or done_bytes * 100 // total_bytes != before[0] * 100 // total_bytes:
            self._changed()
