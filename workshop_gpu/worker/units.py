"""By which pieces a network is streamed: its repeated blocks, or several, or parts of them.

With a size for the buffers, blocks that are larger come layer by layer, and what is smaller comes
together with its neighbours, as far as they fit.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from workshop_gpu.worker.blocks import layers, repeated_blocks
from workshop_gpu.worker.layout import Block, Piece, stretch
from workshop_gpu.worker.pool import Part
from workshop_gpu.worker.streaming import Unit


class _Span(NamedTuple):
    """Modules whose tensors are the pieces from `first` to before `stop` of a block of weights."""

    modules: tuple[Any, ...]
    first: int
    stop: int


def units_of(module: Any, part: Part, weights: Block, buffer_bytes: int = 0) -> list[Unit]:
    """What of a network can be streamed, in order of definition.

    `buffer_bytes`: blocks that are larger are divided; 0: none is. A tensor that is shown outside
    its block as well makes the block one that stays.
    """
    found: list[Unit] = []
    for span in _spans(repeated_blocks(module), weights.pieces):
        block = _unit(span, part, weights)
        if 0 < buffer_bytes < block.size_bytes:
            layer_by_layer = [_unit(each, part, weights) for each in _divided(span, weights)]
            found += together(layer_by_layer, buffer_bytes)
        else:
            found.append(block)
    return found


def layers_of(module: Any, part: Part, weights: Block) -> list[Unit]:
    """The same where every block comes layer by layer."""
    spans = _spans(repeated_blocks(module), weights.pieces)
    return [_unit(each, part, weights) for span in spans for each in _divided(span, weights)]


def together(units: Sequence[Unit], buffer_bytes: int) -> list[Unit]:
    """The same, but neighbours in one unit, as many as a buffer holds."""
    found: list[Unit] = []
    for unit in units:
        last = found[-1] if found else None
        if last is not None and _fit_together(last, unit, buffer_bytes):
            found[-1] = _joined(last, unit)
        else:
            found.append(unit)
    return found


def _fit_together(one: Unit, next_one: Unit, buffer_bytes: int) -> bool:
    neighbours = one.part is next_one.part and one.start + one.size_bytes == next_one.start
    return neighbours and one.size_bytes + next_one.size_bytes <= buffer_bytes


def _joined(one: Unit, next_one: Unit) -> Unit:
    moved = [
        replace(piece, place=replace(piece.place, start=piece.place.start + one.size_bytes))
        for piece in next_one.tensors.pieces
    ]
    size_bytes = one.size_bytes + next_one.size_bytes
    tensors = Block((*one.tensors.pieces, *moved), size_bytes)
    return Unit(one.modules + next_one.modules, one.part, one.start, tensors)


def _unit(span: _Span, part: Part, weights: Block) -> Unit:
    pieces = weights.pieces[span.first : span.stop]
    return Unit(span.modules, part, pieces[0].place.start, stretch(pieces))


def _spans(modules: Sequence[Any], pieces: Sequence[Piece], begin: int = 0) -> list[_Span]:
    """Those of the modules that can come and go: their tensors lie together and are theirs alone.

    The first of the pieces has the number `begin`.
    """
    inside = {
        id(each): number for number, module in enumerate(modules) for each in module.modules()
    }
    found: dict[int, list[int]] = {}
    staying: set[int | None] = set()
    for index, piece in enumerate(pieces, begin):
        numbers = {inside.get(id(slot.owner)) for slot in piece.slots}
        number = numbers.pop() if len(numbers) == 1 else None
        if number is not None:
            found.setdefault(number, []).append(index)
        staying |= numbers
    return [
        _Span((modules[number],), indices[0], indices[-1] + 1)
        for number, indices in sorted(found.items())
        if number not in staying and indices[-1] - indices[0] + 1 == len(indices)
    ]


def _divided(span: _Span, weights: Block) -> list[_Span]:
    """The layers of a block, in the order in which they lie."""
    (block,) = span.modules
    found = _spans(layers(block), weights.pieces[span.first : span.stop], span.first)
    return sorted(found, key=lambda each: each.first)
