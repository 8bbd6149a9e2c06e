"""Measuring a model's placements on this machine."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from workshop_gpu.cli import main
from workshop_gpu.conductor.learned import Learned, Weighed


def test_what_was_measured_is_shown_plotted_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "tune.svg"
    arguments = ["tune", "shapes", "--device", "cpu:200MB", "--sizes", "64x64", "--steps", "2"]
    arguments += ["--rungs", "resident", "staged", "--plot", str(plot)]
    assert main([*arguments, "--data-folder", str(tmp_path)]) == 0
    head, whole, staged = capsys.readouterr().out.splitlines()
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
    assert said in capsys.readouterr().err


def test_news_count_beside_what_was_known() -> None:
    before = Learned({"a": Weighed(1)}, {"k": {1: 5, 2: 6}}, bus_bytes_per_s=3.0)
    after = before.with_news(Learned({"b": Weighed(2)}, {"k": {2: 9}}, bus_bytes_per_s=2.0))
    assert after.weights == {"a": Weighed(1), "b": Weighed(2)}
    assert after.peaks == {"k": {1: 5, 2: 9}}
    assert after.bus_bytes_per_s == 3.0
