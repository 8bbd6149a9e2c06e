"""`python -m workshop_gpu.simulation ROOM`: what each policy makes of a room."""

import argparse
import sys

import msgspec

from workshop_gpu.simulation.measures import Measures
from workshop_gpu.simulation.policies import POLICIES
from workshop_gpu.simulation.room import Room, RoomMistake, read_room, shipped_rooms
from workshop_gpu.simulation.simulation import simulate

_FAILED = 1


def main(arguments: list[str] | None = None) -> int:
    """Simulates and prints; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        room = read_room(options.room)
    except RoomMistake as mistake:
        print(f"workshop_gpu.simulation: {mistake}", file=sys.stderr)
        return _FAILED
    names = options.policy or list(POLICIES)
    results = {name: simulate(room, POLICIES[name], options.seed) for name in names}
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(results), indent=2).decode())
    else:
        print(table(room, results))
    return 0


def table(room: Room, results: dict[str, Measures]) -> str:
    """The results as people read them."""
    rows = [("policy", *(name.removesuffix("_s") for name in Measures.__struct_fields__))]
    rows += [
        (name, *(f"{figure:.5g}" for figure in msgspec.structs.astuple(measures)))
        for name, measures in results.items()
    ]
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    legend = [f"{name}: {POLICIES[name].title}" for name in results]
    hours = f"{room.hours:g} hours; times in seconds"
    return "\n".join([room.title, hours, "", *lines, "", *legend])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workshop_gpu.simulation",
        description="Simulates people who share GPUs, under the conductor and other policies.",
    )
    shipped = ", ".join(shipped_rooms())
    parser.add_argument("room", metavar="ROOM", help=f"a shipped room ({shipped}), or a TOML file")
    parser.add_argument(
        "--policy",
        action="append",
        choices=list(POLICIES),
        metavar="P",
        help=f"this policy alone; may be given again ({', '.join(POLICIES)})",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="other dice (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON: the measures by policy")
    return parser


if __name__ == "__main__":
    sys.exit(main())
