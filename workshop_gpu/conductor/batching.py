"""How many waiting jobs are drawn together: as many as were measured to be worth it."""

from collections.abc import Callable

_WORTH = 0.97
"""A larger batch must save something for each picture, beyond what measuring is worth."""


def best_size(most: int, each_s: Callable[[int], float | None]) -> int:
    """How many to draw together out of `most` that could be.

    `each_s` gives the seconds for each picture of a batch of so many, None where that was never
    measured. Sizes are tried upwards one by one, each only if the one below it was worth it, and
    only after a single picture was measured: so a machine that gains nothing from batches draws
    one batch of two to know it, and no more.
    """
    best, best_s = 1, each_s(1)
    if best_s is None:
        return 1
    for size in range(2, most + 1):
        measured_s = each_s(size)
        if measured_s is None:
            return size
        if measured_s >= best_s * _WORTH:
            break
        best, best_s = size, measured_s
    return best
