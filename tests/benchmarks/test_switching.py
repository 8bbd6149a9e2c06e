"""The switching benchmark runs from end to end, on the CPU with the shipped models."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from benchmarks.report import ROOT, Result, read


def test_a_small_run_measures_and_finds_the_pictures_unchanged(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.switching", "--small", "--out", str(tmp_path)]
    done = subprocess.run(
        [*command, "--peers", "--parts", "turbo", "tight"],
        check=False,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"},
        capture_output=True,
        text=True,
        timeout=560,
    )
    assert done.returncode == 0, done.stderr
    result: Result = read(tmp_path / "switching-small.json")
    values = {row.name: row.value for row in result.rows}
    assert values.pop("pictures that are not the bare pipeline's, bit for bit") == 0
    assert values.pop("parts of this benchmark that broke off") == 0
    host = {name: values.pop(name) for name in list(values) if name.startswith("host memory")}
    assert len(host) == 1
    assert all(value > 0 for value in values.values()), msgspec.json.encode(result.rows)
    assert {
        "large from the disk",
        "large ↔ turbo, only one fits, by a job for it",
    } <= (values.keys())
