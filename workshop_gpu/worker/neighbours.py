"""Other devices of this machine whose memory a worker's models may use.

A worker computes on its own device. Where a model's placement names another one, some weights lie
there: blocks are streamed from there, or text encoders compute there. Nothing touches such a device
before, since a CUDA context alone takes half a gigabyte of it.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from weakref import WeakValueDictionary

import torch

from workshop_gpu.conductor import errors
from workshop_gpu.worker.devices import USUAL_CONTEXT_BYTES, Nvml, card_uuid
from workshop_gpu.worker.pinning import within_chunks
from workshop_gpu.worker.pool import Part


class Neighbour:
    """One other device. A pretended one is memory of the host."""

    def __init__(self, torch_device: torch.device) -> None:
        self.torch_device = torch_device
        self._touched = False
        self._whole: WeakValueDictionary[Part, torch.Tensor] = WeakValueDictionary()
        """Parts that are there, for as long as some model has them there."""

    @cached_property
    def _nvml(self) -> Nvml:
        return Nvml()

    def copy_of(self, data: torch.Tensor, start: int, size_bytes: int) -> torch.Tensor:
        """So many bytes of host memory (uint8) from `start` on, in memory of the device. They are
        there when this returns. Raises torch's error where there is no room."""
        self._touched = True
        with torch.inference_mode(False):
            memory = torch.empty(size_bytes, dtype=torch.uint8, device=self.torch_device)
            for begin, end in within_chunks(start, size_bytes):
                memory[begin:end].copy_(data[start + begin : start + end], non_blocking=True)
        if self.torch_device.type == "cuda":
            torch.cuda.synchronize(self.torch_device)
        return memory

    def whole(self, part: Part) -> torch.Tensor:
        """All of a part that is in host memory: one copy for all models that have it there, which
        goes with the last of them. Raises as `copy_of` does."""
        there = self._whole.get(part)
        if there is None:
            assert part.host is not None
            there = self.copy_of(part.host.tensor(), 0, part.size_bytes)
            self._whole[part] = there
        return there

    @property
    def whole_bytes(self) -> int:
        """What those copies take."""
        # Any thread may ask while the loader's brings one.
        there = [copy() for copy in self._whole.valuerefs()]
        return sum(len(copy) for copy in there if copy is not None)

    def held_bytes(self, weights_bytes: int) -> int:
        """What this process holds there, where models have `weights_bytes` of it: by the driver's
        figure or, where that is not given, by the allocator's and a context's usual size."""
        if self.torch_device.type == "cpu" or not self._touched:
            return weights_bytes
        reserved_bytes = torch.cuda.memory_reserved(self.torch_device)
        told_bytes = self._nvml.bytes_of_this_process(card_uuid(self.torch_device), reserved_bytes)
        return reserved_bytes + USUAL_CONTEXT_BYTES if told_bytes is None else told_bytes


class Neighbours:
    """The devices that the host lets this worker use beside its own, by the server's names: cards
    as the second, third … visible one, or pretended ones."""

    def __init__(self, names: Iterable[str] = (), *, on_card: bool = False) -> None:
        self._there = {
            name: Neighbour(torch.device("cuda", number) if on_card else torch.device("cpu"))
            for number, name in enumerate(names, 1)
        }

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._there)

    def named(self, name: str) -> Neighbour:
        """Raises InvalidRequest where it is not among them."""
        if name not in self._there:
            there = ", ".join(self._there) or "none"
            problem = f'this worker sees no device "{name}"; choose one of these: {there}'
            raise errors.InvalidRequest("source", problem)
        return self._there[name]

    @property
    def whole_bytes(self) -> dict[str, int]:
        """What parts that lie on one as a whole take there; shared ones once."""
        taken = {name: each.whole_bytes for name, each in self._there.items()}
        return {name: size_bytes for name, size_bytes in taken.items() if size_bytes}

    def held(self, weights: Mapping[str, int]) -> dict[str, int]:
        """What this process holds of each, where models have so many bytes there."""
        held = {name: each.held_bytes(weights.get(name, 0)) for name, each in self._there.items()}
        return {name: size_bytes for name, size_bytes in held.items() if size_bytes}
