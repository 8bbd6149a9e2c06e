"""The form of all benchmarks."""

import io
from pathlib import Path

import msgspec
import pytest

from benchmarks.report import (
    Row,
    at_least,
    at_most,
    percentile,
    publish,
    read,
    shown,
)

ROWS = [
    at_most("wait, p50", 4.25, "ms", bar=10, limit=1.5),
    at_most("wait, p99", 30.000001, "ms", bar=30),
    at_least("throughput", 51.0, "jobs/s", bar=50),
    shown("file", 1234567.0, "bytes"),
]


def published(folder: Path, rows: list[Row], notes: str = "") -> tuple[int, str]:
    out = io.StringIO()
    code = publish("overhead", rows, notes, folder=folder, out=out)
    return code, out.getvalue()


def test_a_result_is_written_whole_and_read_again(tmp_path: Path) -> None:
    published(tmp_path, ROWS, notes="one client")
    result = read(tmp_path / "overhead.json")
    assert result.name == "overhead"
    assert result.rows == ROWS
    assert result.notes == "one client"
    assert result.machine.cores >= 1
    assert result.machine.memory_bytes > 0
    assert {"python", "msgspec"} <= set(result.versions)
    assert result.date.endswith("+00:00")
    assert result.commit


def test_rows_have_the_fields_that_every_reader_expects(tmp_path: Path) -> None:
    published(tmp_path, ROWS)
    written = msgspec.json.decode((tmp_path / "overhead.json").read_bytes())
    assert set(written) >= {"machine", "versions", "date", "commit", "rows"}
    for row in written["rows"]:
        assert set(row) == {"name", "value", "unit", "limit", "bar", "holds"}


def test_the_unrounded_value_decides_and_a_failing_row_stays(tmp_path: Path) -> None:
    code, text = published(tmp_path, ROWS)
    assert code == 1
    result = read(tmp_path / "overhead.json")
    assert [row.holds for row in result.rows] == [True, False, True, None]
    assert result.rows[1].value == 30.000001
    assert next(line for line in text.splitlines() if "p99" in line).endswith("NO")


def test_all_rows_holding_or_without_a_bar_exit_with_zero(tmp_path: Path) -> None:
    code, _ = published(tmp_path, [row for row in ROWS if row.holds is not False])
    assert code == 0


@pytest.mark.parametrize(
    "row",
    [
        at_most("broken", float("nan"), "s", bar=1),
        at_least("broken", float("nan"), "s", bar=1),
    ],
)
def test_not_a_number_never_holds(row: Row) -> None:
    assert row.holds is False


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        (at_most("edge", 10.0, "ms", bar=10), True),
        (at_least("edge", 10.0, "ms", bar=10), True),
        (at_most("above", 10.5, "ms", bar=10), False),
        (at_least("below", 9.5, "ms", bar=10), False),
    ],
)
def test_a_bar_is_reached_at_its_own_value(row: Row, holds: bool) -> None:
    assert row.holds is holds


def test_the_table_has_a_line_for_each_row_under_one_head(tmp_path: Path) -> None:
    _, text = published(tmp_path, ROWS)
    head, _, _, columns, *lines = text.rstrip().splitlines()
    assert head.startswith("overhead · ")
    assert columns.split() == ["what", "value", "unit", "limit", "bar", "holds"]
    assert len(lines) == len(ROWS)
    assert "4.250 ms" in lines[0]
    assert "≤ 10.00" in lines[0]
    assert "≥ 50.00" in lines[2]
    assert "1234567 bytes" in lines[3]


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1.0), (50, 5.0), (90, 9.0), (99, 10.0), (100, 10.0)]
)
def test_percentiles_are_measured_values(percent: float, expected: float) -> None:
    assert percentile([float(n) for n in range(10, 0, -1)], percent) == expected


def test_one_value_is_all_its_percentiles() -> None:
    assert percentile([3.0], 1) == percentile([3.0], 99) == 3.0
