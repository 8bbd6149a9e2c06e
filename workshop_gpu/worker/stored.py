"""A component's tensors as they lie in safetensors files: where, how large, of which content."""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from workshop_gpu.worker.checkpoints import BadCheckpoint, read_header

_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "C64": torch.complex64,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8,
    "BOOL": torch.bool,
}  # fmt: skip
_COMPARED_BYTES = 16 * 2**20
_BLOB = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class StoredTensor:
    """One tensor in a file; `start` counts from the file's beginning, in bytes."""

    name: str
    file: Path
    start: int
    size_bytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Identity:
    """What makes a file this file and no other: a replaced or rewritten one differs."""

    device: int
    inode: int
    size_bytes: int
    changed_ns: int


def stored_tensors(files: Iterable[Path]) -> dict[str, StoredTensor]:
    """All tensors of a component's files by name. Raises BadCheckpoint."""
    found: dict[str, StoredTensor] = {}
    for path in files:
        _, start, entries = read_header(path)
        for name, entry in entries.items():
            found[name] = _stored(path, start, name, entry)
    return found


def _stored(path: Path, start: int, name: str, entry: Any) -> StoredTensor:
    try:
        begin, end = (int(offset) for offset in entry["data_offsets"])
        shape = tuple(int(length) for length in entry["shape"])
        dtype = _DTYPES.get(str(entry["dtype"]))
    except (TypeError, ValueError, KeyError):
        raise BadCheckpoint(f"{path} is damaged: its header is not one of safetensors") from None
    if dtype is None:
        raise BadCheckpoint(f"{path}: {name} is of the dtype {entry['dtype']}, which is not known")
    if begin < 0 or min(shape, default=0) < 0 or end - begin != prod(shape) * dtype.itemsize:
        raise BadCheckpoint(f"{path} is damaged: {name} has another size than its shape")
    return StoredTensor(name, path, start + begin, end - begin, dtype, shape)


def content_name(path: Path) -> str:
    """A text that names a file's content: the hub cache's own digest, else the file's identity."""
    try:
        real = path.resolve(strict=True)
        if real.parent.name == "blobs" and _BLOB.fullmatch(real.name):
            return f"sha256:{real.name}"
        identity = _identity(os.stat(real))
    except OSError as problem:
        raise BadCheckpoint(f"{path} cannot be read: {problem.strerror}") from None
    return f"file:{identity.device}:{identity.inode}:{identity.size_bytes}:{identity.changed_ns}"


class OpenFiles:
    """A component's files held open while they are read; they must stay the same meanwhile."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._descriptors: dict[Path, int] = {}
        self._identities: dict[Path, Identity] = {}
        try:
            for path in paths:
                self._descriptors[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._identities[path] = _identity(os.fstat(self._descriptors[path]))
        except OSError as problem:
            self.close()
            raise BadCheckpoint(f"{path} cannot be read: {problem.strerror}") from None

    def descriptor(self, path: Path) -> int:
        return self._descriptors[path]

    @property
    def descriptors(self) -> tuple[int, ...]:
        return tuple(self._descriptors.values())

    def forget_cached_pages(self, path: Path, start: int, size_bytes: int) -> None:
        """What is in the pool need not be in the page cache too."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):  # advice only
                advice = os.POSIX_FADV_DONTNEED
                os.posix_fadvise(self._descriptors[path], start, size_bytes, advice)

    @property
    def identities(self) -> tuple[Identity, ...]:
        """Of the files as they were opened, in order."""
        return tuple(self._identities.values())

    def check_unchanged(self) -> None:
        """Raises BadCheckpoint where a file was replaced or written to since it was opened."""
        for path, descriptor in self._descriptors.items():
            try:
                now = {_identity(os.fstat(descriptor)), _identity(os.stat(path))}
            except OSError:
                now = set()
            if now != {self._identities[path]}:
                raise BadCheckpoint(f"{path} was changed while it was read; load the model again")

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()


def identities_in(folder: Path) -> dict[str, Identity]:
    """Of all files below a folder that can be looked at, by their path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(OSError):
            found[str(path)] = _identity(os.stat(path))
    return found


def replaced(paths: Sequence[Path], identities: Sequence[Identity]) -> bool:
    """Whether other files lie there by now. Files that are gone are not replaced."""
    for path, identity in zip(paths, identities, strict=True):
        with contextlib.suppress(OSError):
            if _identity(os.stat(path)) != identity:
                return True
    return False


def same_bytes(one: StoredTensor, other: StoredTensor) -> bool:
    """Whether two tensors are stored alike. Raises BadCheckpoint."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    with opened({one.file, other.file}) as files:
        for start in range(0, one.size_bytes, _COMPARED_BYTES):
            length = min(_COMPARED_BYTES, one.size_bytes - start)
            data = [
                os.pread(files.descriptor(each.file), length, each.start + start)
                for each in (one, other)
            ]
            if data[0] != data[1]:
                return False
    return True


@contextlib.contextmanager
def opened(paths: Iterable[Path]) -> Iterator[OpenFiles]:
    """Hold files open for reading. Raises BadCheckpoint."""
    files = OpenFiles(paths)
    try:
        yield files
    finally:
        files.close()


def _identity(status: os.stat_result) -> Identity:
    return Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
