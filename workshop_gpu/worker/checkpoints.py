"""A model's files before anything opens them: what there is, how large, and what is refused.

Everything here works on names, sizes and safetensors headers. A problem is a `BadCheckpoint` whose
message names the file and says what to do.
"""

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_PICKLE_SUFFIXES = {".bin", ".ckpt", ".pt", ".pth", ".pkl"}
_WEIGHT_STEMS = ("diffusion_pytorch_model", "model")
_LONGEST_HEADER_BYTES = 100_000_000
"""safetensors' own limit for a header."""


class BadCheckpoint(Exception):
    """The model's files are missing, damaged or of a refused format."""


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of the model."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadCheckpoint(f"{path.name} is missing in {path.parent}") from None
    except (OSError, ValueError) as problem:
        raise BadCheckpoint(f"{path} cannot be read: {problem}") from None
    if not isinstance(value, dict):
        raise BadCheckpoint(f"{path} should hold a JSON object")
    return value


def weight_files(folder: Path, variant: str) -> tuple[list[Path], str]:
    """The safetensors files of one component and the variant they are of ("" for the plain ones).

    Like diffusers, a component that has no files of the variant gives its plain ones.
    """
    for wanted in dict.fromkeys((variant, "")):
        for stem in _WEIGHT_STEMS:
            found = _files_of(folder, stem, wanted)
            if found:
                return found, wanted
    _refuse_pickles(folder)
    problem = f"{folder.name}: no safetensors weights in {folder}"
    if others := sorted(path.name for path in folder.glob("*.safetensors")):
        problem += f" under the usual names, only {others[0]}. Does the model need a variant?"
    raise BadCheckpoint(problem)


def _files_of(folder: Path, stem: str, variant: str) -> list[Path]:
    suffix = f".{variant}" if variant else ""
    single = folder / f"{stem}{suffix}.safetensors"
    if single.is_file():
        return [single]
    index = folder / f"{stem}.safetensors.index{suffix}.json"
    if not index.is_file():
        return []
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise BadCheckpoint(f"{index} names no shards")
    paths = [folder / str(name) for name in sorted(set(shards.values()))]
    for path in paths:
        if path.parent != folder or not path.is_file():
            raise BadCheckpoint(f"{path.name} is missing in {folder}, but {index.name} names it")
    return paths


def _refuse_pickles(folder: Path) -> None:
    if not folder.is_dir():
        raise BadCheckpoint(f"the folder {folder.name} is missing in {folder.parent}")
    for path in sorted(folder.iterdir()):
        if path.suffix in _PICKLE_SUFFIXES:
            raise BadCheckpoint(pickle_refusal(path))


def pickle_refusal(path: Path) -> str:
    """Why a pickled checkpoint is not opened, for people."""
    return (
        f"{path.name} is a pickle, which can run any code when it is opened. "
        "Only safetensors and GGUF files are accepted: get or convert the model in one of these."
    )


def is_pickle(path: Path) -> bool:
    """Whether a file's name says that it is a pickled checkpoint."""
    return path.suffix in _PICKLE_SUFFIXES


def check_safetensors(paths: Iterable[Path]) -> int:
    """Check the headers and lengths of the files and return their bytes together.

    A file cut off by a broken copy or download is found here, before a loader maps it.
    """
    total_bytes = 0
    for path in paths:
        total_bytes += _checked_size(path)
    return total_bytes


def check_gguf(path: Path) -> int:
    """Whether this is a GGUF file at all; its bytes. Raises BadCheckpoint."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise BadCheckpoint(f"{path} is damaged: its header is not one of GGUF")
        return path.stat().st_size
    except OSError as problem:
        raise BadCheckpoint(f"{path} cannot be read: {problem.strerror}") from None


def _checked_size(path: Path) -> int:
    size_bytes, _, _ = read_header(path)
    return size_bytes


def read_header(path: Path) -> tuple[int, int, dict[str, Any]]:
    """A safetensors file's length, where its tensors' bytes begin, and its entries by name.

    An entry has `dtype`, `shape` and `data_offsets` (from that beginning on). Raises BadCheckpoint.
    """
    try:
        size_bytes = path.stat().st_size
        with path.open("rb") as file:
            (header_bytes,) = struct.unpack("<Q", file.read(8))
            if not 0 < header_bytes <= min(_LONGEST_HEADER_BYTES, size_bytes - 8):
                raise BadCheckpoint(f"{path} is damaged: its header is not one of safetensors")
            header = json.loads(file.read(header_bytes))
        entries = {name: entry for name, entry in header.items() if name[:2] != "__"}
        ends = [entry["data_offsets"][1] for entry in entries.values()]
        start = 8 + int(header_bytes)
        needed_bytes = start + max(ends, default=0)
    except OSError as problem:
        raise BadCheckpoint(f"{path} cannot be read: {problem.strerror}") from None
    except (struct.error, ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise BadCheckpoint(f"{path} is damaged: its header is not one of safetensors") from None
    if size_bytes != needed_bytes:
        raise BadCheckpoint(
            f"{path} is damaged or incomplete: it has {size_bytes} bytes and should have "
            f"{needed_bytes}. Copy or download it again."
        )
    return size_bytes, start, entries
