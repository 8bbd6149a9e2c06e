"""Reading a block's bytes from its files: part by part, cast where needed, checked for NaN."""

import errno
import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workshop_gpu.worker.checkpoints import BadCheckpoint
from workshop_gpu.worker.layout import Block, Piece
from workshop_gpu.worker.shared_memory import NoRoom
from workshop_gpu.worker.stored import OpenFiles, StoredTensor

_MOST_VIEWS = 512
"""For one call; Linux takes 1,024."""

_LOOKED_AT = 2**28
"""Numbers at a time."""

_INFINITY: dict[torch.dtype, tuple[Any, Any, int, int]] = {
    torch.float64: (np.int64, np.uint64, 0x7FF0_0000_0000_0000, 0xFFF0_0000_0000_0000),
    torch.float32: (np.int32, np.uint32, 0x7F80_0000, 0xFF80_0000),
    torch.float16: (np.int16, np.uint16, 0x7C00, 0xFC00),
    torch.bfloat16: (np.int16, np.uint16, 0x7F80, 0xFF80),
}
"""By dtype: as which integers its bits are seen, and the bits of both infinities. What is above
one of them is not a number; infinities may be meant (masks)."""


class BlockReader:
    """Reads any stretch of a block out of the files, or out of tensors. Threads may share it."""

    def __init__(
        self,
        block: Block,
        files: OpenFiles,
        *,
        check_numbers: bool = True,
        read_again: bool = False,
    ) -> None:
        """`check_numbers`: while reading; else somebody has to call the function of that name.
        `read_again`: the page cache keeps what was read for another reader."""
        self._checks = check_numbers
        self._read_again = read_again
        self._pieces = block.pieces
        self._starts = [piece.place.start for piece in block.pieces]
        self._files = files

    def read(self, start: int, into: memoryview) -> None:
        """The block's bytes from `start` on, as many as `into` has room for.

        Gaps between tensors are zeros. Raises BadCheckpoint, naming the file, for what cannot be
        read, ends too early or is not a number.
        """
        array = np.frombuffer(into, np.uint8)
        stop, reached = start + len(into), start
        plain: list[tuple[StoredTensor, int, memoryview]] = []
        for piece in self._pieces[max(0, bisect_right(self._starts, start) - 1) :]:
            place = piece.place
            if place.start >= stop:
                break
            first, last = max(start, place.start), min(stop, place.stop)
            if first >= last:
                continue
            array[reached - start : first - start] = 0
            reached = last
            target = into[first - start : last - start]
            if isinstance(piece.source, torch.Tensor):
                _copy_tensor(piece, first - place.start, target)
            elif piece.source.dtype == place.dtype:
                plain.append((piece.source, piece.source.start + first - place.start, target))
            else:
                self._cast(piece, piece.source, first - place.start, target)
        array[reached - start :] = 0
        self._read_plain(plain)
        if self._checks:
            self._check_numbers(start, into)

    def _read_plain(self, wanted: list[tuple[StoredTensor, int, memoryview]]) -> None:
        """What lies back to back in a file is read by one call into its several places."""
        run: list[memoryview] = []
        run_file, run_start, run_end = Path(), 0, 0
        for source, position, target in wanted:
            follows = source.file == run_file and position == run_end and len(run) < _MOST_VIEWS
            if run and not follows:
                self._read_run(run_file, run_start, run)
            if not run or not follows:
                run, run_file, run_start = [], source.file, position
            run.append(target)
            run_end = position + len(target)
        if run:
            self._read_run(run_file, run_start, run)

    def _read_run(self, path: Path, position: int, targets: Sequence[memoryview]) -> None:
        left = list(targets)
        start, descriptor = position, self._files.descriptor(path)
        while left:
            try:
                count = os.preadv(descriptor, left, position)
            except OSError as problem:
                if problem.errno == errno.EFAULT:
                    raise NoRoom("there is no host memory left for the weights") from None
                raise BadCheckpoint(f"{path} cannot be read: {problem.strerror}") from None
            if count == 0:
                raise BadCheckpoint(f"{path} is incomplete: it ends at {position} bytes")
            position += count
            while left and count >= len(left[0]):
                count -= len(left.pop(0))
            if left:
                left[0] = left[0][count:]
        if not self._read_again:
            self._files.forget_cached_pages(path, start, position - start)

    def forget_cached_pages(self) -> None:
        """What is in the pool need not be in the page cache too; for a reader that read again."""
        for piece in self._pieces:
            if isinstance(source := piece.source, StoredTensor):
                self._files.forget_cached_pages(source.file, source.start, source.size_bytes)

    def _cast(self, piece: Piece, source: StoredTensor, offset: int, target: memoryview) -> None:
        """As the library casts: element by element, so in stretches just as well."""
        width = piece.place.dtype.itemsize
        first, count = offset // width, len(target) // width
        raw = memoryview(bytearray(count * source.dtype.itemsize))
        self._read_run(source.file, source.start + first * source.dtype.itemsize, [raw])
        read = torch.frombuffer(raw, dtype=source.dtype)
        torch.frombuffer(target, dtype=piece.place.dtype).copy_(read)

    def _check_numbers(self, start: int, into: memoryview) -> None:
        stop = start + len(into)
        for piece in self._pieces[max(0, bisect_right(self._starts, start) - 1) :]:
            place = piece.place
            if place.start >= stop:
                break
            first, last = max(start, place.start), min(stop, place.stop)
            if first < last and has_nan(into[first - start : last - start], place.dtype):
                raise _not_a_number(piece)


def has_nan(data: memoryview, dtype: torch.dtype) -> bool:
    """Whether these bytes of that dtype hold something that is not a number."""
    if dtype not in _INFINITY or not data:
        return False
    signed, unsigned, positive, negative = _INFINITY[dtype]
    # Seen as signed, the largest is a positive number; as unsigned, a negative one if there is any.
    if int(np.frombuffer(data, signed).max()) > positive:
        return True
    return int(np.frombuffer(data, unsigned).max()) > negative


def check_numbers(block: Block, memory: torch.Tensor) -> None:
    """The same for a whole block that lies on a device, as uint8. Raises BadCheckpoint.

    Tensors of one dtype that follow each other are looked at together, zeros between them included.
    """
    suspects: list[tuple[Sequence[Piece], torch.Tensor]] = []
    for dtype, pieces in groupby(block.pieces, lambda piece: piece.place.dtype):
        if dtype in _INFINITY:
            together = list(pieces)
            stretch = memory[together[0].place.start : together[-1].place.stop].view(dtype)
            suspects.extend((together, part.amax()) for part in stretch.split(_LOOKED_AT))
    if not suspects or not bool(torch.stack([peak.isnan() for _, peak in suspects]).any()):
        return
    for looked_at, peak in suspects:
        for piece in looked_at if bool(peak.isnan()) else ():
            place = piece.place
            if bool(memory[place.start : place.stop].view(place.dtype).isnan().any()):
                raise _not_a_number(piece)


def _not_a_number(piece: Piece) -> BadCheckpoint:
    source = piece.source
    if isinstance(source, StoredTensor):
        return BadCheckpoint(f"{source.file}: {source.name} holds NaN, no number")
    return BadCheckpoint(f"{piece.slots[0].name} holds NaN, which is not a number")


def _copy_tensor(piece: Piece, offset: int, target: memoryview) -> None:
    source, place = piece.source, piece.place
    assert isinstance(source, torch.Tensor)
    if source.stride() != place.stride:
        source = torch.empty_strided(place.shape, place.stride, dtype=place.dtype).copy_(source)
    flat = source.as_strided((source.numel(),), (1,), source.storage_offset())
    raw = flat.view(torch.uint8)[offset : offset + len(target)]
    torch.frombuffer(target, dtype=torch.uint8).copy_(raw)
