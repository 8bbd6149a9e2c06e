"""How ours stands to the peers, from the rows of the placements' benchmark.

Uncompiled, each peer is compared with the fastest of ours that needs no more memory than it. One
that has its whole denoiser on the card while it steps is as fast as a step can be without compiled
blocks: then the bar is for ours with them. With compiled blocks it is also the other way round:
half streamed is compared with the fastest peer that would do on the same card.
"""

from collections.abc import Iterator, Sequence

from benchmarks.placements_compiled import COMPILED, HALF, HALF_LOW, PLAIN
from benchmarks.placements_peers import PEERS
from benchmarks.placements_second import ON_SECOND
from benchmarks.report import Row, at_least

RESIDENT, RESIDENT_PEER = "resident", "diffusers, resident"
PEER_BAR = 1.35
COMPILED_BAR = 2.5
EQUAL_PEAK = 1.02
_NOT_SLOWED = 1.04
"""A step that takes no more than so many times the resident one: the denoiser lies there."""

Measured = dict[str, tuple[float, float]]
"""By name, seconds a step and the peak in GB."""


def against_peers(rows: Sequence[Row], *, bars: bool) -> Iterator[Row]:
    """The rows that compare; without `bars` they are only shown."""
    found = _measured(rows)
    peers = {name: each for name, each in found.items() if name in PEERS and name != RESIDENT_PEER}
    others = {name: each for name, each in found.items() if name not in PEERS}
    # Nor is anything that takes a second card compared with peers that have one.
    plain = [
        each for name, each in others.items() if not compiled(name) and not name.endswith(ON_SECOND)
    ]
    with_blocks = [each for name, each in others.items() if compiled(name)]
    resident_s = min([found[name][0] for name in (RESIDENT, RESIDENT_PEER) if name in found] or [0])
    for name, (step_s, peak) in peers.items():
        slowed = step_s > _NOT_SLOWED * resident_s
        for ours, words, judged in (
            (plain, "", slowed),
            (with_blocks, " with compiled blocks", not slowed),
        ):
            fitting = [each_s for each_s, at in ours if at <= peak * EQUAL_PEAK]
            if fitting:
                said = f"{name}, times ours{words} at no more memory"
                bar = PEER_BAR if bars and judged else None
                yield at_least(said, step_s / min(fitting), "", bar)
    # Staged encoders beside half of a denoiser can need as much as the whole denoiser, which a peer
    # could then keep. The bar is for what needs least.
    for name, bar in ((HALF, None), (HALF_LOW, COMPILED_BAR if bars else None)):
        step_s, peak = found.get(name + COMPILED, (0.0, 0.0))
        fitting = [each_s for each_s, at in peers.values() if at <= peak * EQUAL_PEAK]
        if step_s and fitting:
            said = f"{name}{COMPILED}, times faster than the best peer at no more memory"
            yield at_least(said, min(fitting) / step_s, "", bar)


def compiled(name: str) -> bool:
    """Whether the placement of that name was measured with compiled blocks."""
    return name.endswith(COMPILED) and not name.endswith(PLAIN)


def _measured(rows: Sequence[Row]) -> Measured:
    value = {row.name: row.value for row in rows}
    names = [name.removesuffix(", peak") for name in value if name.endswith(", peak")]
    return {
        name: (value[f"{name}, a step"], value[f"{name}, peak"])
        for name in names
        if f"{name}, a step" in value
    }
