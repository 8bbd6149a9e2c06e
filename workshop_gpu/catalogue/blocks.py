"""A network's repeated blocks and the layers in them, from the names of its tensors."""

import re
from collections.abc import Iterable

_OF_LAYERS = ("weight", "bias")
"""A block that has these itself is a layer."""
_BLOCK = re.compile(r"(?P<list>[^\d]*?)\.(?P<number>\d+)\.")


def blocks_of(tensors: Iterable[tuple[str, int]]) -> tuple[int, ...]:
    """The sizes of a network's repeated blocks, from its tensors' names and bytes: whatever lies
    in `<list>.<number>.`, the outermost list counting, in lists of two and more."""
    lists: dict[str, dict[int, int]] = {}
    for name, size in tensors:
        match = _BLOCK.match(name)
        if match:
            blocks = lists.setdefault(match["list"], {})
            number = int(match["number"])
            blocks[number] = blocks.get(number, 0) + size
    return tuple(
        blocks[number] for blocks in lists.values() if len(blocks) > 1 for number in sorted(blocks)
    )


def layers_of(tensors: Iterable[tuple[str, int]]) -> tuple[int, int]:
    """The largest layer in these blocks, and the bytes in them that are in no layer but the
    block's own, such as a table beside its layers."""
    layers: dict[str, int] = {}
    loose = 0
    for name, size in tensors:
        if match := _BLOCK.match(name):
            layer, _, tensor = name[match.end() :].rpartition(".")
            if layer or tensor in _OF_LAYERS:
                key = name[: match.end()] + layer
                layers[key] = layers.get(key, 0) + size
            else:
                loose += size
    return max(layers.values(), default=0), loose
