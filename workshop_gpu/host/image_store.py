"""Finished images on disk: one folder per job, one PNG per image, visible only when complete."""

import os
import re
import shutil
from pathlib import Path

from workshop_gpu.conductor.errors import JobUnknown

_JOB_ID = re.compile(r"[0-9a-f]{32}")


class ImageStore:
    """Keeps the images of jobs under one folder. Blocking: call it from a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

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
            os.rename(unfinished, target)
        except OSError:
            # A full disk is not made fuller by what nobody will ever see.
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        return sum(len(image) for image in images)

    def path(self, job: str, index: int) -> Path:
        """Where image `index` of a job lies. Raises JobUnknown where there is none."""
        path = self._job_folder(job) / f"{index}.png"
        if not path.is_file():
            raise JobUnknown(job)
        return path

    def forget(self, job: str) -> None:
        """Deletes a job's images; it is no error if there are none."""
        shutil.rmtree(self._job_folder(job), ignore_errors=True)

    def _job_folder(self, job: str) -> Path:
        if not _JOB_ID.fullmatch(job):
            raise JobUnknown(job)
        return self._folder / job
