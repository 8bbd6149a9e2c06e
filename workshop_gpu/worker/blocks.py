"""The repeated blocks of a network: the pieces by which it can be streamed."""

from collections.abc import Iterator
from typing import Any

import torch

from workshop_gpu.conductor.rungs import MOST_IN_LISTS


def repeated_blocks(network: Any) -> list[Any]:
    """The modules that can come and go one by one while the network runs, in order of definition.

    They are elements of lists of modules, so the network calls each as a whole; none is inside
    another. What is left over stays on the device.
    """
    return [block for block in _inside(network) if _size_bytes(block) > 0]


def layers(block: Any) -> list[Any]:
    """The innermost modules with weights in a block, each of which it calls as a whole."""
    return [each for each in dict.fromkeys(_innermost(block)) if _size_bytes(each) > 0]


def _innermost(module: Any) -> Iterator[Any]:
    children = list(module.children())
    if not children or isinstance(module, torch.nn.MultiheadAttention):
        yield module  # torch's own attention reads the weights of its layer without a call
    else:
        for child in children:
            yield from _innermost(child)


def _divided(element: Any) -> list[Any]:
    if isinstance(element, torch.nn.ModuleList):
        # Nobody calls a list: the network runs through it.
        return [block for each in element for block in _divided(each)]
    inner = _inside(element)
    return inner if inner and _mostly(inner, element) else [element]


def _inside(module: Any) -> list[Any]:
    """The blocks inside a module."""
    return [block for each in _lists(module) for element in each for block in _divided(element)]


def _lists(module: Any) -> Iterator[Any]:
    """The outermost lists in a module."""
    for child in module.children():
        if isinstance(child, torch.nn.ModuleList):
            yield child
        else:
            yield from _lists(child)


def _mostly(blocks: list[Any], module: Any) -> bool:
    return sum(map(_size_bytes, blocks)) >= MOST_IN_LISTS * _size_bytes(module)


def _size_bytes(module: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in module.parameters())
