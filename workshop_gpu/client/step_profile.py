"""How the time of a picture's steps was spent, as a table."""

from typing import Any

import msgspec

from workshop_gpu.client.listing import Listing
from workshop_gpu.client.tables import Row


class Step(msgspec.Struct, frozen=True):
    """One step of a picture, counted from 1. All `…_s` are seconds.

    Weights are copied beside the computation. `wait_s` is how long the GPU stood still for them,
    and the step took `wait_s` + `compute_s`.
    """

    number: int
    copy_s: float
    wait_s: float
    compute_s: float


class StepTable(Listing[Step]):
    """`image.profile`: the steps of a picture; empty where nobody asked for it."""

    head = ("Step", "Copying", "Waiting for copies", "Computing")
    nothing = "The steps of this picture were not measured. Ask for it with profile=True."

    def row(self, item: Step) -> Row:
        seconds = (item.copy_s, item.wait_s, item.compute_s)
        return (str(item.number), *(f"{1000 * each:.2f} ms" for each in seconds))


def step_table(profile: object) -> StepTable:
    """The table of a metadata's `profile`; an empty one for what is none."""
    given: list[Any] = profile if isinstance(profile, list) else []
    try:
        found = [msgspec.convert({"number": n, **each}, Step) for n, each in enumerate(given, 1)]
    except (msgspec.ValidationError, TypeError):  # another program has written there
        found = []
    return StepTable(found)
