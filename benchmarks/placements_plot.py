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
from benchmarks.placements_against import compiled
from benchmarks.placements_compiled import PLAIN
from benchmarks.placements_peers import PEERS
from benchmarks.placements_second import FROM_HOST, ON_SECOND
from benchmarks.report import Row, read
from workshop_gpu.cli.tune_plot import OURS, Point
from workshop_gpu.cli.tune_plot import picture as points

_STEP, _PEAK = ", a step", ", peak"
_OF_OTHER_PARTS = (PLAIN, FROM_HOST, ON_SECOND)
"""How the names end of what is there to be compared with in its own part."""
_PEERS, _COMPILED = "#d9822b", "#2f6fb7"
_SPENT = ("copying", "waiting", "computing")


def steps_against_memory(rows: Sequence[Row]) -> str:
    """A point for each way to place the model on one card, with its limit. What a measured step was
    faster than was no limit: the bus was taken for slower than it is."""
    by_name = {row.name: row for row in rows}
    found = []
    for name, row in by_name.items():
        peak = by_name.get(name.removesuffix(_STEP) + _PEAK)
        own = name.removesuffix(_STEP)
        if not name.endswith(_STEP) or peak is None or own.endswith(_OF_OTHER_PARTS):
            continue
        limit = row.limit if row.limit is not None and row.limit <= row.value else None
        colour = _PEERS if own in PEERS else _COMPILED if compiled(own) else OURS
        found.append(Point(own, int(peak.value * 1e9), row.value, limit, colour))
    return points(found, " (orange: others, blue: compiled blocks; – the limit there)")


def steps_spent(rows: Sequence[Row]) -> str:
    """For each placement that was profiled, milliseconds of copying, waiting and computing, all
    to one scale."""
    value = {row.name: row.value for row in rows}
    ends = f", {_SPENT[0]} in a step"
    names = [name.removesuffix(ends) for name in value if name.endswith(ends)]
    most = max(
        (1000 * value[f"{name}, {what} in a step"] for name in names for what in _SPENT),
        default=0.0,
    )
    panels = [
        Panel(
            name,
            tuple((f"{what}, ms", 1000 * value[f"{name}, {what} in a step"]) for what in _SPENT),
            f"{_SPENT[-1]}, ms",
            most,
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
