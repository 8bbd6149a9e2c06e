"""What a load has begun: blocks on their way, to be finished or undone."""

from dataclasses import dataclass, field

import torch

from workshop_gpu.conductor.rungs import Placement
from workshop_gpu.worker.carrying import Trip
from workshop_gpu.worker.components import Component
from workshop_gpu.worker.placements import Streaming
from workshop_gpu.worker.progress import LoadProgress
from workshop_gpu.worker.stored import OpenFiles
from workshop_gpu.worker.streaming import Rotation


@dataclass(eq=False)
class Journey:
    """One block on its way: where it goes (None: to host memory only), and the files that it
    comes from."""

    component: Component
    onto: torch.Tensor | None
    trip: Trip
    files: OpenFiles | None
    fills: bool
    late: bool = False
    """It fills the pool afterwards."""


@dataclass(eq=False)
class UnderWay:
    """A load that goes on: what it has begun, to be finished or undone."""

    model: str
    progress: LoadProgress
    placement: Placement
    most_bytes: int = 0
    components: list[Component] = field(default_factory=list)
    journeys: dict[int, Journey] = field(default_factory=dict)
    files: list[OpenFiles] = field(default_factory=list)
    streaming: Streaming | None = None
    rotation: Rotation | None = None
    taken_bytes: int = 0
