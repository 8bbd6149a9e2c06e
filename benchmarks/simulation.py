"""What the conductor makes of simulated rooms, beside what people have today.

`python -m benchmarks.simulation [--seeds 5] [--hours 4] [--plot docs/images/simulation.svg]` plays
every shipped room through under every policy with several seeds. Bars are held against the worst
of the seeds; the other figures are means. No GPU, no clock: the figures are the same everywhere.
"""

import argparse
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean

import msgspec

from benchmarks.bars_svg import Panel, picture
from benchmarks.report import Row, at_least, at_most, publish, shown
from workshop_gpu.conductor.settings import Settings
from workshop_gpu.simulation.__main__ import table
from workshop_gpu.simulation.measures import Measures
from workshop_gpu.simulation.policies import POLICIES
from workshop_gpu.simulation.room import Room, read_room, shipped_rooms
from workshop_gpu.simulation.simulation import simulate

ROOM = "workshop"
BASELINE = "fifo"
OURS = "conductor"
PLOTTED = (("images_per_hour", "images an hour", "/h"), ("wait_p95_s", "p95 wait", "s"))

Results = dict[tuple[str, str], list[Measures]]
"""By room and policy: one entry for each seed."""


def main() -> int:
    """Simulates, prints, writes; the exit code is 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--plot", type=Path, default=None, help="also write this SVG")
    options = parser.parse_args()
    results = simulate_all(range(options.seeds), options.hours)
    if options.plot:
        options.plot.write_text(plot(results), encoding="utf-8")
    for room, policies in means(results).items():
        print(table(_room(room, options.hours), policies), end="\n\n")
    notes = f"{options.hours:g} hours, {options.seeds} seeds; bars: the worst seed"
    return publish("simulation", [*judged(results), *figures(results)], notes)


def simulate_all(seeds: Iterable[int], hours: float) -> Results:
    """Every room under every policy."""
    wanted = [
        (room, policy, seed) for room in shipped_rooms() for policy in POLICIES for seed in seeds
    ]
    results: Results = {}
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for (room, policy, _), measures in zip(
            wanted, pool.map(_one, wanted, [hours] * len(wanted)), strict=True
        ):
            results.setdefault((room, policy), []).append(measures)
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return results


def _one(wanted: tuple[str, str, int], hours: float) -> Measures:
    name, policy, seed = wanted
    return simulate(_room(name, hours), POLICIES[policy], seed)


def _room(name: str, hours: float) -> Room:
    return msgspec.structs.replace(read_room(name), hours=hours)


def judged(results: Results) -> list[Row]:
    """The rows with a bar."""
    pairs = list(zip(results[ROOM, OURS], results[ROOM, BASELINE], strict=True))
    images = min(ours.images_per_hour / other.images_per_hour for ours, other in pairs)
    waits = max(ours.wait_p95_s / other.wait_p95_s for ours, other in pairs)
    shares = min(each.jain for each in results["always", OURS])
    return [
        at_least(f"{ROOM}: images an hour, times those of {BASELINE}", images, "x", 2.0),
        at_most(f"{ROOM}: p95 wait, times that of {BASELINE}", waits, "x", 1 / 3),
        at_least("always: Jain's index", shares, "", 0.95),
        *(
            at_most(
                f"{room}: overtaken for at most",
                max(each.overtaken_max_s for each in results[room, OURS]),
                "s",
                overtaking_bound_s(read_room(room)),
            )
            for room in shipped_rooms()
        ),
    ]


def overtaking_bound_s(room: Room) -> float:
    """Patience, one load, one job (or batch)."""
    return Settings().patience_s + max(
        models.load_s.pool + models.run_s(Settings().batch_limit if models.batches else 1)
        for models in room.models
    )


def means(results: Results) -> dict[str, dict[str, Measures]]:
    """By room and policy: the mean of the seeds."""
    found: dict[str, dict[str, Measures]] = {}
    for (room, policy), measured in results.items():
        columns = zip(*map(msgspec.structs.astuple, measured), strict=True)
        found.setdefault(room, {})[policy] = Measures(*(mean(column) for column in columns))
    return found


def figures(results: Results) -> list[Row]:
    """What the plot shows, without a bar."""
    return [
        shown(f"{room}, {policy}: {title}", getattr(measures, field), unit)
        for room, policies in means(results).items()
        for policy, measures in policies.items()
        for field, title, unit in PLOTTED
    ]


def plot(results: Results) -> str:
    """Images an hour and waits of every room, as bars."""
    panels = [
        Panel(
            f"{room}: {title} ({unit})",
            tuple((policy, getattr(each, field)) for policy, each in policies.items()),
            OURS,
        )
        for room, policies in means(results).items()
        for field, title, unit in PLOTTED
    ]
    return picture(panels, columns=2)


if __name__ == "__main__":
    sys.exit(main())
