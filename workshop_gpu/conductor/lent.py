"""What workers of other devices hold of this one: weights that lie here for models over there.

What a load there was promised counts from its admission on, and what its worker says that it holds
counts where that is more (a context of its own, memory still being freed). Components that models
of one device have in common are here once for them, and count once.
"""

from collections.abc import Collection, Iterator

from workshop_gpu.conductor.effects import Holder
from workshop_gpu.conductor.events import PartBytes
from workshop_gpu.conductor.shared_weights import SharedWeights


class Lent:
    """Bytes by the other device and its model. It is told what happens; it decides nothing."""

    def __init__(self) -> None:
        self._promised: dict[str, SharedWeights] = {}
        self._held: dict[str, int] = {}

    @property
    def bytes(self) -> int:
        """What is not free because of them."""
        if not (self._promised or self._held):
            return 0
        devices = self._promised.keys() | self._held.keys()
        return sum(max(self._promised_to(each), self._held.get(each, 0)) for each in devices)

    @property
    def held_bytes(self) -> int:
        """What their workers said last that they hold: the driver's figure for this device has it,
        as what is not our own worker's."""
        return sum(self._held.values())

    def to(self, device: str, model: str) -> int:
        """What the model of that device was promised, with what it shares."""
        return self._of(device).of(model)

    def leaving_bytes(self, device: str, models: Collection[str]) -> int:
        """What comes free if these models have nothing here any more."""
        return self._of(device).leaving_bytes(models)

    def present_bytes(self, device: str, model: str, parts: Collection[PartBytes]) -> int:
        """How much of these parts is here already for other models of that device."""
        return self._of(device).present_bytes(parts, but=model)

    def promise(
        self, device: str, model: str, size_bytes: int, parts: Collection[PartBytes] = ()
    ) -> None:
        """Bytes of a model of another device, these parts included; 0: it has nothing here any
        more."""
        promised = self._promised.setdefault(device, SharedWeights())
        promised.drop(model)
        if size_bytes:
            promised.set(model, size_bytes, parts)
        if not promised:
            del self._promised[device]

    def holds(self, device: str, size_bytes: int) -> bool:
        """What that device's worker holds here by its own count; whether it is news."""
        before = self._held.pop(device, 0)
        if size_bytes > 0:
            self._held[device] = size_bytes
        return before != max(0, size_bytes)

    def ended(self, device: str) -> bool:
        """That device's worker ended, and all that it held; whether it held anything."""
        gone = self._promised.pop(device, None)
        return self.holds(device, 0) or gone is not None

    def holders(self) -> Iterator[Holder]:
        """By name; a worker's rest is its cache."""
        for device, promised in self._promised.items():
            for each in promised.holders():
                yield Holder(each.kind, f"{each.name} on {device}", each.bytes)
        for device, held in self._held.items():
            yield Holder("cache", f"worker of {device}", held - self._promised_to(device))

    def _promised_to(self, device: str) -> int:
        return self._of(device).bytes

    def _of(self, device: str) -> SharedWeights:
        return self._promised.get(device) or SharedWeights()
