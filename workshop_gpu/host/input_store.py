"""Pictures that jobs begin with: on disk by the SHA-256 of their content, for those who sent them.

A picture is somebody's if they sent it in this life of the server, or if a job of theirs refers to
it. It stays as long as a job does; one that no job uses goes after an hour, or when the same
participant has sent many others.
"""

import asyncio
import hashlib
import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec

from workshop_gpu.conductor.errors import DiskFull, InputUnknown
from workshop_gpu.host.picture_header import Header, read_header
from workshop_gpu.host.records import JobRecords
from workshop_gpu.host.transparency import transparent_as_white
from workshop_gpu.worker.protocol import GenerateParams, InputFiles

_ID = re.compile(r"[0-9a-f]{64}")
_UNUSED_S = 3600.0
_SWEEP_S = 60.0
_SWEEP_AFTER = 64
"""So many that were sent since the last time are not left to lie for a minute."""
_MOST_UNUSED = 32
"""So many that no job refers to may one participant have."""


class Input(msgspec.Struct, frozen=True):
    """A picture that was sent. Width and height are those of the picture turned upright."""

    id: str
    width: int
    height: int
    size_bytes: int


class InputStore:
    """On the event loop's thread; the disk is left to others."""

    def __init__(self, folder: Path, jobs: JobRecords) -> None:
        self._folder = folder
        self._jobs = jobs
        self._known: dict[str, Input] = {}
        self._sent: dict[str, dict[str, float]] = {}
        """When each participant sent what; the latest last."""
        self._disk = asyncio.Lock()
        """What is being written must not be deleted as something old."""
        self._swept_at = 0.0
        self._taken = 0
        self._looking = asyncio.Lock()
        """One picture at a time is looked at: it may take seconds where a file has millions of
        parts, and hundreds of megabytes once it is decoded."""

    async def restore(self) -> None:
        """Takes in what earlier lives left."""
        self._known = await anyio.to_thread.run_sync(self._look)

    async def take(self, participant: str, content: bytes, field: str = "image") -> Input:
        """Keeps a picture; it is on disk when this returns. The same one again is no second one.

        Raises InvalidRequest for what is no picture that jobs can begin with, and DiskFull.
        """
        async with self._looking:
            header = await anyio.to_thread.run_sync(read_header, content, field)
        async with self._disk:
            input_id = await anyio.to_thread.run_sync(self._write, content)
            known = Input(input_id, header.width, header.height, len(content))
            self._known[input_id] = known
            sent = self._sent.setdefault(participant, {})
            sent.pop(input_id, None)
            sent[input_id] = time.monotonic()
            self._taken += 1
            if self._taken >= _SWEEP_AFTER:
                await self._sweep()
        return known

    async def transparent(self, content: bytes, field: str) -> bytes | None:
        """As `transparent_as_white`; nothing of it was looked at yet. Raises InvalidRequest."""
        async with self._looking:
            await anyio.to_thread.run_sync(read_header, content, field)
            return await anyio.to_thread.run_sync(transparent_as_white, content, field)

    def get(self, participant: str, input_id: str, field: str) -> Input:
        """One of the participant's pictures. Raises InputUnknown."""
        known = self._known.get(input_id)
        if known is None or not self._owns(participant, input_id):
            raise InputUnknown(field, input_id)
        return known

    def path(self, input_id: str) -> Path:
        """Where a picture lies."""
        if not _ID.fullmatch(input_id):
            raise InputUnknown("input", input_id)
        return self._folder / input_id

    def files(self, params: GenerateParams) -> InputFiles:
        """Where those of a job lie."""
        return InputFiles(
            str(self.path(params.start_image)) if params.start_image else "",
            str(self.path(params.mask)) if params.mask else "",
        )

    def sizes(self, params: GenerateParams) -> dict[str, int]:
        """What a job's pictures to begin with take on disk, in bytes, by their ids."""
        used = (self._known.get(input_id) for input_id in _used(params))
        return {each.id: each.size_bytes for each in used if each is not None}

    async def look_after(self) -> None:
        """Now and then: deletes what is kept no longer."""
        if time.monotonic() >= self._swept_at + _SWEEP_S:
            async with self._disk:
                await self._sweep()

    async def _sweep(self) -> None:
        """For who has the disk."""
        self._swept_at, self._taken = time.monotonic(), 0
        gone = self._forget(self._swept_at)
        await anyio.to_thread.run_sync(self._delete, gone)

    def _forget(self, now: float) -> set[str]:
        used = {each for record in self._jobs for each in _used(record.params)}
        kept = set(used)
        for participant, sent in list(self._sent.items()):
            unused = [
                each for each, at in sent.items() if each not in used and at > now - _UNUSED_S
            ]
            still = {*unused[-_MOST_UNUSED:], *(sent.keys() & used)}
            kept |= still
            self._sent[participant] = {each: at for each, at in sent.items() if each in still}
            if not still:
                del self._sent[participant]
        gone = self._known.keys() - kept
        for input_id in gone:
            del self._known[input_id]
        return gone

    def _owns(self, participant: str, input_id: str) -> bool:
        if input_id in self._sent.get(participant, {}):
            return True
        return any(input_id in _used(record.params) for record in self._jobs.of(participant))

    # on the disk

    def _write(self, content: bytes) -> str:
        input_id = hashlib.sha256(content).hexdigest()
        target = self._folder / input_id
        unfinished = target.with_suffix(f".{time.monotonic_ns()}.part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(unfinished, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, target)
            handle = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            raise DiskFull("The picture could not be kept", str(error.strerror)) from None
        return input_id

    def _look(self) -> dict[str, Input]:
        found: dict[str, Input] = {}
        for path in self._folder.glob("*"):
            header = _header_of(path) if _ID.fullmatch(path.name) else None
            if header is None:
                _remove(path)
                continue
            size_bytes = path.stat().st_size
            found[path.name] = Input(path.name, header.width, header.height, size_bytes)
        return found

    def _delete(self, inputs: Iterable[str]) -> None:
        for input_id in inputs:
            _remove(self._folder / input_id)


def _remove(path: Path) -> None:
    """What cannot be deleted stays, until the server's next life at least: it harms nobody."""
    with suppress(OSError):
        path.unlink()


def _header_of(path: Path) -> Header | None:
    """None for a file that is no picture any more."""
    try:
        return read_header(path.read_bytes(), "image")
    except Exception:  # whatever it is, it is not what was sent
        return None


def _used(params: GenerateParams) -> tuple[str, ...]:
    return tuple(filter(None, (params.start_image, params.mask)))
