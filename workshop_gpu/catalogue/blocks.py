"""A network's repeated blocks and the layers in them, from the names of its tensors."""

import re
from collections.abc import Iterable, Iterator

from workshop_gpu.conductor.rungs import MOST_IN_LISTS

_OF_LAYERS = ("weight", "bias")
"""A block that has these itself is a layer."""
_BLOCK = re.compile(r"(?P<list>[^\d]*?)\.(?P<number>\d+)\.")

Tensor = tuple[str, int]
"""Its name and its bytes."""


def blocks_of(tensors: Iterable[Tensor]) -> tuple[int, ...]:
    """The sizes of a network's repeated blocks, from its tensors' names and bytes: whatever lies
    in `<list>.<number>.`, the outermost list counting, in lists of two and more. A block that is
    hardly more than lists of its own, as those of a UNet are, is as many blocks as these hold: so
    the worker divides it, too."""
    return tuple(_size(block) for block in _repeated(tensors, least=2))


def layers_of(tensors: Iterable[Tensor]) -> tuple[int, int]:
    """The largest layer in these blocks, and the bytes in them that are in no layer but the
    block's own, such as a table beside its layers."""
    largest = loose = 0
    for block in _repeated(tensors, least=1):
        layers: dict[str, int] = {}
        for name, size in block:
            layer, _, tensor = name.rpartition(".")
            if layer or tensor in _OF_LAYERS:
                layers[layer] = layers.get(layer, 0) + size
            else:
                loose += size
        largest = max(largest, *layers.values(), 0)
    return largest, loose


def _repeated(tensors: Iterable[Tensor], least: int) -> Iterator[list[Tensor]]:
    """The tensors of each block, by their names in it, of lists that have so many elements."""
    for elements in _lists(tensors):
        if len(elements) >= least:
            for element in elements:
                yield from _divided(element)


def _lists(tensors: Iterable[Tensor]) -> list[list[list[Tensor]]]:
    """The outermost lists, with the tensors of each of their elements."""
    lists: dict[str, dict[int, list[Tensor]]] = {}
    for name, size in tensors:
        if match := _BLOCK.match(name):
            elements = lists.setdefault(match["list"], {})
            elements.setdefault(int(match["number"]), []).append((name[match.end() :], size))
    return [[elements[number] for number in sorted(elements)] for elements in lists.values()]


def _divided(element: list[Tensor]) -> list[list[Tensor]]:
    inner = [
        block
        for elements in _lists((f".{name}", size) for name, size in element)
        if not _is_chain(elements)
        for each in elements
        for block in _divided(each)
    ]
    mostly = sum(map(_size, inner)) >= MOST_IN_LISTS * _size(element)
    return inner if inner and mostly else [element]


def _is_chain(elements: Iterable[Iterable[Tensor]]) -> bool:
    """Whether these are bare layers, numbered one after the other, which a block runs as a whole:
    it is no list of blocks, though its names look like one."""
    return not any("." in name for element in elements for name, _ in element)


def _size(block: Iterable[Tensor]) -> int:
    return sum(size for _, size in block)
