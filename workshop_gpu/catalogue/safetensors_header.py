"""The header of a .safetensors file: which tensors it promises, and whether the bytes are there.

Reads the first kilobytes only, without torch and without the weights. The format: eight bytes
(little endian) with the header's length, the header as JSON, then the tensors' bytes; see
https://huggingface.co/docs/safetensors (section "Format").
"""

import json
import math
from pathlib import Path

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""

_FLOATS = {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"}
_DTYPE_BYTES = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2,
    "U16": 2, "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip


class BrokenFile(Exception):
    """A file that is no whole .safetensors file; the message names it and says what is wrong."""


def loaded_bytes(path: Path, float_bytes: int) -> int:
    """The bytes that the file's tensors take once loaded, all together; see `tensor_bytes`."""
    return sum(size for _, size in tensor_bytes(path, float_bytes))


def tensor_bytes(path: Path, float_bytes: int) -> list[tuple[str, int]]:
    """The file's tensors by name, each with the bytes that it takes once loaded with floats of
    `float_bytes` each.

    Integers keep their width. Raises BrokenFile where the file is cut off, a Git LFS pointer or
    something else altogether, and OSError where it cannot be read.
    """
    found: list[tuple[str, int]] = []
    for name, dtype, shape in _tensors(path):
        width = float_bytes if dtype in _FLOATS else _DTYPE_BYTES.get(dtype, 1)
        found.append((name, math.prod(shape) * width))
    return found


def _tensors(path: Path) -> list[tuple[str, str, list[int]]]:
    file_bytes = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if start == b"version ":
            raise BrokenFile(
                f"{path.name} is a Git LFS pointer, not the weights (run `git lfs pull`)"
            )
        if len(start) < 8 or length > min(MAX_HEADER_BYTES, max(file_bytes - 8, 0)):
            raise BrokenFile(f"{path.name} is cut off or no safetensors file")
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
            found = [
                (name, str(entry["dtype"]), list(entry["shape"])) for name, entry in header.items()
            ]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            raise BrokenFile(f"{path.name} has an unreadable safetensors header") from None
    whole = 8 + length + end
    if file_bytes < whole:
        raise BrokenFile(
            f"{path.name} is cut off: {file_bytes:,} of {whole:,} bytes are there "
            "(copy or download it again)"
        )
    return found
