"""The demo's own parts; that it works as a whole is seen by `make demo CHECK=1`, which CI runs."""

import pytest

from scripts import demo


@pytest.fixture
def notebooks(tmp_path, monkeypatch):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (folder / demo.FIRST).write_text("first")
    (folder / "02-second.ipynb").write_text("second")
    monkeypatch.setattr(demo, "NOTEBOOKS", folder)
    return folder


def test_the_notebooks_are_copied_and_what_people_did_to_them_stays(notebooks, tmp_path):
    target = tmp_path / "out"
    first = demo.copy_notebooks(target)
    assert first.read_text() == "first"
    assert (target / "02-second.ipynb").read_text() == "second"
    first.write_text("played with")
    assert demo.copy_notebooks(target).read_text() == "played with"


def test_a_missing_notebook_is_named(notebooks, tmp_path):
    (notebooks / demo.FIRST).unlink()
    with pytest.raises(demo.DemoFailed, match="01-first-image"):
        demo.copy_notebooks(tmp_path / "out")


def test_a_server_that_does_not_start_is_reported_with_the_end_of_its_log(tmp_path, monkeypatch):
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\necho 'no port is free' >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setattr(demo.sys, "executable", str(failing))
    folder = tmp_path / "out"
    with pytest.raises(demo.DemoFailed, match="no port is free"), demo.Server(folder, []).running():
        pass


def test_a_failed_demo_ends_with_a_reason_and_a_status(notebooks, tmp_path, monkeypatch, capsys):
    (notebooks / demo.FIRST).unlink()
    monkeypatch.setattr(demo.sys, "argv", ["demo", "--check", "--folder", str(tmp_path / "out")])
    monkeypatch.setattr(demo.signal, "signal", lambda *_: None)
    assert demo.main() == 1
    assert capsys.readouterr().err.startswith("demo: ")
