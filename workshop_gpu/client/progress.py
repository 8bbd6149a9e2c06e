"""A bar that says what happens with a job: in a notebook as HTML, in a terminal with tqdm.

The notebook's bar is plain HTML that is updated in place: it needs no widget, so it also shows
in VS Code, and what is saved with the notebook is one quiet line.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Protocol

from tqdm import tqdm

from workshop_gpu.client.words import Progress, Words, describe

SHORTEST_UPDATE_S = 0.08
_WORDS_ONLY = "{desc}"
_WORDS_AND_BAR = "{desc} |{bar}| {percentage:3.0f}%"

Watch = Callable[[Progress], None]
Say = Callable[[Words], None]


class Bar(Protocol):
    """Shows one line with a bar until it is closed."""

    def show(self, progress: Progress) -> None: ...

    def say(self, words: Words) -> None: ...

    def close(self) -> None: ...


@contextmanager
def progress_bar(*, show: bool = True) -> Iterator[Watch]:
    """Gives a function that shows a job's progress; the bar ends with the block."""
    if not show:
        yield lambda progress: None
        return
    bar: Bar = NotebookBar() if in_notebook() else TerminalBar()
    try:
        yield bar.show
    finally:
        bar.close()


@contextmanager
def waiting_line(*, show: bool = True) -> Iterator[Say]:
    """Gives a function that shows what is waited for; nothing of it stays."""
    if not show:
        yield lambda words: None
        return
    bar: Bar = NotebookBar() if in_notebook() else TerminalBar()
    try:
        yield bar.say
    finally:
        bar.close()


def in_notebook() -> bool:
    """Whether this process is a kernel, so that output may be HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class TerminalBar:
    """tqdm on stderr; on a pipe or in a log file it writes nothing until the end."""

    def __init__(self) -> None:
        self._bar: Any = None

    def show(self, progress: Progress) -> None:
        self.say(describe(progress))

    def say(self, words: Words) -> None:
        if self._bar is None:
            self._bar = tqdm(
                desc=words.line(),
                total=1.0,
                bar_format=_WORDS_ONLY,
                leave=False,
                disable=None,
                dynamic_ncols=True,
            )
        self._bar.bar_format = _WORDS_ONLY if words.part is None else _WORDS_AND_BAR
        self._bar.n = words.part or 0.0
        self._bar.set_description_str(words.line(), refresh=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


class NotebookBar:
    """One HTML output, updated in place and quiet at the end."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._last: Progress | None = None
        self._shown_at = float("-inf")
        self._started = time.monotonic()

    def show(self, progress: Progress) -> None:
        self._last = progress
        now = time.monotonic()
        ended = progress.job.state.ended
        if not ended and now - self._shown_at < SHORTEST_UPDATE_S:
            return
        self._shown_at = now
        if not ended:
            self._display(bar_html(progress), describe(progress).line())

    def say(self, words: Words) -> None:
        self._display(words_html(words), words.line())

    def close(self) -> None:
        """Leave a line that says what was made, or nothing where an error follows."""
        last = self._last
        if last is None:
            if self._handle is not None:
                self._display("", "")
            return
        text = summary(last, time.monotonic() - self._started)
        style = "opacity:0.65;font-size:90%"
        self._display(f'<span style="{style}">{escape(text)}</span>' if text else "", text)

    def _display(self, html: str, text: str) -> None:
        from IPython.display import display  # scripts need no IPython

        bundle = {"text/html": html, "text/plain": text}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)


def bar_html(progress: Progress) -> str:
    """The bar with its words and, once there is one, the picture as it forms."""
    image = ""
    preview = progress.preview
    if preview is not None and preview.data.startswith("data:image/"):
        image = (
            f'<img src="{escape(preview.data)}" alt="The picture as it forms" '
            'style="display:block;margin-top:4px;min-width:96px;border-radius:4px">'
        )
    return words_html(describe(progress), image)


def words_html(words: Words, image: str = "") -> str:
    """A bar with words; `image` is HTML to show below them."""
    part = "" if words.part is None else f' value="{words.part:.3f}"'
    text = escape(words.line())
    return (
        '<div role="status">'
        f'<progress max="1"{part} aria-label="{text}" style="width:220px;vertical-align:middle">'
        f'</progress> <span style="margin-left:6px">{text}</span>{image}</div>'
    )


def summary(progress: Progress, took_s: float) -> str:
    """What stays below the cell: model, seed, steps, size and time, and how the job went on where
    it could not be drawn as planned; "" if nothing was made."""
    job = progress.job
    if job.state != "done":
        return ""
    made = job.params or {}
    seeds = [str(info.seed) for info in job.images] or [str(made.get("seed", "?"))]
    steps = made.get("steps", job.steps)
    parts = [
        job.model,
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}",
        f"{steps} step{'' if steps == 1 else 's'}",
        f"{made['width']}×{made['height']}" if "width" in made and "height" in made else "",
        f"{took_s:.1f} s",
        job.went_on,
    ]
    return " · ".join(part for part in parts if part)
