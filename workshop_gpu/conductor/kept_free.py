"""What stays free on a device beside its models, because their settings want it so."""

from collections.abc import Collection

from workshop_gpu.conductor.effects import Holder


class KeptFree:
    """Bytes by model. They do not add up: the most that one of the models wants is what stays."""

    def __init__(self) -> None:
        self._wanted: dict[str, int] = {}

    @property
    def bytes(self) -> int:
        """What stays free."""
        return max(self._wanted.values(), default=0)

    def set(self, model: str, size_bytes: int) -> None:
        """So much stays free as long as the model is there (0: nothing)."""
        self.drop(model)
        if size_bytes > 0:
            self._wanted[model] = size_bytes

    def drop(self, model: str) -> None:
        """The model leaves, and nothing stays free for its sake."""
        self._wanted.pop(model, None)

    def clear(self) -> None:
        self._wanted.clear()

    def beyond(self, size_bytes: int, but: Collection[str] = ()) -> int:
        """What stays free for the sake of others than these models, beyond so many bytes."""
        others = (each for model, each in self._wanted.items() if model not in but)
        return max(0, max(others, default=0) - size_bytes)

    def holders(self) -> list[Holder]:
        """The model that wants the most has it."""
        most = max(self._wanted, key=lambda model: self._wanted[model], default=None)
        return [] if most is None else [Holder("kept_free", most, self._wanted[most])]
