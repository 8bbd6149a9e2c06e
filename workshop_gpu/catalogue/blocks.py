"""A network's repeated blocks, from the names of its tensors."""

import re
from collections.abc import Iterable

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
