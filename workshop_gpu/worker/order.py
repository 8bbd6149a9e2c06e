"""In which order a network's streamed units run, learned from its last pass.

A pass ends where a module runs again that has run in it already. The next one is expected to be
like it, and to begin anew at its end. Whatever never ran yet is expected in order of definition.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Order(Generic[T]):
    """What runs next of some units. A unit may run several times in a pass."""

    def __init__(self, defined: Sequence[T]) -> None:
        self._defined = dict(zip(defined, [*defined[1:], *defined[:1]], strict=True))
        self._known: list[T] = []
        """The last whole pass; a unit that ran on stands there once."""
        self._place: int | None = None
        """Of what runs now in the known pass; None where it is not in there."""
        self._pass: list[T] = []
        self._seen: set[object] = set()

    def begin(self) -> None:
        """What runs now is the beginning of something: it follows on nothing."""
        self._pass, self._seen, self._place = [], set(), None

    def runs(self, unit: T, module: object) -> None:
        """A module of the unit runs now."""
        if module in self._seen:
            self._known, self._pass, self._seen = self._pass, [], set()
            self._place = len(self._known) - 1
        self._seen.add(module)
        if not self._pass or self._pass[-1] is not unit:
            self._pass.append(unit)
            self._place = self._find(unit)

    def coming(self, count: int) -> list[T]:
        """The next so many different units, the nearest first, without the one that runs."""
        if not self._pass:
            return []
        now = self._pass[-1]
        found: list[T] = []
        place, unit = self._place, now
        for _ in range(len(self._defined) + len(self._known)):
            if len(found) >= count:
                break
            if place is None:
                unit = self._defined[unit]
            else:
                place = (place + 1) % len(self._known)
                unit = self._known[place]
            if unit is not now and unit not in found:
                found.append(unit)
        return found

    def _find(self, unit: T) -> int | None:
        """The unit's place in the known pass: the next one after what ran before."""
        known, begin = self._known, (-1 if self._place is None else self._place) + 1
        places = [*range(begin, len(known)), *range(min(begin, len(known)))]
        return next((place for place in places if known[place] is unit), None)
