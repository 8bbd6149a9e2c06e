"""Open models: their components, whose weights are bound to a device's bytes and back.

Nothing of a module is ever moved: its tensors are let show other bytes, on the device or in the
pool. So a model comes back exactly as it was, however often it left.
"""

import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from workshop_gpu.worker.layout import Block, bind, strayed, unbind
from workshop_gpu.worker.pool import Part
from workshop_gpu.worker.protocol import ModelSource, PartBytes
from workshop_gpu.worker.stored import Identity, replaced


@dataclass(eq=False)
class Component:
    """One set of weights of an open model.

    `weights` lie in `part`, which models may share; `computed` is what the library computes at
    each opening, in memory of its own. Without `files` the weights cannot be read again;
    `identities` are those of the files that were read.
    """

    name: str
    module: Any
    weights: Block
    computed: Block
    part: Part
    files: tuple[Path, ...] = ()
    identities: tuple[Identity, ...] = ()
    computed_host: torch.Tensor = field(init=False)
    computed_device: torch.Tensor | None = None

    def __post_init__(self) -> None:
        memory = torch.zeros(self.computed.size_bytes, dtype=torch.uint8)
        for piece in self.computed.pieces:
            assert isinstance(piece.source, torch.Tensor)
            place = piece.place
            start = place.start // place.dtype.itemsize
            view = memory.view(place.dtype).as_strided(place.shape, place.stride, start)
            view.copy_(piece.source)
        self.computed_host = memory

    @property
    def size_bytes(self) -> int:
        """What it takes on the device, shared or not."""
        return self.part.size_bytes + self.computed.size_bytes

    @property
    def keeps(self) -> bool:
        """Whether it can come back after it left without being opened anew."""
        part = self.part
        return part.in_pool or part.size_bytes == 0 or bool(self.files and part.host is None)

    @property
    def is_outdated(self) -> bool:
        """Whether its files were replaced since it was opened."""
        return replaced(self.files, self.identities)

    def forget_sources(self) -> None:
        """A module that the library opened lets go of its first weights: the block has them."""
        if not self.files:
            nothing = torch.empty(0)
            pieces = tuple(replace(piece, source=nothing) for piece in self.weights.pieces)
            self.weights = replace(self.weights, pieces=pieces)

    def bind_to_device(self) -> None:
        """Show the bytes on the device."""
        assert self.part.device is not None
        bind(self.weights, self.part.device)
        device = self.part.device.device
        on_host = device.type == "cpu"
        self.computed_device = self.computed_host if on_host else self.computed_host.to(device)
        bind(self.computed, self.computed_device)

    def bind_to_host(self) -> None:
        """Show the pool's bytes, or none where nothing is in host memory."""
        if self.part.host is not None:
            bind(self.weights, self.part.host.tensor())
        else:
            unbind(self.weights)
        bind(self.computed, self.computed_host)
        self.computed_device = None

    def mend(self) -> bool:
        """Undo a cast that a job left behind; whether there was one. Bound to the device only."""
        device, computed = self.part.device, self.computed_device
        assert device is not None
        assert computed is not None
        if not strayed(self.weights, device) and not strayed(self.computed, computed):
            return False
        self.bind_to_device()
        return True


@dataclass(eq=False)
class OpenModel:
    """A model that is open; `resident` once it stands on the device, ready to draw.

    `in_use` is held while a job draws with it: it does not leave meanwhile. `departure` is larger
    the later it left.
    """

    source: ModelSource
    pipeline: Any
    components: tuple[Component, ...]
    dtypes: dict[str, torch.dtype]
    resident: bool = False
    departure: int = 0
    in_use: threading.Lock = field(default_factory=threading.Lock)

    @property
    def weights_bytes(self) -> int:
        """What it takes on the device; what its own components share counts once."""
        parts = {id(c.part): c.part.size_bytes for c in self.components}
        return sum(parts.values()) + self.computed_bytes

    @property
    def part_bytes(self) -> tuple[PartBytes, ...]:
        """What its components' weights take on the device, by the names of their content."""
        parts = {id(c.part): c.part for c in self.components}
        return tuple(PartBytes(part.digest, part.size_bytes) for part in parts.values())

    @property
    def computed_bytes(self) -> int:
        return sum(component.computed.size_bytes for component in self.components)

    @property
    def keeps(self) -> bool:
        """Whether it may stay open after it left the device."""
        return all(component.keeps for component in self.components)
