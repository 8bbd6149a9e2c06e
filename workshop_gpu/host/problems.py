"""What of the server does not work at present, in words for people."""

from collections.abc import Callable, Iterable
from typing import Protocol


class Part(Protocol):
    """A part of the server."""

    @property
    def problem(self) -> str:
        """What does not work, in a sentence; "" where all is well."""


class Problems:
    """Asks the parts of the server. `announce` is called when what they say has changed."""

    def __init__(self, parts: Iterable[Part], announce: Callable[[], None]) -> None:
        self._parts = tuple(parts)
        self._announce = announce
        self._told: tuple[str, ...] = ()

    @property
    def now(self) -> tuple[str, ...]:
        return tuple(filter(None, (part.problem for part in self._parts)))

    def look(self) -> None:
        """To be called now and then: the parts do not say it by themselves."""
        if (now := self.now) != self._told:
            self._told = now
            self._announce()
