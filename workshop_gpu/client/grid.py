"""`wg.grid(…)`: many pictures side by side, made as fast as the room allows."""

from collections.abc import Callable, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

from PIL import Image

from workshop_gpu.client.errors import BadRequest, ClientError
from workshop_gpu.client.grid_plan import Axis, Cell, Plan, Value
from workshop_gpu.client.grid_run import Filling, Submit
from workshop_gpu.client.grid_sheet import sheet_of
from workshop_gpu.client.grid_view import NotebookGrid, TerminalGrid, Thumbnails, html_of
from workshop_gpu.client.images import GeneratedImage
from workshop_gpu.client.progress import in_notebook

if TYPE_CHECKING:
    import pandas

    from workshop_gpu.client.widgets.compare import Compare

_CELL_PX = 256
_PLURALS = {
    "prompt": "prompts",
    "model": "models",
    "steps": "numbers of steps",
    "guidance": "guidances",
    "strength": "strengths",
    "loras": "choices of LoRAs",
    "seed": "seeds",
}


class Grid:
    """A contact sheet. `images` are its pictures row by row, None where one was not made."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._thumbnails = Thumbnails()
        self._whole = True
        self._shown_in: object = None

    # making

    def fill(self, submit: Submit, *, progress: bool) -> None:
        """Make what is missing. Raises the first error where nothing at all could be made."""
        self._shown_in = None
        show, close = self._screen() if progress else (_nothing, _nothing)
        try:
            missing = [cell for cell in self.cells if cell.image is None]
            self._whole = Filling(missing, submit).run(show)
            show()
        finally:
            close()
        problems = [cell.problem for cell in self.cells if cell.problem is not None]
        if self._whole and problems and len(problems) == len(self.cells):
            raise problems[0]

    def _screen(self) -> tuple[Callable[[], None], Callable[[], None]]:
        if not in_notebook():
            bar = TerminalGrid(len(self.cells))
            return lambda: bar.show(self.done), bar.close
        screen = NotebookGrid()
        self._shown_in = _this_execution()
        return lambda: screen.show(self._html(), repr(self)), _nothing

    # looking

    @property
    def cells(self) -> list[Cell]:
        return self._plan.cells

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What the pictures are made with; those with several values vary."""
        return self._plan.axes

    @property
    def images(self) -> list[GeneratedImage | None]:
        return [cell.image for cell in self.cells]

    @property
    def done(self) -> int:
        """How many pictures are made."""
        return sum(cell.image is not None for cell in self.cells)

    @overload
    def __getitem__(self, index: int) -> GeneratedImage | None: ...

    @overload
    def __getitem__(self, index: slice) -> list[GeneratedImage | None]: ...

    def __getitem__(self, index: int | slice) -> Any:
        return self.images[index]

    def __len__(self) -> int:
        return len(self.cells)

    def __iter__(self) -> Iterator[GeneratedImage | None]:
        return iter(self.images)

    def __repr__(self) -> str:
        varied = ", ".join(
            f"{len(axis.values)} {_PLURALS[axis.name]}" for axis in self.axes if axis.varies
        )
        return f"<Grid of {varied or '1 picture'}: {self._line()}>"

    def _line(self) -> str:
        failed = sum(cell.problem is not None for cell in self.cells)
        parts = [f"{self.done} of {len(self)} made"]
        parts += [f"{failed} failed"] if failed else []
        parts += [] if self._whole else ["stopped"]
        return ", ".join(parts)

    def _html(self) -> str:
        return html_of(self._plan, self._thumbnails, self._line())

    def _ipython_display_(self) -> None:
        """The cell that filled it shows it already."""
        from IPython.display import display

        if self._shown_in is None or self._shown_in != _this_execution():
            bundle = {"text/html": self._html(), "text/plain": repr(self)}
            display(bundle, raw=True)  # type: ignore[no-untyped-call]

    # taking along

    def sheet(self, cell_px: int = _CELL_PX) -> Image.Image:
        """All of it as one picture with labels; `cell_px` is the longer side of each."""
        return sheet_of(self._plan, cell_px)

    def save(self, file: str | PathLike[str], cell_px: int = _CELL_PX) -> None:
        """Write the contact sheet to a file, such as "grid.png"."""
        self.sheet(cell_px).save(file)

    def rows(self) -> list[dict[str, Any]]:
        """What is known of each picture: its values, its metadata, its error ("" for none)."""
        return [
            {
                **cell.values,
                **(cell.image.metadata if cell.image is not None else {}),
                "job": cell.handle.id if cell.handle is not None else "",
                "made": cell.image is not None,
                "error": str(cell.problem or ""),
            }
            for cell in self.cells
        ]

    def to_dataframe(self) -> "pandas.DataFrame":
        """`rows()` as a pandas table. Raises ClientError where pandas is not installed."""
        try:
            import pandas
        except ImportError:
            raise ClientError(
                "this table needs pandas, which is not installed here. Install it with "
                "%pip install pandas, or use grid.rows(), which needs nothing."
            ) from None
        return pandas.DataFrame(self.rows())

    def compare(self, left: Value = None, right: Value = None) -> "Compare":
        """Two values side by side under one slider: two models, prompts, seeds …

        Without arguments the axis that has just two. Raises BadRequest.
        """
        from workshop_gpu.client.widgets.compare import Compare

        axis, left, right = self._pair(left, right)
        others = [each.name for each in self.axes if each.name != axis.name]
        pairs = []
        for one in self.cells:
            if one.values[axis.name] != left:
                continue
            for other in self.cells:
                alike = all(one.values[name] == other.values[name] for name in others)
                if alike and other.values[axis.name] == right and one.image and other.image:
                    pairs.append((one, other))
        if not pairs:
            raise _bad(
                f"no pictures of {left} and {right} were made with all else alike. Make both first."
            )
        varied = [each for each in self.axes if each.varies and each is not axis]
        return Compare(axis, (left, right), varied, pairs)

    def _pair(self, left: Value, right: Value) -> tuple[Axis, Value, Value]:
        varied = [axis for axis in self.axes if axis.varies]
        varied.sort(key=lambda axis: axis.name != "model")
        if left is None and right is None:
            for axis in varied:
                if len(axis.values) == 2:
                    return axis, axis.values[0], axis.values[1]
        for axis in varied:
            if left in axis.values and right in axis.values and left != right:
                return axis, left, right
        there = "; ".join(f"{a.name}: {', '.join(map(str, a.values))}" for a in varied)
        raise _bad(
            "say which two, such as grid.compare("
            f"{', '.join(repr(value) for value in varied[0].values[:2]) if varied else ''}). "
            f"This grid has {there or 'one picture only'}."
        )


def _bad(problem: str) -> BadRequest:
    return BadRequest("invalid_request", f"compare: {problem}", {"field": "compare"})


def _nothing() -> None:
    pass


def _this_execution() -> object:
    """What tells a cell's run from any other; None outside of IPython."""
    from IPython import get_ipython

    shell = get_ipython()
    return None if shell is None else shell.execution_count
