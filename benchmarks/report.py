"""The one form of all benchmarks: rows with a limit and a bar, where and when they were measured.

A benchmark measures, makes rows with `at_most`, `at_least` or `shown`, and ends with `publish`.
Whether a row holds is computed from the unrounded value and from nothing else, and a row that does
not hold stays in.
"""

import math
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Literal

import msgspec
import psutil

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"

_PACKAGES = (
    "workshop-gpu",
    "torch",
    "diffusers",
    "transformers",
    "accelerate",
    "safetensors",
    "numpy",
    "pillow",
    "msgspec",
    "jupyter_server",
    "ipykernel",
)

Direction = Literal["at most", "at least"]


class Bar(msgspec.Struct, frozen=True):
    """What a value must reach: at most or at least this, in the row's unit."""

    direction: Direction
    value: float

    def holds(self, value: float) -> bool:
        """Whether the value reaches it; a value that is not a number never does."""
        return value <= self.value if self.direction == "at most" else value >= self.value


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measured value. `limit` is what the machine itself allows, measured in the same run.

    `holds` is None for a value that is shown without a bar.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None
    bar: Bar | None = None
    holds: bool | None = None


class Gpu(msgspec.Struct, frozen=True):
    """One card, as the driver names it."""

    name: str
    memory_bytes: int
    driver: str


class Machine(msgspec.Struct, frozen=True):
    """Where the benchmark ran. `cores` are those that this process may use."""

    cpu: str
    cores: int
    memory_bytes: int
    system: str
    gpus: list[Gpu]


class Result(msgspec.Struct, frozen=True):
    """A benchmark's whole result, as it is written. `modified`: the commit had changes on top."""

    name: str
    date: str
    commit: str
    modified: bool
    machine: Machine
    versions: dict[str, str]
    rows: list[Row]
    notes: str = ""


def at_most(
    name: str, value: float, unit: str, bar: float | None, limit: float | None = None
) -> Row:
    """A row whose value must not be above the bar (None: it is only shown)."""
    return _judged(name, value, unit, "at most", bar, limit)


def at_least(
    name: str, value: float, unit: str, bar: float | None, limit: float | None = None
) -> Row:
    """A row whose value must not be below the bar (None: it is only shown)."""
    return _judged(name, value, unit, "at least", bar, limit)


def shown(name: str, value: float, unit: str, limit: float | None = None) -> Row:
    """A row for the reader's information, without a bar."""
    return Row(name=name, value=value, unit=unit, limit=limit)


def _judged(
    name: str,
    value: float,
    unit: str,
    direction: Direction,
    than: float | None,
    limit: float | None,
) -> Row:
    if than is None:
        return shown(name, value, unit, limit)
    bar = Bar(direction, than)
    return Row(name=name, value=value, unit=unit, limit=limit, bar=bar, holds=bar.holds(value))


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that is not below `percent` of all (nearest rank). Needs a value."""
    ordered = sorted(values)
    rank = math.ceil(percent / 100 * len(ordered))
    return ordered[max(rank, 1) - 1]


def publish(
    name: str,
    rows: Sequence[Row],
    notes: str = "",
    *,
    folder: Path = RESULTS,
    out: IO[str] | None = None,
    measured: Result | None = None,
) -> int:
    """Print the table, write `folder/NAME.json`, return the exit code: 1 if a row fails its bar.

    `measured` is a result whose rows these are: its machine and versions count, not those here.
    """
    commit, modified = _commit()
    result = Result(
        name=name,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit,
        modified=modified,
        machine=measured.machine if measured else machine(),
        versions=measured.versions if measured else _versions(),
        rows=list(rows),
        notes=notes,
    )
    folder.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(result), indent=2)
    (folder / f"{name}.json").write_bytes(text + b"\n")
    print(table(result), file=out or sys.stdout)
    return int(any(row.holds is False for row in rows))


def read(path: Path) -> Result:
    """A result that `publish` wrote. Raises msgspec.ValidationError if it is none."""
    return msgspec.json.decode(path.read_bytes(), type=Result)


def table(result: Result) -> str:
    """The result for a terminal: where, when, then one line for each row."""
    cards = ", ".join(gpu.name for gpu in result.machine.gpus) or "no GPU"
    memory = f"{result.machine.memory_bytes / 2**30:.0f} GiB"
    head = [
        f"{result.name} · {result.date} · commit {result.commit[:10]}"
        + (" with changes" if result.modified else ""),
        f"{result.machine.cpu}, {result.machine.cores} cores, {memory}, {cards}",
    ]
    cells = [("what", "value", "unit", "limit", "bar", "holds")]
    cells += [_cells(row) for row in result.rows]
    widths = [max(len(line[column]) for line in cells) for column in range(6)]
    lines = []
    for line in cells:
        name, value, unit, limit, bar, holds = (
            text.rjust(width) if column in (1, 3) else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        lines.append(f"{name}  {value} {unit}  {limit}  {bar}  {holds}".rstrip())
    notes = [result.notes] if result.notes else []
    return "\n".join([*head, "", *lines, *notes])


def _cells(row: Row) -> tuple[str, str, str, str, str, str]:
    bar = ""
    if row.bar is not None:
        bar = ("≤ " if row.bar.direction == "at most" else "≥ ") + _number(row.bar.value)
    holds = {None: "", True: "yes", False: "NO"}[row.holds]
    limit = "" if row.limit is None else _number(row.limit)
    return (row.name, _number(row.value), row.unit, limit, bar, holds)


def _number(value: float) -> str:
    """Four significant digits, without exponents for what people measure."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 9)}f}"


def machine() -> Machine:
    """This machine. Looking at its cards neither needs nor imports torch."""
    return Machine(
        cpu=_cpu_name(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _all_cores(),
        memory_bytes=int(psutil.virtual_memory().total),
        system=platform.platform(),
        gpus=_gpus(),
    )


def _all_cores() -> int:
    return os.cpu_count() or 1


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpus() -> list[Gpu]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        return [
            Gpu(
                name=str(pynvml.nvmlDeviceGetName(handle)),
                memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
                driver=driver,
            )
            for handle in handles
        ]
    finally:
        pynvml.nvmlShutdown()


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def _commit() -> tuple[str, bool]:
    """The commit of this tree, and whether files differ from it (results do not count).

    A copy without its history is told by the environment: SOURCE_COMMIT.
    """
    told = os.environ.get("SOURCE_COMMIT")
    if told:
        return told, False
    try:
        commit = _git("rev-parse", "HEAD")
        changes = _git("status", "--porcelain", "--", ".", ":!benchmarks/results")
    except (OSError, subprocess.CalledProcessError):
        return "unknown", False
    return commit, bool(changes)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
