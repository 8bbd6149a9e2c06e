"""The pictures of the benchmark of placements, for the documentation.

`python -m benchmarks.placements_plot RESULT.json FOLDER` writes `placements.svg` (seconds a step
against the peak of GPU memory: ours, the peers, and what the machine itself allows) and
`placements-steps.svg` (what a step's time is spent on).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bars_svg import Panel
from benchmarks.bars_svg import picture as bars
from benchmarks.report import Row, read
from workshop_gpu.cli.tune_plot import Point
from workshop_gpu.cli.tune_plot import picture as points

_STEP, _PEAK = ", a step", ", peak"
_SPENT = ("copying", "waiting", "computing")


def steps_against_memory(rows: Sequence[Row]) -> str:
    """A point for each way to place the model, and one for each limit below it."""
    by_name = {row.name: row for row in rows}
    found = []
    for name, row in by_name.items():
        peak = by_name.get(name.removesuffix(_STEP) + _PEAK)
        if not name.endswith(_STEP) or peak is None:
            continue
        at = int(peak.value * 1e9)
        found.append(Point(name.removesuffix(_STEP), at, row.value))
        if row.limit is not None:
            found.append(Point("· limit", at, row.limit))
    return points(found)


def steps_spent(rows: Sequence[Row]) -> str:
    """For each placement that was profiled, milliseconds of copying, waiting and computing."""
    value = {row.name: row.value for row in rows}
    ends = f", {_SPENT[0]} in a step"
    names = [name.removesuffix(ends) for name in value if name.endswith(ends)]
    panels = [
        Panel(
            f"{name}, ms",
            tuple((what, 1000 * value[f"{name}, {what} in a step"]) for what in _SPENT),
            "computing",
        )
        for name in names
    ]
    return bars(panels, 2)


def main() -> int:
    """Writes both."""
    parser = argparse.ArgumentParser(description="Draw the benchmark of placements")
    parser.add_argument("result", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    rows = read(options.result).rows
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("placements.svg", steps_against_memory(rows)),
        ("placements-steps.svg", steps_spent(rows)),
    ):
        (options.folder / name).write_text(text, encoding="utf-8")
        print(options.folder / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
