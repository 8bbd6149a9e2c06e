"""Entries of the log of events: what the conductor announces, and what only the host knows."""

import msgspec

from workshop_gpu.conductor.effects import Effect
from workshop_gpu.host.classroom import HelpChanged, MessageChanged
from workshop_gpu.host.news import NewsItem


class Preview(msgspec.Struct, frozen=True):
    """The picture as it forms; `jpeg` is a small JPEG file."""

    job: str
    step: int
    steps: int
    image: int
    jpeg: bytes


class CatalogueRead(msgspec.Struct, frozen=True):
    """The catalogue was read again, or the rules for its models changed."""


class ProblemsChanged(msgspec.Struct, frozen=True):
    """Something of the server stopped working, or works again."""


LogEntry = (
    Effect | Preview | CatalogueRead | ProblemsChanged | NewsItem | MessageChanged | HelpChanged
)
