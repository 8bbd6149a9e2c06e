"""The kernels' references on models, found by id and by model."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class Hold:
    """A kernel's reference on a model."""

    id: str
    participant: str
    kernel: str | None
    model: str
    taken_s: float
    expires_s: float
    ended: str = ""
    """Why it is over; "" while it lives."""


class Holds:
    """The living holds, found by id and by model."""

    def __init__(self) -> None:
        self._holds: dict[str, Hold] = {}
        self._models: dict[str, dict[str, Hold]] = {}

    def __contains__(self, hold: str) -> bool:
        return hold in self._holds

    def __iter__(self) -> Iterator[Hold]:
        return iter(self._holds.values())

    def get(self, hold: str) -> Hold | None:
        return self._holds.get(hold)

    def of_model(self, model: str) -> list[Hold]:
        held = self._models.get(model)
        return list(held.values()) if held else []

    def on(self, model: str) -> bool:
        """Whether anybody holds the model."""
        return model in self._models

    def add(self, hold: Hold) -> None:
        self._holds[hold.id] = hold
        self._models.setdefault(hold.model, {})[hold.id] = hold

    def remove(self, hold: Hold) -> None:
        del self._holds[hold.id]
        del self._models[hold.model][hold.id]
        if not self._models[hold.model]:
            del self._models[hold.model]
