"""What must leave one device so that something else fits.

Only slots that may leave are ever looked at (see `room.py`). Old before young,
unwanted before wanted, then least recently used; as few as needed. Slots of another device are
not even arguments.
"""

from collections.abc import Callable, Collection, Iterable
from enum import IntEnum

import msgspec


class Standing(IntEnum):
    """How freely a slot may be made to leave for one particular claim."""

    NOBODY = -1
    """Of no slot: where it is the worst that may leave, none may."""
    IDLE = 0
    """Nobody waits for it and it has been there long enough."""
    YOUNG = 1
    """Nobody waits for it; it leaves before its time because nothing else helps."""
    AWAITED = 2
    """Jobs wait for it, and the claim goes before them."""
    RUNS = 3
    """As the ones above once its jobs have ended."""
    UNTRIED = 4
    """As soon as it has been used once, by those it was just loaded for."""
    NOT_YET = 5
    """Protected for a while: young and in use by others, not used yet, or awaited."""
    NEVER = 6
    """It is held, pinned, or not ready: no claim makes it leave."""


class Candidate(msgspec.Struct, frozen=True):
    """A slot that might leave; `used_s` is the end of its last use."""

    model: str
    bytes: int
    used_s: float
    standing: Standing


def choose(
    candidates: Iterable[Candidate],
    needed_bytes: int,
    worst: Standing,
    leaving_bytes: Callable[[Collection[str]], int] | None = None,
) -> tuple[Candidate, ...] | None:
    """The slots that leave so that `needed_bytes` come free, in the order they leave.

    None where all candidates up to the standing `worst` together are not enough: then nothing
    leaves, because it would be for nothing. `leaving_bytes` says what comes free if all of these
    models leave, where models share parts; without it they share none.
    """

    def freed_bytes(leaving: list[Candidate]) -> int:
        if leaving_bytes is None:
            return sum(each.bytes for each in leaving)
        return leaving_bytes([each.model for each in leaving])

    if needed_bytes <= 0:
        return ()
    able = sorted(
        (each for each in candidates if each.standing <= worst and each.bytes > 0),
        key=lambda each: (each.standing, each.used_s, each.model),
    )
    chosen: list[Candidate] = []
    for each in able:
        if freed_bytes(chosen) >= needed_bytes:
            break
        chosen.append(each)
    if freed_bytes(chosen) < needed_bytes:
        return None
    for each in reversed(chosen.copy()):
        rest = [other for other in chosen if other is not each]
        if freed_bytes(rest) >= needed_bytes:
            chosen = rest
    return tuple(chosen)
