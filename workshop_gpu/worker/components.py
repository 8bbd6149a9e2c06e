"""Open models: their components, whose weights are bound to a device's bytes and back.

Nothing of a module is ever moved: its tensors are let show other bytes, on the device or in the
pool. So a model comes back exactly as it was, however often it left.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from workshop_gpu.conductor.rungs import (
    ENCODERS,
    RESIDENT,
    ROLES,
    VAE,
    Placement,
    RoleBytes,
    role_of,
)
from workshop_gpu.worker.embeddings import Embeddings
from workshop_gpu.worker.layout import Block, bind, strayed, unbind
from workshop_gpu.worker.neighbours import Neighbour
from workshop_gpu.worker.placements import (
    VISITORS,
    Home,
    Kept,
    Streaming,
    kept_beside,
    streaming_in,
)
from workshop_gpu.worker.pool import Part
from workshop_gpu.worker.protocol import ModelSource, PartBytes
from workshop_gpu.worker.stored import Identity, replaced
from workshop_gpu.worker.streaming import Rotation, Unit
from workshop_gpu.worker.units import layers_of, units_of

CPU = torch.device("cpu")


@dataclass(eq=False)
class Component:
    """One set of weights of an open model.

    `weights` lie in `part`, which models may share; `computed` is what the library computes at
    each opening, in memory of its own. Without `files` the weights cannot be read again;
    `identities` are those of the files that were read. `beside` is what of a streamed component is
    in none of the blocks that come and go, `kept` the same with the device's memory while it is
    there; `visit` the whole of a staged one while it is there, with what that takes beside the
    part's own copy there. `abroad` is the whole of one that lives on the device `neighbour`.
    """

    name: str
    module: Any
    weights: Block
    computed: Block
    part: Part
    files: tuple[Path, ...] = ()
    identities: tuple[Identity, ...] = ()
    torch_device: torch.device = CPU
    home: Home = Home.DEVICE
    beside: tuple[Kept, ...] = ()
    kept: tuple[tuple[Kept, torch.Tensor], ...] = ()
    visit: torch.Tensor | None = None
    visit_bytes: int = 0
    neighbour: Neighbour | None = None
    abroad: torch.Tensor | None = None
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
        """What it takes on the device if all of it is there, shared or not."""
        return self.part.size_bytes + self.computed.size_bytes

    @property
    def own_bytes(self) -> int:
        """What it takes on the device now beside its part's copy there, which may be shared."""
        kept_bytes = sum(kept.size_bytes for kept, _ in self.kept)
        here = self.computed_device is not None and self.home is not Home.ELSEWHERE
        return kept_bytes + self.visit_bytes + (self.computed.size_bytes if here else 0)

    @property
    def elsewhere_bytes(self) -> int:
        """What it takes on the device where it lives, if that is another one, beside its part's
        copy there, which may be shared."""
        return 0 if self.abroad is None else self.computed.size_bytes

    @property
    def computes_on(self) -> torch.device:
        """`torch_device`, unless its home is another one."""
        if self.home is Home.ELSEWHERE and self.neighbour is not None:
            return self.neighbour.torch_device
        return CPU if self.home is Home.CPU else self.torch_device

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
        """Show the bytes on the device: all of them, or those that stay there."""
        for block, memory in self._on_device():
            bind(block, memory)
        bind(self.computed, self._computed_there())

    def live_on(self, neighbour: Neighbour) -> None:
        """Let its bytes, which are in host memory, come to another device. Raises torch's error
        where there is no room."""
        self.neighbour = neighbour
        self.abroad = neighbour.whole(self.part)
        self.bind_to_device()

    def bind_to_host(self) -> None:
        """Show the pool's bytes, or none where not all is in host memory: what still comes may
        come into other memory in the end, and this must not hold the first."""
        if self.part.host is not None and self.part.complete:
            bind(self.weights, self.part.host.tensor())
        else:
            unbind(self.weights)
        bind(self.computed, self.computed_host)
        self.computed_device = None

    def leave(self) -> None:
        """Nothing of it is on the device any more, but the part's copy that others may share."""
        self.bind_to_host()
        self.kept, self.visit, self.visit_bytes, self.abroad = (), None, 0, None

    @property
    def visiting_bytes(self) -> int:
        """What it takes on the device while it is used, and does not take between jobs."""
        if self.home is Home.PASSING:
            return sum(kept.size_bytes for kept in self.beside) + self.computed.size_bytes
        return self.size_bytes if self.home is Home.STAGED else 0

    def mend(self) -> bool:
        """Undo a cast that a job left behind; whether there was one."""
        if self.home in (*VISITORS, Home.CPU):
            self.bind_to_host()
            return False
        there = [(self.computed, self._computed_there()), *self._on_device()]
        if not any(strayed(block, memory) for block, memory in there):
            return False
        self.bind_to_device()
        return True

    def _on_device(self) -> Sequence[tuple[Block, torch.Tensor]]:
        if self.home in (Home.STREAMED, Home.PASSING):
            return [(kept.tensors, memory) for kept, memory in self.kept]
        memory = self.visit if self.home is Home.STAGED else self.part.device
        if self.home is Home.ELSEWHERE:
            memory = self.abroad
        assert memory is not None
        return [(self.weights, memory)]

    def _computed_there(self) -> torch.Tensor:
        if self.computed_device is None:
            self.computed_device = self.computed_host.to(self.computes_on)
        return self.computed_device


def _pieces_bytes(components: Sequence[Component]) -> tuple[tuple[int, ...], int, int]:
    """The sizes of these components' blocks, the largest layer in them, and what of them is in no
    layer."""
    given = [(each.module, each.part, each.weights) for each in components]
    blocks = [unit.size_bytes for each in given for unit in units_of(*each)]
    in_layers = [unit.size_bytes for each in given for unit in layers_of(*each)]
    return tuple(blocks), max(in_layers, default=0), sum(blocks) - sum(in_layers)


def streaming_of(components: Sequence[Component], placement: Placement) -> Streaming | None:
    """Which of these components' blocks come and go; None where all of them have other homes.

    The components know then what of them is beside.
    """

    def units(home: Home) -> list[Unit]:
        at_home = [each for each in components if each.home is home]
        return [
            unit
            for each in at_home
            for unit in units_of(each.module, each.part, each.weights, placement.buffer_bytes)
        ]

    moving = [each for each in components if each.home in (Home.STREAMED, Home.PASSING)]
    if not moving:
        return None
    plan = streaming_in(placement, units(Home.STREAMED), units(Home.PASSING))
    for component in moving:
        component.beside = tuple(kept_beside(component.weights, plan.of(component.part)))
    return plan


def _named(parts: Iterable[Part]) -> tuple[PartBytes, ...]:
    each = {id(part): part for part in parts}
    return tuple(PartBytes(part.told_as or part.digest, part.size_bytes) for part in each.values())


@dataclass(eq=False)
class OpenModel:
    """A model that is open; `resident` once it stands in its placement, ready to draw.

    `placement` is what was done of the one that was `ordered`, `weights_bytes` what it takes on the
    device between jobs. `in_use` is held while a job draws
    with it: it does not leave meanwhile. `departure` is larger the later it left.
    """

    source: ModelSource
    pipeline: Any
    components: tuple[Component, ...]
    dtypes: dict[str, torch.dtype]
    resident: bool = False
    departure: int = 0
    in_use: threading.Lock = field(default_factory=threading.Lock)
    ordered: Placement = RESIDENT
    placement: Placement = RESIDENT
    rotation: Rotation | None = None
    weights_bytes: int = 0
    embeddings: Embeddings = field(default_factory=Embeddings)

    def stands(self) -> None:
        """All is where it belongs between jobs; what its own components share counts once. Encoders
        that compute elsewhere now give other numbers."""
        self.embeddings = Embeddings()
        whole = {id(c.part): c.part.size_bytes for c in self._homed(Home.DEVICE)}
        self.weights_bytes = sum(whole.values()) + self.own_bytes
        self.resident = True

    def leaves(self, departure: int) -> None:
        """It is about to leave, as the so-manyth."""
        self.resident, self.departure = False, departure
        self.embeddings = Embeddings()

    @property
    def own_bytes(self) -> int:
        """What no other model can share of what it takes on the device now."""
        buffers_bytes = self.rotation.size_bytes if self.rotation else 0
        return buffers_bytes + sum(component.own_bytes for component in self.components)

    @property
    def elsewhere_bytes(self) -> int:
        """What no other model can share of what it takes of its placement's source, the other
        device."""
        streamed_bytes = self.rotation.elsewhere_bytes if self.rotation else 0
        return streamed_bytes + sum(component.elsewhere_bytes for component in self.components)

    @property
    def encoder_bytes(self) -> tuple[PartBytes, ...]:
        """The parts of its text encoders, by the names of their content, wherever they are."""
        return _named(component.part for component in self.with_role(ENCODERS))

    @property
    def computed_bytes(self) -> int:
        return sum(component.computed.size_bytes for component in self.components)

    @property
    def transient_bytes(self) -> int:
        """The most that staged components bring in addition at any moment of a job."""
        coming = dict.fromkeys(ROLES, 0)
        for component in self.components:
            coming[role_of(component.name)] += component.visiting_bytes
        return max(coming.values())

    @property
    def part_bytes(self) -> tuple[PartBytes, ...]:
        """Which parts are wholly on the device, by the names of their content."""
        return _named(component.part for component in self._homed(Home.DEVICE))

    @cached_property
    def roles(self) -> tuple[RoleBytes, ...]:
        """What each role's weights take in all, and its blocks, where they can be streamed."""
        found = []
        for role in ROLES:
            own = [each for each in self.components if role_of(each.name) == role]
            parts = {id(c.part): c.part.size_bytes for c in own}
            size_bytes = sum(parts.values()) + sum(c.computed.size_bytes for c in own)
            if size_bytes:
                pieces = ((), 0, 0) if role == VAE else _pieces_bytes(own)
                found.append(RoleBytes(role, size_bytes, *pieces))
        return tuple(found)

    @property
    def keeps(self) -> bool:
        """Whether it may stay open after it left the device."""
        return all(component.keeps for component in self.components)

    def has_on_device(self, role: str) -> bool:
        """Whether all components of the role stay on the device."""
        return all(each.home is Home.DEVICE for each in self.with_role(role))

    def with_role(self, role: str) -> list[Component]:
        return [each for each in self.components if role_of(each.name) == role]

    def _homed(self, home: Home) -> list[Component]:
        return [each for each in self.components if each.home is home]
