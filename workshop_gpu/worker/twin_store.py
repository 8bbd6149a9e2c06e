"""The twins that this worker can run: files of the server's data folder, read once.

They are kept between starts, for all models alike, apart by the libraries' versions, the card and
the backend: what one of them has made is of no use to another.
"""

import argparse
import contextlib
import hashlib
import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import torch

from workshop_gpu.worker.block_calls import Call
from workshop_gpu.worker.compilers import backend_of
from workshop_gpu.worker.devices import Device
from workshop_gpu.worker.twins import LoadedTwin, Twin, load, twins_in

_LIBRARIES = ("torch", "diffusers", "transformers")
_MOST_BYTES = 2_000_000_000
"""Beyond that the folders go that were used last the longest ago."""
_UNFINISHED_S = 86_400.0
"""Nobody writes to a file for so long."""


def open_store(options: argparse.Namespace, device: Device) -> "TwinStore | None":
    """The store that a worker's options mean; None where nothing is to be compiled or kept."""
    backend = backend_of(options.compiler, options.device)
    if not (backend and options.compiled and hasattr(torch, "export")):
        return None
    try:
        return TwinStore(Path(options.compiled), device.name, backend)
    except (OSError, UnsafeFolder) as problem:
        print(f"Blocks are not compiled: {problem}", file=sys.stderr)
        return None


class UnsafeFolder(Exception):
    """Others could have put something into the folder that a worker would run."""


@dataclass
class _Kind:
    """What is known of the twins of one kind of blocks."""

    twins: list[LoadedTwin] = field(default_factory=list)
    impossible: set[str] = field(default_factory=set)
    """The forms of calls for which there can be none."""
    given_up: bool = False


class TwinStore:
    """Twins by the kind of their blocks. One thread reads them in, another one runs them."""

    def __init__(self, base: Path, device: str, backend: str) -> None:
        """`device` is the card's name. Raises OSError and UnsafeFolder."""
        self.backend = backend
        versions = [f"{name} {version(name)}" for name in _LIBRARIES]
        text = repr((versions, device, torch.version.cuda, backend))
        self.folder = base / f"twins-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        prepare_folder(base)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        os.utime(self.folder)
        drop_unfinished(self.folder)
        prune(base, keep=self.folder)
        self._kinds: dict[str, _Kind] = {}
        self._read: set[str] = set()
        self._lock = threading.Lock()

    def read(self, kinds: Sequence[str]) -> None:
        """Take in what the folder has for these kinds and was not read yet. A file that cannot be
        read is as good as not there."""
        wanted = set(kinds)
        for twin in twins_in(self.folder):
            if twin.kind in wanted and twin.name not in self._read:
                self.add(twin)

    def add(self, twin: Twin) -> None:
        """Take in one twin."""
        self._read.add(twin.name)
        loaded = None
        if not twin.problem:
            try:
                loaded = load(self.folder, twin)
            except Exception:  # a file of half a write, of another build of torch: each its own
                (self.folder / f"{twin.name}.json").unlink(missing_ok=True)
                return
        with self._lock:
            known = self._kinds.setdefault(twin.kind, _Kind())
            if loaded is None:
                known.impossible.add(twin.form)
            else:
                known.twins.append(loaded)

    def has(self, kind: str) -> bool:
        """Whether there is a twin for blocks of this kind."""
        with self._lock:
            known = self._kinds.get(kind)
            return known is not None and bool(known.twins)

    def find(self, kind: str, call: Call, tensors: Sequence[torch.Tensor]) -> LoadedTwin | None:
        """The oldest twin that holds for the call: the same one each time."""
        with self._lock:
            known = self._kinds.get(kind)
            twins = tuple(known.twins) if known else ()
        fitting = (each for each in twins if each.twin.form == call.form)
        return next((each for each in fitting if each.holds_for(tensors)), None)

    def forget(self, kind: str, twin: LoadedTwin) -> None:
        """The twin does not work: from now on its calls have none."""
        with self._lock:
            known = self._kinds[kind]
            known.twins = [each for each in known.twins if each is not twin]
            known.impossible.add(twin.twin.form)

    def knows(self, kind: str) -> bool:
        """Whether it was once tried to make a twin of this kind."""
        with self._lock:
            return kind in self._kinds

    def give_up(self, kind: str) -> None:
        """The compiler broke or hung over blocks of this kind: while this worker lives nobody tries
        again to make twins of it, and nobody is told again that there are none."""
        with self._lock:
            self._kinds.setdefault(kind, _Kind()).given_up = True

    def impossible(self, kind: str, call: Call) -> bool:
        """Whether there can be no twin for this call."""
        with self._lock:
            known = self._kinds.get(kind)
            return known is not None and (known.given_up or call.form in known.impossible)


def prepare_folder(base: Path) -> None:
    """A folder for this account alone: what lies in it is run. Raises OSError and UnsafeFolder."""
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = base.stat()
    others = stat.S_IWGRP | stat.S_IWOTH
    if found.st_uid != os.getuid() or found.st_mode & others:
        raise UnsafeFolder(f"{base} could be written to by others; make it yours alone (chmod 700)")


def drop_unfinished(folder: Path) -> None:
    """Remove what compilers that were killed had begun to write."""
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            age_s = time.time() - path.stat().st_mtime
            if path.suffix.removeprefix(".").isdigit() and age_s > _UNFINISHED_S:
                path.unlink()


def prune(base: Path, keep: Path, most_bytes: int = _MOST_BYTES) -> None:
    """Bring the folder below so many bytes, as far as that goes without what is kept."""
    folders = [each for each in base.iterdir() if each.is_dir()]
    sizes = {each: size_bytes(each) for each in folders}
    left_bytes = sum(sizes.values())
    for each in sorted(folders, key=lambda folder: folder.stat().st_mtime):
        if left_bytes > most_bytes and each != keep:
            shutil.rmtree(each, ignore_errors=True)
            left_bytes -= sizes[each]


def size_bytes(folder: Path) -> int:
    """What all files under the folder take."""
    found = 0
    for path in folder.rglob("*"):
        try:
            found += path.stat().st_size if path.is_file() else 0
        except OSError:  # gone meanwhile
            continue
    return found
