"""On which device a model is loaded, whether a second copy is worth it, and whether it can be
loaded at all."""

from collections.abc import Iterable, Sequence

import msgspec

from workshop_gpu.conductor.rungs import RESIDENT, Placement


class Option(msgspec.Struct, frozen=True):
    """One way to make room: on this device, after these models have left it (none: it fits).

    `wanted`: others wait for one of these models. `busy`: the device computes, so that the model
    would be of no use at once. `placement`: where the model's weights go; `weights_bytes` what they
    take there (None: as a whole). `exact`: it draws the same picture as everything on the device.
    `cost_s`: seconds that the waiting jobs and the way there are expected to take, where several
    placements were compared.
    """

    device: str
    free_bytes: int
    victims: tuple[str, ...] = ()
    victim_bytes: int = 0
    wanted: bool = False
    busy: bool = False
    placement: Placement = RESIDENT
    weights_bytes: int | None = None
    exact: bool = True
    cost_s: float = 0.0


def best(options: Iterable[Option]) -> Option | None:
    """The option that takes a model from nobody, then the one that can be used at once, then one
    that only moves weights, then the quickest, then the one that makes the least leave, then the
    one with most free; else the first."""
    return min(
        options,
        key=lambda each: (
            each.wanted,
            each.busy,
            not each.exact,
            each.cost_s,
            each.victim_bytes,
            -each.free_bytes,
        ),
        default=None,
    )


def another_is_worth_it(
    waiting: int, work_s: float, there: int, coming: int, free_in_s: float, load_s: float
) -> bool:
    """Whether one more device should load a model that `there` devices have and `coming` will.

    No more devices prepare than jobs wait; and it must be there sooner than the last of those who
    wait (`work_s` in all) would begin on the devices that have it, the first of which is free in
    `free_in_s`.
    """
    if coming >= waiting:
        return False
    if not there + coming:
        return True
    last_s = work_s / waiting
    return free_in_s + (work_s - last_s) / (there + coming) > load_s


def never_fits(needed_bytes: int, most_bytes: Sequence[int]) -> bool:
    """Whether no device could ever give so much.

    `most_bytes` is for each device its total without the margin and with everybody gone: what
    others hold now is left out on purpose, because they may leave; a job that only they keep
    out waits for room. 0 stands for a device whose size is not known yet: then nothing is sure.
    """
    return bool(most_bytes) and 0 not in most_bytes and needed_bytes > max(most_bytes)
