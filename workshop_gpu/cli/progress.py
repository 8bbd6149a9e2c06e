"""What happens now, on stderr: one line rewritten on a terminal, a line per stage elsewhere."""

import sys
from typing import TextIO


class ProgressLine:
    """Shows stages ("loading shapes") with how far each has come."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._stage = ""
        self._width = 0

    def show(self, stage: str, detail: str = "") -> None:
        if self._terminal:
            text = f"{stage} {detail}".rstrip()
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
            self._stream.flush()
        elif stage != self._stage:
            print(stage, file=self._stream, flush=True)
        self._stage = stage

    def close(self) -> None:
        """Clears the line, so that what follows starts at its beginning."""
        if self._terminal and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
        self._width = 0


def bar(done: int, total: int, width: int = 24) -> str:
    """`█████░░░  5/8`; an empty text where the total is not known."""
    if total <= 0:
        return ""
    full = round(width * min(done / total, 1.0))
    return f"{'█' * full}{'░' * (width - full)}"
