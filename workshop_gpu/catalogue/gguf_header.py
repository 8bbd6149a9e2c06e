"""The header of a .gguf file: which tensors it promises, how large, and whether they are there.

Reads the first kilobytes only, without torch, numpy and the weights. The format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (sections "File Structure" and "Tensor
information"); sizes of a type's blocks are those of `ggml.c`.
"""

import math
import struct
from pathlib import Path
from typing import BinaryIO

from workshop_gpu.catalogue.safetensors_header import BrokenFile

_PLAIN = (0, 1)
"""F32 and F16: these few tensors (norms, biases) are cast to the model's dtype."""

_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
    20: (32, 18), 23: (256, 136), 30: (1, 2),
}  # fmt: skip
"""By ggml's number of a type: numbers in a block, and its bytes. These are F32, F16, Q4_0, Q4_1,
Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS and BF16: the ones that diffusers computes with."""

_VALUES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
           12: "d"}  # fmt: skip
"""By the number of a kind of metadata: how it is packed. 8 is a text, 9 a list."""
_TEXT, _LIST = 8, 9

_MOST = 1_000_000
"""No file has more tensors, metadata, or letters in a text; one that says so is broken."""
_MOST_DIMENSIONS = 8
_MOST_ITEMS = 100_000_000
_DEPTH = 4


def tensor_bytes(path: Path, float_bytes: int) -> list[tuple[str, int]]:
    """The file's tensors by name, each with the bytes that it takes once loaded: quantized ones
    stay as they are, F32 and F16 get floats of `float_bytes` each.

    Raises BrokenFile where the file is cut off, something else altogether, or quantized in a way
    that cannot be computed with; OSError where it cannot be read.
    """
    with path.open("rb") as file:
        try:
            tensors, end = _Header(file).read()
        except (struct.error, UnicodeDecodeError, _Nonsense):
            raise BrokenFile(f"{path.name} is cut off or no GGUF file") from None
    file_bytes = path.stat().st_size
    found = []
    for name, count, kind, start in tensors:
        if kind not in _BLOCKS:
            raise BrokenFile(
                f"{path.name} holds {name} in ggml's type {kind}, which diffusers does not "
                "compute with: take a Q4, Q5, Q6, Q8 or K-quantized file"
            )
        numbers, block_bytes = _BLOCKS[kind]
        stored = -(-count // numbers) * block_bytes
        if end + start + stored > file_bytes:
            raise BrokenFile(
                f"{path.name} is cut off: {file_bytes:,} of {end + start + stored:,} bytes and "
                "more are there (copy or download it again)"
            )
        found.append((name, count * float_bytes if kind in _PLAIN else stored))
    return found


class _Nonsense(Exception):
    """What cannot be in such a file."""


class _Header:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._alignment = 32

    def read(self) -> tuple[list[tuple[str, int, int, int]], int]:
        """Each tensor's name, count of numbers, type and place; and from where places count."""
        if self._file.read(4) != b"GGUF" or self._number("I") not in (2, 3):
            raise _Nonsense
        tensors, entries = self._count(), self._count()
        for _ in range(entries):
            name = self._text()
            value = self._value(self._number("I"))
            if name == "general.alignment" and isinstance(value, int):
                self._alignment = max(1, value)
        found = [self._tensor() for _ in range(tensors)]
        return found, -(-self._file.tell() // self._alignment) * self._alignment

    def _tensor(self) -> tuple[str, int, int, int]:
        name = self._text()
        dimensions = self._number("I")
        if dimensions > _MOST_DIMENSIONS:
            raise _Nonsense
        shape = [self._number("Q") for _ in range(dimensions)]
        return name, math.prod(shape), self._number("I"), self._number("Q")

    def _value(self, kind: int, depth: int = 0) -> object:
        if kind == _TEXT:
            return self._text()
        if kind == _LIST and depth < _DEPTH:
            inner, count = self._number("I"), self._count(_MOST_ITEMS)
            if inner in _VALUES:
                self._file.seek(count * struct.calcsize(_VALUES[inner]), 1)
            else:
                for _ in range(count):
                    self._value(inner, depth + 1)
            return None
        if kind not in _VALUES:
            raise _Nonsense
        return self._number(_VALUES[kind])

    def _text(self) -> str:
        return self._file.read(self._count()).decode()

    def _count(self, most: int = _MOST) -> int:
        count = self._number("Q")
        if count > most:
            raise _Nonsense
        return count

    def _number(self, form: str) -> int:
        packed = struct.Struct(f"<{form}")
        number: int = packed.unpack(self._file.read(packed.size))[0]
        return number
