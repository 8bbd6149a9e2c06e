"""One device's account of all its bytes: does it fit?

Every byte has a named holder: `free_bytes` plus the sum over `holders()` is `total_bytes`, always.
Bytes are integers, so nothing leaks by rounding. `free_bytes` is negative where others took what
we had promised. Memory that a leaving slot has not given back yet counts as used.
"""

from workshop_gpu.conductor.effects import Holder


class Ledger:
    """The account of one device. It is told what happens; it decides nothing."""

    def __init__(self, margin_fraction: float, margin_max_bytes: int) -> None:
        self._margin_fraction = margin_fraction
        self._margin_max_bytes = margin_max_bytes
        self.total_bytes = 0
        self.foreign_bytes = 0
        self._weights: dict[str, int] = {}
        self._freeing: dict[str, int] = {}
        self._working: dict[str, int] = {}

    def open(self, total_bytes: int, foreign_bytes: int) -> None:
        """A worker stands ready on an empty device."""
        self.total_bytes = max(0, total_bytes)
        self.foreign_bytes = max(0, foreign_bytes)
        self.clear()

    def clear(self) -> None:
        """All of ours is gone: the worker ended, and its memory with it."""
        self._weights.clear()
        self._freeing.clear()
        self._working.clear()

    # sums

    @property
    def margin_bytes(self) -> int:
        """What is never promised: the driver's context, fragmentation, the unforeseen."""
        return min(self._margin_max_bytes, int(self.total_bytes * self._margin_fraction))

    @property
    def most_bytes(self) -> int:
        """What the device could give if everything on it left, foreign memory included."""
        return self.total_bytes - self.margin_bytes

    @property
    def ours_bytes(self) -> int:
        parts = (self._weights, self._freeing, self._working)
        return sum(sum(part.values()) for part in parts)

    @property
    def free_bytes(self) -> int:
        return self.total_bytes - self.margin_bytes - self.foreign_bytes - self.ours_bytes

    def holders(self) -> tuple[Holder, ...]:
        """Everybody who holds bytes, by kind and then in the order they came."""
        named = (("weights", self._weights), ("freeing", self._freeing), ("working", self._working))
        holders = [
            Holder(kind, name, size) for kind, part in named for name, size in part.items() if size
        ]
        if self.foreign_bytes:
            holders.append(Holder("foreign", "other processes", self.foreign_bytes))
        if self.margin_bytes:
            holders.append(Holder("margin", "margin", self.margin_bytes))
        return tuple(holders)

    # changes

    def read(self, used_bytes: int, ours_bytes: int) -> bool:
        """Takes over the driver's reading; says whether the account changed.

        Both numbers are of one reading, so that our own changes cancel out. A reading that
        contradicts itself (a failed query often reads as 0) changes nothing: believing it would
        make memory look free that is not.
        """
        nonsense = used_bytes < ours_bytes or ours_bytes < 0
        blind = ours_bytes == 0 and bool(self._weights) and used_bytes > 0
        if nonsense or blind or not self.total_bytes:
            return False
        foreign_bytes = min(used_bytes - ours_bytes, self.total_bytes)
        changed = foreign_bytes != self.foreign_bytes
        self.foreign_bytes = foreign_bytes
        return changed

    def set_weights(self, model: str, size_bytes: int) -> None:
        """The weights of a slot: estimated when its load begins, measured when it has ended."""
        self._weights[model] = max(0, size_bytes)

    def weights_bytes(self, model: str) -> int:
        return self._weights.get(model, 0) + self._freeing.get(model, 0)

    def drop_weights(self, model: str) -> None:
        """A load failed and left nothing behind."""
        self._weights.pop(model, None)

    def start_freeing(self, model: str) -> None:
        """The slot leaves; its bytes count until they have come back."""
        self._freeing[model] = self._weights.pop(model, 0)

    def freed(self, model: str) -> int:
        """The leaving slot's bytes came back; says how many the account had for it."""
        return self._freeing.pop(model, 0)

    def commit(self, job: str, working_bytes: int) -> None:
        """Promises working memory to a job, from the order to run it until its end."""
        self._working[job] = max(0, working_bytes)

    def release(self, job: str) -> None:
        self._working.pop(job, None)
