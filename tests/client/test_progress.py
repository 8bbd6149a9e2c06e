"""Bars in notebooks and terminals."""

import io
import sys
from typing import Any

import pytest

from tests.client.fakes import a_job
from workshop_gpu.api import schemas
from workshop_gpu.client import progress
from workshop_gpu.client.progress import NotebookBar, bar_html, progress_bar, summary
from workshop_gpu.client.words import Progress

PREVIEW = schemas.PreviewEvent("1" * 32, 3, 20, 0, "data:image/jpeg;base64,eA==")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_the_words_and_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_bar() as watch:
        watch(Progress(a_job("queued", position=2, expected_wait_s=8.0)))
        waiting = terminal.getvalue()
        watch(Progress(a_job("running", step=7)))
    assert "Position 2 in the queue, about 8 s" in waiting
    assert "%" not in waiting
    assert "Step 7 of 20" in terminal.getvalue()
    assert "35%" in terminal.getvalue()


def test_a_log_file_gets_no_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with progress_bar() as watch:
        watch(Progress(a_job("running", step=7)))
    assert log.getvalue() == ""


def test_the_notebooks_bar_shows_words_part_and_preview() -> None:
    html = bar_html(Progress(a_job("running", step=7), preview=PREVIEW))
    assert "Step 7 of 20" in html
    assert 'value="0.350"' in html
    assert PREVIEW.data in html


def test_an_unknown_part_makes_a_bar_that_only_moves() -> None:
    assert "value=" not in bar_html(Progress(a_job("queued", position=2)))


def test_what_is_shown_is_text_and_a_preview_is_an_image_or_nothing() -> None:
    bad = schemas.PreviewEvent("1" * 32, 3, 20, 0, 'javascript:"><script>')
    html = bar_html(Progress(a_job("queued", model="<b>", waiting_for="load"), preview=bad))
    assert "<b>" not in html
    assert "script" not in html


def test_the_line_that_stays_says_how_the_picture_was_made() -> None:
    line = summary(Progress(a_job("done")), 1.26)
    assert line == "shapes · seed 7 · 20 steps · 128×128 · 1.3 s"
    assert summary(Progress(a_job("failed")), 1.0) == ""
    line = summary(Progress(a_job("done", went_on="went on with VAE tiling")), 1.26)
    assert line.endswith("1.3 s · went on with VAE tiling")


def test_a_notebook_gets_one_output_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, str]] = []

    class Handle:
        def update(self, bundle: dict[str, str], raw: bool) -> None:
            shown.append(("update", bundle["text/html"]))

    def display(bundle: dict[str, str], **options: Any) -> Handle:
        assert options == {"raw": True, "display_id": True}
        shown.append(("new", bundle["text/html"]))
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(progress, "SHORTEST_UPDATE_S", 0.0)
    bar = NotebookBar()
    bar.show(Progress(a_job("running", step=7)))
    bar.show(Progress(a_job("running", step=8)))
    bar.show(Progress(a_job("done")))
    bar.close()
    assert [kind for kind, _ in shown] == ["new", "update", "update"]
    assert "Step 8" in shown[1][1]
    assert "seed 7" in shown[2][1]


def test_a_bar_that_never_showed_anything_leaves_nothing() -> None:
    NotebookBar().close()
