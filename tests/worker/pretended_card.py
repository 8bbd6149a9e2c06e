"""A card that is none, in the test's process: what would be copied over the bus is copied.

Its memory is counted as torch's allocator counts a card's: taken until nothing, whatever it is,
refers to it any more, and then kept for what comes until it is given back.
"""

import itertools
import types
import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

STRETCH_BYTES = 2**16


class CardMemory:
    """What was handed out and has not come back: bytes, by a number for each time."""

    def __init__(self) -> None:
        self.taken: dict[int, int] = {}
        self.most_bytes = 0
        """That were taken at once."""
        self._reserved_bytes = 0
        self._numbers = itertools.count()

    def room(self, size_bytes: int) -> Any:
        """A tensor of so many bytes (uint8)."""
        import torch

        memory, number = np.empty(size_bytes, np.uint8), next(self._numbers)
        self.taken[number] = size_bytes
        self.most_bytes = max(self.most_bytes, self.taken_bytes)
        self._reserved_bytes = self.reserved_bytes
        weakref.finalize(memory, self.taken.pop, number)
        return torch.from_numpy(memory)

    @property
    def taken_bytes(self) -> int:
        return sum(self.taken.values())

    @property
    def reserved_bytes(self) -> int:
        """What the allocator has of the driver."""
        return max(self._reserved_bytes, self.taken_bytes)

    def give_back(self) -> None:
        """What is kept for nobody."""
        self._reserved_bytes = 0


def pretended_card(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, CardMemory]:
    """The device, for a loader that is made afterwards, and its memory."""
    import torch

    from workshop_gpu.worker import carrying, devices, loading, staging
    from workshop_gpu.worker.protocol import Memory
    from workshop_gpu.worker.streaming import PlainLane

    class Card(devices.CudaDevice):
        def __init__(self) -> None:
            self.torch_device = torch.device("cpu")
            self.default_dtype = torch.float32
            self.name, self.uuid, self.total_bytes = "pretended", "", 10**9
            self.transfers = self.streaming = _Stream()  # type: ignore[assignment]

        def memory(self, weights_bytes: int) -> Memory:
            return Memory(taken.reserved_bytes, taken.reserved_bytes)

        def allocated_bytes(self) -> int:
            return taken.taken_bytes

        def cached_bytes(self) -> int:
            return taken.reserved_bytes - taken.taken_bytes

        def free_bytes(self, weights_bytes: int) -> int:
            return self.total_bytes - taken.taken_bytes

        def start_peak(self) -> None:
            pass

        def peak_bytes(self) -> int:
            return 0

        def settle(self) -> None:
            pass

        def room_for_weights(self, size_bytes: int) -> torch.Tensor:
            return taken.room(size_bytes)

        def weights_go(self) -> AbstractContextManager[None]:
            return nullcontext()

        def return_cache(self) -> None:
            taken.give_back()

        def give_back(self) -> None:
            taken.give_back()

    def send(self: Any, data: torch.Tensor, onto: torch.Tensor) -> None:
        onto.copy_(data)

    taken = CardMemory()
    stager_sees = {
        "empty": lambda size_bytes, dtype, device: taken.room(size_bytes),
        "uint8": torch.uint8,
        "inference_mode": torch.inference_mode,
        "cuda": types.SimpleNamespace(current_stream=_Stream),
    }
    monkeypatch.setattr(carrying, "_CARD_STRETCH_BYTES", STRETCH_BYTES)
    monkeypatch.setattr(carrying, "Pinning", lambda drawing: None)
    monkeypatch.setattr(carrying.Carrier, "_send", send)
    monkeypatch.setattr(loading, "CardLane", lambda stream: PlainLane())
    monkeypatch.setattr(staging, "torch", types.SimpleNamespace(**stager_sees))
    return Card(), taken


class _Stream:
    def wait_stream(self, other: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass
