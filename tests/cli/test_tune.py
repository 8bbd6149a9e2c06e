"""Measuring a model's placements on this machine."""

import pytest

from workshop_gpu.cli import main
from workshop_gpu.conductor.learned import Learned, Weighed


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
