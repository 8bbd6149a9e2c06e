"""What is kept of ended jobs and their pictures, and what has to go: the oldest first."""

from collections.abc import Iterable

import msgspec

_DAY_S = 86400.0


class Limits(msgspec.Struct, frozen=True):
    """How many days an ended job is kept, how many bytes of pictures, how many jobs; 0 days or
    bytes: without that limit."""

    days: float = 30.0
    image_bytes: int = 10_000_000_000
    jobs: int = 10_000


class Kept(msgspec.Struct, frozen=True):
    """Something on disk: a job that ended at `at` (seconds since 1970), with its pictures."""

    job: str
    at: float
    image_bytes: int


def expired(kept: Iterable[Kept], limits: Limits, now: float) -> list[str]:
    """The jobs that are kept no longer."""
    left_bytes, left = limits.image_bytes, limits.jobs
    gone: list[str] = []
    for each in sorted(kept, key=lambda each: each.at, reverse=True):
        left_bytes, left = left_bytes - each.image_bytes, left - 1
        too_old = limits.days and each.at < now - limits.days * _DAY_S
        too_much = limits.image_bytes and left_bytes < 0
        if too_old or too_much or left < 0:
            gone.append(each.job)
    return gone
