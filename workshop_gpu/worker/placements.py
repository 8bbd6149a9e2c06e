"""Where a component lives in a placement, and what of a streamed one stays on the device."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Any

import msgspec

from workshop_gpu.conductor import errors
from workshop_gpu.conductor.rungs import (
    DENOISER,
    ENCODERS,
    HOST,
    ROLES,
    SLICED,
    TILED,
    VAE,
    Placement,
    role_of,
)
from workshop_gpu.worker.layout import Block, Piece, stretch
from workshop_gpu.worker.pipelines import modules
from workshop_gpu.worker.pool import Part
from workshop_gpu.worker.streaming import Unit, chosen
from workshop_gpu.worker.units import together


class Home(Enum):
    """Where a component's weights are between jobs, and where it computes."""

    DEVICE = "on the device"
    STAGED = "in host memory; on the device while it is used"
    STREAMED = "partly on the device; the rest comes block by block at each step"
    PASSING = "in host memory; on the device while it is used, but only some blocks at a time"
    CPU = "in host memory; it computes on the CPU"
    ELSEWHERE = "on another device, where it computes"


VISITORS = (Home.STAGED, Home.PASSING)
"""The homes of what is on the device only in a phase of a job."""


def home_in(placement: Placement, component: str) -> Home:
    """Where this component of a pipeline lives in a placement."""
    role = role_of(component)
    if role in placement.on_cpu:
        return Home.CPU
    if role in placement.elsewhere:
        return Home.ELSEWHERE
    if role in placement.streamed:
        return Home.PASSING
    if role in placement.staged:
        return Home.STAGED
    if role == DENOISER and placement.streamed_bytes:
        return Home.STREAMED
    return Home.DEVICE


@dataclass(frozen=True)
class Kept:
    """A stretch of a part that stays on the device: from `start` on in the part."""

    start: int
    tensors: Block

    @property
    def size_bytes(self) -> int:
        return self.tensors.size_bytes


def kept_beside(weights: Block, units: Sequence[Unit]) -> list[Kept]:
    """What of a block of weights is in none of these units."""
    away = {unit.start + piece.place.start for unit in units for piece in unit.tensors.pieces}

    def is_away(piece: Piece) -> bool:
        return piece.place.start in away

    return [
        Kept(pieces[0].place.start, stretch(pieces))
        for gone, run in groupby(weights.pieces, is_away)
        if not gone and (pieces := list(run))
    ]


@dataclass(frozen=True)
class Streaming:
    """What of a model is streamed, and through how many buffers of which size.

    `passing` are the units of components that are used once in a job, `units` those of denoisers.
    """

    passing: tuple[Unit, ...]
    units: tuple[Unit, ...]
    buffers: int

    @property
    def all_units(self) -> tuple[Unit, ...]:
        """In the order in which a job uses them."""
        return self.passing + self.units

    @property
    def streamed_bytes(self) -> int:
        """What comes anew at each step."""
        return sum(unit.size_bytes for unit in self.units)

    @property
    def buffer_bytes(self) -> int:
        """The size of one buffer."""
        return max((unit.size_bytes for unit in self.all_units), default=0)

    def of(self, part: Part) -> list[Unit]:
        """The streamed units of one component's part."""
        return [unit for unit in self.all_units if unit.part is part]


def streaming_in(
    placement: Placement, units: Sequence[Unit], passing: Sequence[Unit] = ()
) -> Streaming:
    """So many bytes of all denoisers' units as the placement says, spread evenly, and all units of
    the components that are `passing`."""
    numbers = chosen([unit.size_bytes for unit in units], placement.streamed_bytes)
    read = together(passing, placement.buffer_bytes)
    denoising = together([units[number] for number in numbers], placement.buffer_bytes)
    buffers = min(max(1, placement.buffers), len(read) + len(denoising))
    return Streaming(tuple(read), tuple(denoising), buffers)


def check_placement(placement: Placement) -> None:
    """Refuse what no model can be placed in here. Raises InvalidRequest."""
    named = {*placement.away}
    if unknown := named - {*ROLES}:
        raise errors.InvalidRequest(
            "placement",
            f"there is no role {', '.join(sorted(unknown))}; name some of {', '.join(ROLES)}",
        )
    if others := sorted({*placement.on_cpu} - {ENCODERS}):
        problem = f"only {ENCODERS} compute on the CPU; leave {', '.join(others)} out"
        raise errors.InvalidRequest("placement", problem)
    if others := sorted({*placement.elsewhere} - {ENCODERS}):
        problem = f"only {ENCODERS} compute on another GPU; leave {', '.join(others)} out"
        raise errors.InvalidRequest("placement", problem)
    if placement.elsewhere and placement.source in HOST:
        raise errors.InvalidRequest("source", "name the GPU on which they are to compute")
    if others := sorted({*placement.streamed} - {ENCODERS}):
        problem = f"only {ENCODERS} are streamed as a whole; leave {', '.join(others)} out"
        raise errors.InvalidRequest("placement", problem)
    if placement.streamed_bytes < 0:
        raise errors.InvalidRequest("streamed_bytes", "must not be negative")
    if placement.buffer_bytes < 0:
        raise errors.InvalidRequest("buffer_bytes", "must not be negative")
    if (placement.streamed_bytes or placement.streamed) and placement.buffers < 1:
        raise errors.InvalidRequest("buffers", "must be at least 1")


def apply(ordered: Placement, pipeline: Any, streaming: Streaming | None) -> Placement:
    """Set what else the placement asks of the pipeline. Returns what was done of it all.

    Slicing is an affair of UNets; transformers have no switch for it.
    """
    sliced = ordered.sliced and bool(sliceable := _sliceable(pipeline))
    for each in sliceable if sliced else ():
        each.set_attention_slice("auto")
    roles = {role_of(name) for name in modules(pipeline)}
    return msgspec.structs.replace(
        ordered,
        staged=tuple(role for role in ordered.staged if role in roles),
        on_cpu=tuple(role for role in ordered.on_cpu if role in roles),
        elsewhere=tuple(role for role in ordered.elsewhere if role in roles),
        streamed=tuple(role for role in ordered.streamed if role in roles),
        streamed_bytes=streaming.streamed_bytes if streaming else 0,
        tiled=ordered.tiled and TILED not in lacking(pipeline),
        sliced=sliced,
    )


def lacking(pipeline: Any) -> tuple[str, ...]:
    """What of a placement's manners this pipeline cannot do."""
    tiles = any(hasattr(vae, "use_tiling") for vae in _vaes(pipeline))
    able = {TILED: tiles, SLICED: bool(_sliceable(pipeline))}
    return tuple(manner for manner, can in able.items() if not can)


def withdraw(done: Placement, pipeline: Any) -> None:
    """Undo what `apply` set."""
    if done.sliced:
        for each in _sliceable(pipeline):
            each.set_attention_slice(None)


def _sliceable(pipeline: Any) -> list[Any]:
    return [each for each in modules(pipeline).values() if hasattr(each, "set_attention_slice")]


def _vaes(pipeline: Any) -> list[Any]:
    return [each for name, each in modules(pipeline).items() if role_of(name) == VAE]
