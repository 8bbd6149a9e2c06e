"""The compute lanes of the devices that stand ready, those first that are free first."""

from bisect import bisect_left, insort
from collections.abc import Iterator

IDLE_S = float("-inf")
UNKNOWN_S = float("inf")


class Lanes:
    """When each lane should be free: at `IDLE_S` where it is, at `UNKNOWN_S` where nobody knows."""

    def __init__(self) -> None:
        self._keys: list[tuple[float, str]] = []
        self._until: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[tuple[float, str]]:
        return iter(self._keys)

    def put(self, device: str, until_s: float) -> None:
        """The lane will be free then."""
        self.remove(device)
        self._until[device] = until_s
        insort(self._keys, (until_s, device))

    def remove(self, device: str) -> None:
        """The device does not stand ready."""
        until_s = self._until.pop(device, None)
        if until_s is not None:
            del self._keys[bisect_left(self._keys, (until_s, device))]

    def idle(self) -> list[str]:
        """The devices that compute nothing."""
        end = bisect_left(self._keys, (0.0, ""))
        return [device for _, device in self._keys[:end]]
