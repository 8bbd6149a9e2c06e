"""Weights of several models in one memory, in which a component that some share counts once."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from workshop_gpu.conductor.effects import Holder
from workshop_gpu.conductor.events import PartBytes


@dataclass(frozen=True, slots=True)
class _Weights:
    """What a model has there: its own bytes, and parts that others may have too."""

    own_bytes: int
    parts: frozenset[PartBytes]
    bytes: int
    """Both together."""


class SharedWeights:
    """Bytes by model. It is told what happens; it decides nothing."""

    def __init__(self) -> None:
        self._weights: dict[str, _Weights] = {}

    def __contains__(self, model: str) -> bool:
        return model in self._weights

    def __bool__(self) -> bool:
        return bool(self._weights)

    @property
    def bytes(self) -> int:
        """What all of them take together."""
        own = sum(each.own_bytes for each in self._weights.values())
        return own + sum(part.bytes for part in self._parts(self._weights))

    def of(self, model: str) -> int:
        """All bytes that the model has here, shared ones included."""
        each = self._weights.get(model)
        return each.bytes if each else 0

    def set(self, model: str, size_bytes: int, parts: Collection[PartBytes] = ()) -> None:
        """What `parts` do not account for is the model's own."""
        parts_bytes = sum(part.bytes for part in set(parts))
        own_bytes = max(0, size_bytes - parts_bytes)
        self._weights[model] = _Weights(own_bytes, frozenset(parts), own_bytes + parts_bytes)

    def drop(self, model: str) -> None:
        """The model has nothing here any more."""
        self._weights.pop(model, None)

    def clear(self) -> None:
        self._weights.clear()

    def present_bytes(self, parts: Collection[PartBytes], but: str = "") -> int:
        """How much of these parts is here already, for other models than one."""
        here = self._parts(model for model in self._weights if model != but)
        return sum(part.bytes for part in here.intersection(parts))

    def leaving_bytes(self, models: Collection[str], wanted: Collection[PartBytes] = ()) -> int:
        """What comes free if all these models leave: not what they share with others that stay,
        nor what is `wanted` again by the one who comes."""
        leaving = [self._weights[model] for model in models if model in self._weights]
        own = sum(each.own_bytes for each in leaving)
        if not any(each.parts for each in leaving):
            return own
        stay = [name for name in self._weights if name not in models]
        gone = self._parts(models) - self._parts(stay) - set(wanted)
        return own + sum(part.bytes for part in gone)

    def holders(self) -> Iterator[Holder]:
        """Who has how much; what some share is theirs together."""
        shared: dict[tuple[str, ...], int] = {}
        for part in self._parts(self._weights):
            users = tuple(name for name, each in self._weights.items() if part in each.parts)
            shared[users] = shared.get(users, 0) + part.bytes
        for name, each in self._weights.items():
            yield Holder("weights", name, each.own_bytes + shared.pop((name,), 0))
        for users, size_bytes in shared.items():
            yield Holder("weights", f"shared by {', '.join(users)}", size_bytes)

    def _parts(self, models: Iterable[str]) -> frozenset[PartBytes]:
        of_each = (self._weights[model].parts for model in models if model in self._weights)
        return frozenset[PartBytes]().union(*of_each)
