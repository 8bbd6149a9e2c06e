"""What workers of other devices hold of this one: weights that lie here for models over there.

What a load there was promised counts from its admission on, and what its worker says that it holds
counts where that is more (a context of its own, memory still being freed).
"""

from collections.abc import Iterator

from workshop_gpu.conductor.effects import Holder


class Lent:
    """Bytes by the other device and its model. It is told what happens; it decides nothing."""

    def __init__(self) -> None:
        self._promised: dict[tuple[str, str], int] = {}
        self._held: dict[str, int] = {}

    @property
    def bytes(self) -> int:
        """What is not free because of them."""
        devices = {device for device, _ in self._promised} | self._held.keys()
        return sum(max(self._promised_to(each), self._held.get(each, 0)) for each in devices)

    @property
    def held_bytes(self) -> int:
        """What their workers said last that they hold: the driver's figure for this device has it,
        as what is not our own worker's."""
        return sum(self._held.values())

    def to(self, device: str, model: str) -> int:
        """What the model of that device was promised."""
        return self._promised.get((device, model), 0)

    def promise(self, device: str, model: str, size_bytes: int) -> None:
        """Bytes of a model of another device; 0: it has nothing here any more."""
        self._promised.pop((device, model), None)
        if size_bytes:
            self._promised[device, model] = size_bytes

    def holds(self, device: str, size_bytes: int) -> bool:
        """What that device's worker holds here by its own count; whether it is news."""
        before = self._held.pop(device, 0)
        if size_bytes > 0:
            self._held[device] = size_bytes
        return before != max(0, size_bytes)

    def ended(self, device: str) -> bool:
        """That device's worker ended, and all that it held; whether it held anything."""
        gone = [each for each in self._promised if each[0] == device]
        for each in gone:
            del self._promised[each]
        return self.holds(device, 0) or bool(gone)

    def holders(self) -> Iterator[Holder]:
        """By name; a worker's rest is its cache."""
        for (device, model), size_bytes in self._promised.items():
            yield Holder("weights", f"{model} on {device}", size_bytes)
        for device, held in self._held.items():
            yield Holder("cache", f"worker of {device}", held - self._promised_to(device))

    def _promised_to(self, device: str) -> int:
        return sum(size for (each, _), size in self._promised.items() if each == device)
