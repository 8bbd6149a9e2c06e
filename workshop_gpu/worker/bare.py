"""A model without its weights: its modules, and the pipeline around them.

Building modules sets the libraries' global state: only who has the turn may do it.
"""

from dataclasses import dataclass
from typing import Any

import torch

from workshop_gpu.worker.pipelines import ComponentFiles, Plan, assemble
from workshop_gpu.worker.quantized import open_gguf
from workshop_gpu.worker.skeletons import Skeleton, build_skeleton, open_by_library
from workshop_gpu.worker.stored import stored_tensors
from workshop_gpu.worker.turns import Turns


@dataclass(frozen=True)
class BareComponent:
    """A component's module. `mapped`: its tensors are those of its files, one to one; otherwise
    its library had to open it, and it has its weights already."""

    name: str
    skeleton: Skeleton
    mapped: bool


@dataclass(frozen=True)
class BareModel:
    """A pipeline whose components wait for their weights. It is for one model to open, once."""

    components: tuple[BareComponent, ...]
    pipeline: Any


def bare_component(wanted: ComponentFiles, dtype: torch.dtype, turns: Turns) -> BareComponent:
    """The component's module, in whichever way. Raises BadCheckpoint and the library's errors."""
    if wanted.quantized:
        with turns.turn():
            skeleton = open_gguf(wanted.cls, wanted.folder, wanted.files[0], dtype)
        return BareComponent(wanted.name, skeleton, mapped=False)
    stored = stored_tensors(wanted.files)
    with turns.turn():
        found = build_skeleton(wanted.cls, wanted.folder, stored, dtype)
        mapped = found is not None
        skeleton = found or open_by_library(wanted.cls, wanted.folder, dtype, wanted.variant)
    return BareComponent(wanted.name, skeleton, mapped)


def bare_model(plan: Plan, turns: Turns) -> BareModel | None:
    """The whole model; None where it cannot be had without its weights. Raises as above."""
    components = []
    if any(wanted.quantized for wanted in plan.components):
        return None
    for wanted in plan.components:
        stored = stored_tensors(wanted.files)
        with turns.turn():
            skeleton = build_skeleton(wanted.cls, wanted.folder, stored, plan.dtype)
        if skeleton is None:
            return None
        components.append(BareComponent(wanted.name, skeleton, mapped=True))
    if not components:
        return None
    pipeline = assemble(plan, {each.name: each.skeleton.module for each in components})
    return BareModel(tuple(components), pipeline)
