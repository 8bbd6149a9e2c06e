"""What `dispatch.py` and `granting.py` decide: orders that `conductor.py` gives."""

from dataclasses import dataclass, field

from workshop_gpu.conductor.records import Job
from workshop_gpu.conductor.rungs import RESIDENT, Placement


@dataclass(frozen=True, slots=True)
class Run:
    """Run the jobs as one batch; `overtaken` are the models whose jobs ahead of it wait."""

    device: str
    jobs: tuple[Job, ...]
    overtaken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """Bring the model into the placement; it fits. Where it is ready, it is placed otherwise.
    `weights_bytes` is what it takes there; None: as a whole."""

    device: str
    model: str
    placement: Placement = RESIDENT
    weights_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Evict:
    """Make the model leave; `room_for` names the model that needs the room, if any does."""

    device: str
    model: str
    because: str
    room_for: str = ""


@dataclass(frozen=True, slots=True)
class Compile:
    """Compile the model's blocks, beside all else."""

    device: str
    model: str


Order = Run | Load | Evict | Compile


@dataclass(slots=True)
class Decision:
    """The next order, and the models for whose jobs no device that was looked at has room."""

    order: Order | None = None
    without_room: set[str] = field(default_factory=set)
