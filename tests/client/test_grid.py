"""Grids: what they hold, how they fill, what they look like, where they can be taken."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

from tests.client.fakes import FakeServer, a_job, a_model, a_png
from workshop_gpu.api import schemas
from workshop_gpu.client import Client
from workshop_gpu.client.errors import BadRequest, ClientError, JobFailed, QueueFull
from workshop_gpu.client.grid import Grid
from workshop_gpu.client.grid_plan import Cell, Values, plan_grid
from workshop_gpu.client.grid_run import Filling
from workshop_gpu.client.images import GeneratedImage


def plan(
    prompts: Values = "a star", models: Values = "m", seeds: Values = 1, **others: Values
) -> Any:
    return plan_grid(prompts, models, seeds, others, "usual")


class Handle:
    """A job that ends when it is let, or at once."""

    def __init__(self, seed: int = 7, let: threading.Event | None = None) -> None:
        self.id = f"{seed:032x}"
        self._seed = seed
        self._let = let
        self.cancelled = threading.Event()

    def wait(self, timeout_s: float | None = None, watch: Any = None) -> list[GeneratedImage]:
        while self._let is not None and not self._let.wait(0.01):
            if self.cancelled.is_set():
                raise ClientError("it was cancelled.")
        return [GeneratedImage(a_png(seed=self._seed))]

    def cancel(self) -> None:
        self.cancelled.set()


def filled(made: Any, submit: Callable[[Cell], Any] | None = None) -> Grid:
    grid = Grid(made)
    grid.fill(submit or (lambda cell: Handle(int(cell.values["seed"] or 0))), progress=False)
    return grid


# what is in it


def test_it_holds_every_combination_row_by_row() -> None:
    made = plan(["a", "b"], ["m", "n"], [1, 2, 3], steps=None)
    assert len(made.cells) == 12
    assert made.columns.name == "seed"
    assert [axis.name for axis in made.rows] == ["prompt", "model"]
    first, second = made.lines()[:2]
    assert [cell.values["seed"] for cell in first] == [1, 2, 3]
    assert {cell.values["model"] for cell in first} == {"m"}
    assert {(cell.values["prompt"], cell.values["model"]) for cell in second} == {("a", "n")}


def test_without_seeds_all_pictures_have_the_same_one_and_without_models_the_usual() -> None:
    cells = plan(["a", "b"], None, None).cells
    assert len({cell.values["seed"] for cell in cells}) == 1
    assert cells[0].values["seed"] is not None
    assert {cell.values["model"] for cell in cells} == {"usual"}
    assert len(plan(seeds=range(4)).cells) == 4, "anything that can be gone through"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompts": []}, "prompt: the list is empty"),
        ({"seeds": range(401)}, "401 pictures; a grid has at most 400"),
        ({"models": object()}, "model: give one or a list"),
    ],
)
def test_what_is_no_grid_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        plan(**changes)


# how it fills


def test_a_full_queue_is_waited_for_and_never_seen() -> None:
    waiting: list[int] = []
    refused = [0]

    def submit(cell: Cell) -> Any:
        if len(waiting) >= 2:
            refused[0] += 1
            waiting.clear()  # somebody's turn came
            raise QueueFull("queue_full", "You already have 2.", {"limit": 2})
        waiting.append(1)
        return Handle(int(cell.values["seed"] or 0))

    grid = filled(plan(seeds=range(7)), submit)
    assert [image.seed for image in grid.images if image] == list(range(7))
    assert refused[0] >= 1
    assert all(cell.problem is None for cell in grid.cells)


def test_who_may_have_no_job_waiting_is_told_so() -> None:
    def submit(cell: Cell) -> Any:
        raise QueueFull("queue_full", "The instructor lets you have no waiting jobs.", {"limit": 0})

    with pytest.raises(QueueFull, match="no waiting jobs"):
        filled(plan(seeds=[1, 2]), submit)


def test_a_picture_that_fails_says_why_in_its_place_and_the_others_are_made() -> None:
    def submit(cell: Cell) -> Any:
        if cell.values["seed"] == 2:
            raise JobFailed("out_of_memory", "Out of GPU memory.")
        return Handle(int(cell.values["seed"] or 0))

    grid = filled(plan(seeds=[1, 2, 3]), submit)
    assert [image is None for image in grid] == [False, True, False]
    assert "Out of GPU memory." in grid._html()
    assert "2 of 3 made, 1 failed" in repr(grid)
    with pytest.raises(JobFailed):
        filled(plan(seeds=[2]), submit)


def test_an_interrupt_cancels_the_rest_and_what_is_made_stays() -> None:
    never = threading.Event()
    handles: list[Handle] = []

    def submit(cell: Cell) -> Any:
        handles.append(Handle(int(cell.values["seed"] or 0), never if handles else None))
        return handles[-1]

    cells = plan(seeds=range(20)).cells

    def show() -> None:
        if cells[0].image is not None and len(handles) > 3 and not handles[1].cancelled.is_set():
            raise KeyboardInterrupt

    filling = Filling(cells, submit)
    assert filling.run(show) is False
    assert cells[0].image is not None
    assert all(handle.cancelled.is_set() for handle in handles[1:])
    assert len(handles) < 20, "the rest was never asked for"
    assert {cell.words for cell in cells[1:]} == {"not made"}
    assert all(cell.problem is None for cell in cells)


def test_the_client_asks_for_each_picture(client: Client, fake: FakeServer) -> None:
    fake.answers["POST jobs"] = a_job("done")
    fake.answers[f"GET jobs/{'1' * 32}/images/0"] = a_png()
    fake.answers["GET models"] = schemas.ModelList([a_model("able", accepts=("text", "image"))])
    red = Image.new("RGB", (32, 32), "red")
    fake.answers["POST inputs"] = schemas.Input("a" * 64, 32, 32, 1)
    grid = client.grid(
        ["a", "b"], seeds=[1, 2], strength=[0.4, 0.8], start_image=red, size=64, progress=False
    )
    assert len(grid) == grid.done == 8
    bodies = fake.bodies("POST jobs")
    assert {(b["prompt"], b["seed"], b["strength"]) for b in bodies} == {
        (prompt, seed, strength) for prompt in "ab" for seed in (1, 2) for strength in (0.4, 0.8)
    }
    assert {(b["model"], b["width"]) for b in bodies} == {("able", 64)}
    assert len(fake.bodies("POST inputs")) == 1


# what it looks like


def test_its_html_shows_pictures_labels_and_nothing_that_a_prompt_smuggles_in() -> None:
    evil = '<img src=x onerror="alert(1)">'
    html = filled(plan([evil, "b"], "m", [1, 2]))._html()
    assert html.count("data:image/jpeg") == 4
    assert "seed 1" in html
    assert "4 of 4 made" in html
    assert "<img src=x" not in html
    alone = filled(plan("a", "m", 5))._html()
    assert alone.count("data:image/jpeg") == 1


def test_the_sheet_is_a_picture_with_every_cell(tmp_path: Path) -> None:
    grid = filled(plan(["a red star", "a blue ring"], ["m", "n"], [1, 2, 3]))
    sheet = grid.sheet(cell_px=64)
    assert sheet.width > 3 * 64
    assert sheet.height > 4 * 64
    colours = {colour: count for count, colour in sheet.getcolors(2**24) or []}
    assert colours[200, 30, 30] == 12 * 64 * 64
    grid.save(tmp_path / "grid.png", cell_px=32)
    with Image.open(tmp_path / "grid.png") as saved:
        assert saved.width < sheet.width
    strip = filled(plan("a star", "m", range(7))).sheet(64)
    assert strip.height > 3 * 64, "seven of one kind stand in three lines"


# where it can be taken


def test_its_rows_tell_everything_and_pandas_makes_a_table_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid = filled(plan(seeds=[1, 2]))
    rows = grid.rows()
    assert [row["seed"] for row in rows] == [1, 2]
    assert {"model", "prompt", "width", "job", "made", "error"} <= rows[0].keys()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ClientError, match="%pip install pandas"):
        grid.to_dataframe()
    stand_in = ModuleType("pandas")
    stand_in.DataFrame = lambda data: ("a table", data)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", stand_in)
    assert grid.to_dataframe() == ("a table", rows)


def test_two_models_are_compared_pair_by_pair() -> None:
    grid = filled(plan(["a", "b"], ["m", "n"], [1, 2, 3]))
    compared = grid.compare()
    assert compared._names == ["m", "n"]
    assert len(compared._pairs) == 6
    assert compared._pairs[0]["label"] == "a · seed 1"
    seeds = grid.compare(1, 3)
    assert (seeds._names, len(seeds._pairs)) == (["seed 1", "seed 3"], 4)
    bundle = compared._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert data["text/html"].count("<img") == 12, "side by side where widgets are not shown"
    compared.close()
    seeds.close()


@pytest.mark.parametrize(
    ("made", "pair", "words"),
    [
        (plan(seeds=[1, 2, 3]), (), r"grid\.compare\(1, 2\)"),
        (plan(seeds=[1, 2, 3]), (1, 9), "This grid has seed: 1, 2, 3"),
        (plan(), (), "one picture only"),
    ],
)
def test_what_cannot_be_compared_says_what_can(
    made: Any, pair: tuple[Any, ...], words: str
) -> None:
    with pytest.raises(BadRequest, match=words):
        filled(made).compare(*pair)
