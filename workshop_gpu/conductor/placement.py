"""On which device a model is loaded, and whether it can be loaded at all.

The only placement so far is "resident": all weights stay on the device.
"""

from collections.abc import Iterable, Sequence

import msgspec

RESIDENT = "resident"


class Option(msgspec.Struct, frozen=True):
    """One way to make room: on this device, after these models have left it (none: it fits)."""

    device: str
    free_bytes: int
    victims: tuple[str, ...] = ()
    victim_bytes: int = 0


def best(options: Iterable[Option]) -> Option | None:
    """The option that makes the least leave, then the one with most free; else the first."""
    return min(options, key=lambda each: (each.victim_bytes, -each.free_bytes), default=None)


def never_fits(needed_bytes: int, most_bytes: Sequence[int]) -> bool:
    """Whether no device could ever give so much.

    `most_bytes` is for each device its total without the margin and with everybody gone: what
    others hold now is left out on purpose, because they may leave; a job that only they keep
    out waits for room. 0 stands for a device whose size is not known yet: then nothing is sure.
    """
    return bool(most_bytes) and 0 not in most_bytes and needed_bytes > max(most_bytes)
