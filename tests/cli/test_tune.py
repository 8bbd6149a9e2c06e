"""Measuring a model's placements on this machine."""

import asyncio
import itertools
import json
import logging
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from workshop_gpu.cli import CANCELLED, main
from workshop_gpu.cli.progress import ProgressLine
from workshop_gpu.cli.tune import Row, table
from workshop_gpu.cli.tune_plot import Point, picture
from workshop_gpu.conductor.learned import Learned, Weighed
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.host.kept import Kept
from workshop_gpu.host.runtime import Runtime

GB = 10**9


def test_what_was_measured_is_shown_plotted_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, prompts = Runtime.submit, []

    def submitted(self: Runtime, who: Any, model: str, params: Any, **more: Any) -> Any:
        prompts.append(params.prompt)
        return submit(self, who, model, params, **more)

    monkeypatch.setattr(Runtime, "submit", submitted)
    plot = tmp_path / "tune.svg"
    arguments = ["tune", "shapes", "--device", "cpu:200MB", "--sizes", "64x64", "--steps", "2"]
    arguments += ["--rungs", "resident", "staged", "--plot", str(plot)]
    assert main([*arguments, "--data-folder", str(tmp_path)]) == 0
    out, told = capsys.readouterr()
    head, whole, staged = out.splitlines()[:3]
    assert "staged at 64x64" in told
    assert f"Kept in {tmp_path}" in told
    assert head.split() == [
        "RUNG",
        "SIZE",
        "ON",
        "THE",
        "GPU",
        "WORKING",
        "STEP",
        "JOB",
        "EXPECTED",
    ]
    assert whole.split()[:4] == ["resident", "64x64", "21", "MB"]
    assert staged.split()[:4] == ["staged", "64x64", "15", "MB"]
    measured = json.loads((tmp_path / "measured.json").read_text())["learned"]
    assert list(measured["placed_s"]) == ["encoders staged, vae staged/2/shapes"]
    assert measured["steps_s"]["shapes"]
    points = ElementTree.fromstring(plot.read_text()).iter("{http://www.w3.org/2000/svg}circle")
    assert len(list(points)) == 2
    assert len(set(prompts)) == len(prompts) == 5, "text encoders read each of them"


def test_a_rung_is_measured_by_whichever_name_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of other programs, and those that are put together by hand; where it cannot be, the
    reason is the one that a job would be told."""
    names = ["layer_streaming", "encoders=cpu,denoiser=streamed", "sliced"]
    arguments = ["tune", "shapes-dit", "--device", "cpu:200MB", "--sizes", "64x64", "--steps", "1"]
    assert main([*arguments, "--rungs", *names, "--data-folder", str(tmp_path)]) == 0
    rows = capsys.readouterr().out.splitlines()[1:4]
    assert [row.split()[0] for row in rows] == names
    assert all(row.endswith(" s") for row in rows[:2]), rows
    assert "no switch for slices" in rows[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "There is no model"),
        (["shapes", "--rungs", "turbo"], "resident"),
        (["shapes", "--sizes", "65x64"], "width"),
        (["shapes", "--steps", "0"], "steps"),
        (["shapes", "--device", "tpu"], "devices"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *arguments]) == 1
    out, told = capsys.readouterr()
    assert said in told
    assert (out, "starting" in told) == ("", False)


@pytest.mark.parametrize("option", ["--data-folder", "--plot"])
def test_a_place_where_nothing_can_be_written_is_refused_before_anything_starts(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert main(["tune", "shapes", option, str(file / "new")]) == 1
    told = capsys.readouterr().err
    assert "nothing can be written" in told
    assert "starting" not in told


def test_an_early_end_shows_and_keeps_what_was_measured_by_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the second rung is measured."""
    show = ProgressLine.show

    def show_and_interrupt(line: ProgressLine, stage: str, detail: str = "") -> None:
        show(line, stage, detail)
        if detail.startswith("(2 of"):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ProgressLine, "show", show_and_interrupt)
    arguments = ["tune", "shapes", "--device", "cpu:200MB", "--sizes", "64x64", "--steps", "1"]
    # What a shell starts in the background ignores Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main([*arguments, "--data-folder", str(tmp_path)]) == CANCELLED
    finally:
        signal.signal(signal.SIGINT, before)
    out, told = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()[:2]] == ["RUNG", "resident"]
    assert told.endswith("workshop-gpu: cancelled\n")
    assert json.loads((tmp_path / "measured.json").read_text())["learned"]["steps_s"]["shapes"]


def test_what_was_measured_of_one_card_is_kept_beside_that_of_all(tmp_path: Path) -> None:
    """A server knows its file by the names of all its devices."""
    log = logging.getLogger("test")
    server = Kept(tmp_path, Policy(), ("CPU", "CPU"), log)
    asyncio.run(server.keep_learned(Learned(loads_s={"large": 9.0})))
    arguments = ["tune", "shapes", "--device", "cpu:200MB", "--sizes", "64x64", "--steps", "1"]
    arguments += ["--rungs", "resident", "--data-folder", str(tmp_path)]
    assert main(arguments) == 0
    learned = Kept(tmp_path, Policy(), ("CPU", "CPU"), log).read_learned()
    assert learned.loads_s["large"] == 9.0
    assert learned.steps_s["shapes"]


SWAPPING = """
[[model]]
id = "s"
shipped = "shapes-dit"
memory = {{ swap_device = "{swap_device}" }}
"""


def test_rungs_that_take_memory_of_a_swap_device_are_measured_beside_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models.toml").write_text(SWAPPING.format(swap_device="cpu:1"))
    arguments = ["tune", "s", "--device", "cpu:300MB", "--sizes", "64x64", "--steps", "1"]
    arguments += ["--rungs", "swap-streamed", "resident", "swap-encoders"]
    arguments += ["--models-file", str(tmp_path / "models.toml")]
    assert main([*arguments, "--data-folder", str(tmp_path)]) == 0
    out, _ = capsys.readouterr()
    measured = {line.split()[0]: line for line in out.splitlines()[1:4]}
    assert list(measured) == ["resident", "swap-streamed", "swap-encoders"]
    assert all(line.count(" s") >= 3 for line in measured.values()), out
    placed = json.loads((tmp_path / "measured.json").read_text())["learned"]["placed_s"]
    assert any("cpu:1" in way for way in placed)


@pytest.mark.parametrize("swap_device", ["cpu:0", "cpu:99", "cuda:7"])
def test_without_the_swap_device_the_other_rungs_are_measured(
    swap_device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models.toml").write_text(SWAPPING.format(swap_device=swap_device))
    arguments = ["tune", "s", "--device", "cpu:300MB", "--sizes", "64x64", "--steps", "1"]
    arguments += ["--rungs", "resident", "swap-encoders"]
    arguments += ["--models-file", str(tmp_path / "models.toml")]
    assert main([*arguments, "--data-folder", str(tmp_path)]) == 0
    resident, swap = capsys.readouterr().out.splitlines()[1:3]
    assert resident.endswith(" s")
    assert "needs another GPU" in swap


def test_the_table_says_what_went_wrong_without_growing_wider() -> None:
    rows = [
        Row("resident", "64x64", GB, GB, 1.0, 0.5, 0.6, "guess"),
        Row("swap-both", "64x64", 0, 0, 0.0, 0.0, 0.0, problem="needs another GPU, " + "x" * 90),
    ]
    head, resident, swap, _, legend = table(rows)
    assert len(head) < 80
    assert resident.endswith("? 0.60 s")
    assert swap.startswith("swap-both  64x64  needs another GPU")
    assert "? a guess" in legend
    assert table([]) == []


CLOSE = [Point(f"rung {i}", GB + i * GB // 100, 0.5 + i / 1e4) for i in range(40)]
"""They lie on top of each other."""


def texts_of(drawn: str) -> list[tuple[str, float, float]]:
    found = ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    return [(each.text or "", float(each.attrib["x"]), float(each.attrib["y"])) for each in found]


def test_the_plots_names_do_not_cover_each_other() -> None:
    heights = sorted(y for text, _, y in texts_of(picture(CLOSE)) if text.startswith("rung"))
    assert len(heights) == 40
    assert min(b - a for a, b in itertools.pairwise(heights)) >= 11  # the size of the letters
    assert heights[0] > 0


def test_the_plots_numbers_cover_neither_each_other_nor_what_is_listed() -> None:
    texts = texts_of(picture(CLOSE))
    column = min(x for text, x, _ in texts if text.endswith(" GB"))
    numbers = [(x, y) for text, x, y in texts if text.isdigit() and x < column - 60]
    beside_points = [(x, y) for x, y in numbers if y < max(y for *_, y in texts) - 40]
    assert len(beside_points) == 40
    for one, other in itertools.combinations(beside_points, 2):
        assert abs(one[0] - other[0]) >= 6 or abs(one[1] - other[1]) >= 9, (one, other)


def test_the_plots_list_tells_each_points_figures_in_the_order_of_memory() -> None:
    points = [Point("large", 2 * GB, 0.25), Point("small & quick", GB, 0.5)]
    texts = [text for text, _, _ in texts_of(picture(points))]
    first = texts.index("small & quick")
    assert texts[first - 3 : first] == ["1", "1.0 GB", "0.500 s"]
    second = texts.index("large")
    assert texts[second - 3 : second] == ["2", "2.0 GB", "0.250 s"]


def test_news_count_beside_what_was_known() -> None:
    before = Learned({"a": Weighed(1)}, {"k": {1: 5, 2: 6}}, bus_bytes_per_s=3.0)
    after = before.with_news(Learned({"b": Weighed(2)}, {"k": {2: 9}}, bus_bytes_per_s=2.0))
    assert after.weights == {"a": Weighed(1), "b": Weighed(2)}
    assert after.peaks == {"k": {1: 5, 2: 9}}
    assert after.bus_bytes_per_s == 3.0
