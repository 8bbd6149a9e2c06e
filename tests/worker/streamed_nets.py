"""Networks whose weights are streamed, without a pipeline or a loader around them."""

from typing import Any

import pytest


class Watched:
    """The lane of the CPU, which counts what comes."""

    def __init__(self) -> None:
        from workshop_gpu.worker.streaming import PlainLane

        self._lane = PlainLane()
        self.copies = 0

    def copy(self, *arguments: Any) -> None:
        self.copies += 1
        self._lane.copy(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lane, name)


def units_in_host_memory(net: Any, buffer_bytes: int = 0) -> list[Any]:
    """The net's blocks that can be streamed; all its weights are now one part in host memory."""
    from workshop_gpu.worker.host_copy import OwnCopy
    from workshop_gpu.worker.layout import bind, split
    from workshop_gpu.worker.pool import Part
    from workshop_gpu.worker.skeletons import captured
    from workshop_gpu.worker.units import units_of

    weights, _ = split(captured(net))
    host = OwnCopy(weights.size_bytes)
    part = Part("net", weights.size_bytes, host, complete=True, in_pool=False)
    given = [piece.source.clone() for piece in weights.pieces]
    bind(weights, host.tensor())
    for piece, source in zip(weights.pieces, given, strict=True):
        piece.slots[0].tensor.data.copy_(source)
    return units_of(net, part, weights, buffer_bytes)


def streamed(
    *nets: Any, share: float = 1.0, buffers: int = 2, buffer_bytes: int = 0
) -> tuple[Any, Watched]:
    """The rotation of so much of all blocks of these nets."""
    import torch

    from workshop_gpu.conductor.rungs import Placement
    from workshop_gpu.worker.placements import streaming_in
    from workshop_gpu.worker.streaming import Rotation

    units = [unit for net in nets for unit in units_in_host_memory(net, buffer_bytes)]
    wanted_bytes = int(share * sum(unit.size_bytes for unit in units))
    placement = Placement(streamed_bytes=wanted_bytes, buffers=buffers, buffer_bytes=buffer_bytes)
    plan = streaming_in(placement, units)
    memories = [torch.empty(plan.buffer_bytes, dtype=torch.uint8) for _ in range(plan.buffers)]
    lane = Watched()
    return Rotation(plan.all_units, memories, lane), lane


def nothing_stays_behind(patch: pytest.MonkeyPatch) -> None:
    """Blocks that are not in a buffer show no numbers: who computes with one gets none."""
    import torch

    from workshop_gpu.worker.streaming import Unit

    def hide(unit: Any) -> None:
        for piece in unit.tensors.pieces:
            dtype = piece.place.dtype
            empty = torch.full(piece.place.shape, float("nan"), dtype=dtype)
            for slot in piece.slots:
                slot.put(empty)

    patch.setattr(Unit, "hide", hide)
