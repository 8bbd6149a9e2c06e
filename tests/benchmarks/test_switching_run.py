"""A run of the switching benchmark that was broken off goes on where it was."""

import contextlib
from pathlib import Path

import msgspec

from benchmarks.switching_run import Run


def a_run(folder: Path) -> Run:
    return Run({}, ["cpu:1GB"], [], True, folder, folder / "found.json")


def test_what_was_done_is_not_done_again_and_what_was_begun_is(tmp_path: Path) -> None:
    def breaks() -> None:
        raise ValueError("so it is")

    def is_cut_off() -> None:
        first.add("half of it", 2.0)
        raise KeyboardInterrupt

    first = a_run(tmp_path)
    first.attempt("one", lambda: first.add("a value", 1.0))
    first.attempt("two", breaks)
    with contextlib.suppress(KeyboardInterrupt):
        first.attempt("three", is_cut_off)

    done = []
    second = a_run(tmp_path)
    for name in ("one", "two", "three"):
        second.attempt(name, lambda name=name: done.append(name))
    assert done == ["three"]
    assert [(row.name, row.value) for row in second.found.rows] == [("a value", 1.0)]
    assert second.found.broken == 1
    assert second.found.notes == ["two broke off: ValueError: so it is"]


def test_what_another_machine_has_found_is_left_alone(tmp_path: Path) -> None:
    first = a_run(tmp_path)
    first.attempt("one", lambda: first.add("a value", 1.0))
    kept = tmp_path / "found.json"
    found = msgspec.json.decode(kept.read_bytes())
    kept.write_bytes(msgspec.json.encode({**found, "boot": "another"}))
    assert a_run(tmp_path).found.rows == []
