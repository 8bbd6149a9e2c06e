"""Finished images on disk: one folder per job, one PNG per image, visible only when complete."""

import os
import re
import shutil
import threading
from collections import OrderedDict
from pathlib import Path

import msgspec

from workshop_gpu.conductor.errors import JobUnknown

_JOB_ID = re.compile(r"[0-9a-f]{32}")
_PNG_END = b"IEND\xaeB`\x82"
FRESH_BYTES = 32 * 2**20
"""What of the newest images stays in memory: most are asked for at once, and never again."""


class Stored(msgspec.Struct, frozen=True):
    """A job's images on disk: how many, their bytes, and when they were written (seconds since
    1970)."""

    images: int
    bytes: int
    at: float


class ImageStore:
    """Keeps the images of jobs under one folder. Blocking: call it from a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fresh: OrderedDict[str, list[bytes]] = OrderedDict()
        self._fresh_bytes = 0
        self._changing = threading.Lock()

    def save(self, job: str, images: list[bytes]) -> int:
        """Writes all images of a job; they appear together, or not at all. Returns the bytes.

        Raises OSError where they cannot be written; then nothing of them is left.
        """
        target = self._job_folder(job)
        unfinished = target.with_name(f".{job}.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True, mode=0o700)
        try:
            for index, image in enumerate(images):
                with open(unfinished / f"{index}.png", "wb") as file:
                    file.write(image)
                    file.flush()
                    os.fsync(file.fileno())
            os.rename(unfinished, target)
            _sync_folder(self._folder)
        except OSError:
            # A full disk is not made fuller by what nobody will ever see.
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        self._keep_fresh(job, images)
        return sum(len(image) for image in images)

    def fresh(self, job: str) -> list[bytes]:
        """A job's images where they are still in memory; empty where they are not."""
        with self._changing:
            return self._fresh.get(job, [])

    def _keep_fresh(self, job: str, images: list[bytes]) -> None:
        with self._changing:
            self._drop_fresh(job)
            self._fresh[job] = images
            self._fresh_bytes += sum(map(len, images))
            while self._fresh_bytes > FRESH_BYTES:
                self._drop_fresh(next(iter(self._fresh)))

    def _drop_fresh(self, job: str) -> None:
        self._fresh_bytes -= sum(map(len, self._fresh.pop(job, [])))

    def look(self) -> dict[str, Stored]:
        """What is there, by job; images that are not whole do not count."""
        found: dict[str, Stored] = {}
        for folder in self._folders():
            if _JOB_ID.fullmatch(folder.name):
                whole = [path.stat() for path in folder.glob("*.png") if _is_whole(path)]
                at = max((each.st_mtime for each in whole), default=0.0)
                found[folder.name] = Stored(len(whole), sum(each.st_size for each in whole), at)
        return found

    def sweep(self) -> None:
        """Deletes what interrupted calls of `save` left. Not while one goes on."""
        for folder in self._folders():
            if folder.name.endswith(".part"):
                shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> list[Path]:
        try:
            return list(self._folder.iterdir())
        except OSError:
            return []

    def path(self, job: str, index: int) -> Path:
        """Where image `index` of a job lies. Raises JobUnknown where there is none."""
        path = self.file(job, index)
        if not path.is_file():
            raise JobUnknown(job)
        return path

    def file(self, job: str, index: int) -> Path:
        """As `path`, without a look at the disk."""
        return self._job_folder(job) / f"{index}.png"

    def forget(self, job: str) -> None:
        """Deletes a job's images; it is no error if there are none."""
        with self._changing:
            self._drop_fresh(job)
        shutil.rmtree(self._job_folder(job), ignore_errors=True)

    def _job_folder(self, job: str) -> Path:
        if not _JOB_ID.fullmatch(job):
            raise JobUnknown(job)
        return self._folder / job


def _is_whole(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            file.seek(-len(_PNG_END), os.SEEK_END)
            return file.read() == _PNG_END
    except OSError:
        return False


def _sync_folder(folder: Path) -> None:
    """What was renamed in the folder outlives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
