"""What a grid is to show: every combination of the values that were given, in rows and columns."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product

from workshop_gpu.client.errors import BadRequest
from workshop_gpu.client.images import GeneratedImage
from workshop_gpu.client.job_handle import JobHandle

MOST_CELLS = 400
Value = str | int | float | None
Values = Value | Iterable[Value]
_SEEDS = 2**32


@dataclass(frozen=True)
class Axis:
    """One thing that varies: `name` as in `generate`, and its values."""

    name: str
    values: tuple[Value, ...]

    @property
    def varies(self) -> bool:
        return len(self.values) > 1


@dataclass
class Cell:
    """One picture of a grid: what it is made with, and what has become of it."""

    values: dict[str, Value]
    image: GeneratedImage | None = None
    problem: Exception | None = None
    handle: JobHandle | None = None
    words: str = "waiting"


@dataclass
class Plan:
    """The axes of a grid, and its cells row by row."""

    axes: tuple[Axis, ...]
    cells: list[Cell] = field(default_factory=list)

    @property
    def columns(self) -> Axis | None:
        """The last axis that varies; None where nothing does."""
        return next((axis for axis in reversed(self.axes) if axis.varies), None)

    @property
    def rows(self) -> tuple[Axis, ...]:
        """The other axes that vary."""
        return tuple(axis for axis in self.axes if axis.varies and axis is not self.columns)

    def lines(self) -> list[list[Cell]]:
        """The cells in rows as long as the columns' axis."""
        width = len(self.columns.values) if self.columns else 1
        return [self.cells[start : start + width] for start in range(0, len(self.cells), width)]


def plan_grid(
    prompts: Values, models: Values, seeds: Values, others: dict[str, Values], usual_model: str
) -> Plan:
    """All combinations. One seed for all is drawn where none is given, so that the pictures can be
    compared. Raises BadRequest."""
    given: dict[str, Values] = {"prompt": prompts, "model": models, **others, "seed": seeds}
    axes = tuple(Axis(name, _several(name, values)) for name, values in given.items())
    count = 1
    for axis in axes:
        count *= len(axis.values)
    if count > MOST_CELLS:
        raise _bad("grid", f"these are {count} pictures; a grid has at most {MOST_CELLS}.")
    usual: dict[str, Value] = {"model": usual_model, "seed": random.randrange(_SEEDS)}  # noqa: S311 - no secret
    axes = tuple(
        Axis(axis.name, (usual[axis.name],))
        if axis.name in usual and axis.values == (None,)
        else axis
        for axis in axes
    )
    # The columns' axis varies fastest, so that a row is a stretch of the cells.
    names = [axis.name for axis in axes]
    cells = [
        Cell(dict(zip(names, values, strict=True)))
        for values in product(*(axis.values for axis in axes))
    ]
    return Plan(axes, cells)


def _several(name: str, values: Values) -> tuple[Value, ...]:
    if values is None or isinstance(values, str | int | float):
        return (values,)
    try:
        found = tuple(values)
    except TypeError:
        raise _bad(name, f"give one or a list of them, not {type(values).__name__}.") from None
    if not found:
        raise _bad(name, "the list is empty, so there is nothing to draw. Put one in at least.")
    return found


def label(name: str, value: Value) -> str:
    """A value as people read it above a column or beside a row."""
    if name == "loras":
        return str(value) if value else "no LoRA"
    return str(value) if name in ("prompt", "model") else f"{name} {value}"


def row_label(axes: Sequence[Axis], cell: Cell) -> str:
    """What a row's pictures have in common and other rows have not."""
    return " · ".join(label(axis.name, cell.values[axis.name]) for axis in axes)


def _bad(field_name: str, problem: str) -> BadRequest:
    return BadRequest("invalid_request", f"{field_name}: {problem}", {"field": field_name})
