"""Where each tensor of a component lies in its block of bytes, and views of a block by that.

A component's weights are one block: the tensors back to back, each at a multiple of 256 bytes, so
that one large copy moves them all. They stand in the order of the files, but so that the tensors
of each submodule lie together: one copy moves a submodule too. The layout follows from the files'
headers, the module's structure and the dtypes alone, so every worker comes to the same one.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from math import prod
from pathlib import Path
from typing import Any

import torch

from workshop_gpu.worker.skeletons import Origin, Skeleton, Slot
from workshop_gpu.worker.stored import StoredTensor, content_name

ALIGN_BYTES = 256
_LAYOUT_VERSION = 2


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in a block: `start` in bytes, strides in elements."""

    start: int
    size_bytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def stop(self) -> int:
        return self.start + self.size_bytes


@dataclass(frozen=True)
class Piece:
    """One tensor of a block, with the slots that show it and the source of its bytes."""

    place: Place
    slots: tuple[Slot, ...]
    source: StoredTensor | torch.Tensor


@dataclass(frozen=True)
class Block:
    """A layout: pieces in order of their places, and the bytes of it all."""

    pieces: tuple[Piece, ...]
    size_bytes: int


def split(skeleton: Skeleton) -> tuple[Block, Block]:
    """The block of weights, and the small block of what the library computes at each opening.

    The weights of a module that the library opened are all its tensors.
    """
    stored = [o for o in skeleton.origins if isinstance(o.source, StoredTensor)]
    computed = [o for o in skeleton.origins if not isinstance(o.source, StoredTensor)]
    if not stored:
        return lay_out(_together(skeleton.module, computed)), lay_out(())
    stored.sort(key=_place_in_files)
    return lay_out(_together(skeleton.module, stored)), lay_out(computed)


def _together(module: Any, origins: Sequence[Origin]) -> list[Origin]:
    """In their order, but the tensors of each submodule one after the other.

    A tensor that several submodules show belongs to what these have in common.
    """
    names = {id(owner): name for name, owner in module.named_modules()}
    homes = [_home([names[id(slot.owner)] for slot in origin.slots]) for origin in origins]
    first: dict[str, int] = {}
    for number, home in enumerate(homes):
        for submodule in home:
            first.setdefault(submodule, number)
    ranks = [
        (*(first[submodule] for submodule in home), number) for number, home in enumerate(homes)
    ]
    return [origins[number] for number in sorted(range(len(origins)), key=ranks.__getitem__)]


def _home(owners: Sequence[str]) -> list[str]:
    """The submodules, from the outermost, that all of these owners are in: "a", "a.b"…"""
    paths = zip(*(name.split(".") for name in owners), strict=False)
    common = takewhile(lambda names: len({*names}) == 1, paths)
    return list(accumulate((names[0] for names in common), "{}.{}".format))


def lay_out(origins: Iterable[Origin]) -> Block:
    """Places for tensors in this order."""
    pieces, start = [], 0
    for origin in origins:
        source, dtype = origin.source, origin.dtype
        shape = tuple(source.shape)
        if isinstance(source, torch.Tensor):
            # What a copy of it would have: its own strides, where they leave no gaps.
            stride = torch.empty_like(source, device="meta").stride()
        else:
            stride = torch.empty(shape, dtype=dtype, device="meta").stride()
        size_bytes = prod(shape) * dtype.itemsize
        place = Place(start, size_bytes, dtype, shape, tuple(stride))
        pieces.append(Piece(place, origin.slots, source))
        start += aligned(size_bytes)
    return Block(tuple(pieces), start)


def _place_in_files(origin: Origin) -> tuple[str, int]:
    assert isinstance(origin.source, StoredTensor)
    return (str(origin.source.file), origin.source.start)


def content_key(block: Block, files: Sequence[Path], made_by: str = "") -> str:
    """A text that names a block's bytes, the same in every worker: the files and the layout.

    `made_by` tells apart what a library makes of the same files. Raises BadCheckpoint.
    """
    names = [content_name(path) for path in files]
    text = hashlib.sha256(f"{_LAYOUT_VERSION}|{made_by}|{'|'.join(names)}".encode())
    order = {path: index for index, path in enumerate(files)}
    for piece in block.pieces:
        place, source = piece.place, piece.source
        known: tuple[object, ...] = ()
        if isinstance(source, StoredTensor):
            known = (order[source.file], source.start, source.dtype)
        text.update(repr((place.start, place.dtype, place.shape, place.stride, known)).encode())
    kind = "sha256" if all(name.startswith("sha256:") for name in names) else "file"
    return f"{kind}:{text.hexdigest()}"


def stretch(pieces: Sequence[Piece]) -> Block:
    """A block of these pieces alone, which lie one after the other in theirs, from 0 on."""
    start = pieces[0].place.start
    moved = [
        replace(piece, place=replace(piece.place, start=piece.place.start - start))
        for piece in pieces
    ]
    return Block(tuple(moved), aligned(moved[-1].place.stop))


def aligned(size_bytes: int) -> int:
    """What so many bytes take in a block."""
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES


def views(block: Block, memory: torch.Tensor) -> list[torch.Tensor]:
    """A tensor for each piece over these bytes (uint8). About 3 µs each."""
    typed: dict[torch.dtype, torch.Tensor] = {}
    shown = []
    for piece in block.pieces:
        place = piece.place
        if place.dtype not in typed:
            typed[place.dtype] = memory.view(place.dtype)
        whole = typed[place.dtype]
        # Counted from where the storage begins, of which the memory may be a later stretch.
        start = whole.storage_offset() + place.start // place.dtype.itemsize
        shown.append(whole.as_strided(place.shape, place.stride, start))
    return shown


def bind(block: Block, memory: torch.Tensor) -> None:
    """Let the module's slots show these bytes."""
    for piece, view in zip(block.pieces, views(block, memory), strict=True):
        for slot in piece.slots:
            slot.put(view)


def strayed(block: Block, memory: torch.Tensor) -> bool:
    """Whether a slot shows other bytes, as after a pipeline's own cast that was broken off."""
    base = memory.data_ptr()
    for piece in block.pieces:
        for slot in piece.slots:
            tensor = slot.tensor
            moved = tensor.data_ptr() != base + piece.place.start and tensor.nbytes > 0
            if moved or tensor.dtype != piece.place.dtype:
                return True
    return False


def unbind(block: Block) -> None:
    """Let the slots hold nothing: one number stands for each tensor."""
    nothing: dict[torch.dtype, torch.Tensor] = {}
    for piece in block.pieces:
        place = piece.place
        single = nothing.setdefault(place.dtype, torch.zeros((), dtype=place.dtype))
        for slot in piece.slots:
            slot.put(single.expand(place.shape))
