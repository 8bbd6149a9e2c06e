"""A model is opened: each component's module at once, its weights to be sent for."""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from workshop_gpu.conductor.rungs import Placement
from workshop_gpu.worker.ahead import Ahead
from workshop_gpu.worker.bare import bare_component
from workshop_gpu.worker.components import Component
from workshop_gpu.worker.devices import Device
from workshop_gpu.worker.layout import content_key, split
from workshop_gpu.worker.pipelines import Plan, assemble, modules, open_file
from workshop_gpu.worker.placements import home_in
from workshop_gpu.worker.pool import Parts
from workshop_gpu.worker.skeletons import Skeleton, captured
from workshop_gpu.worker.stored import OpenFiles
from workshop_gpu.worker.turns import Turns

SetOut = Callable[[Component, int, OpenFiles], None]
"""Called for each component as soon as its weights may come, with the bytes of its files and the
files, which are open."""


class Opener:
    """Makes pipelines whose weights are elsewhere yet."""

    def __init__(self, device: Device, turns: Turns, parts: Parts, ahead: Ahead) -> None:
        self._device = device
        self._turns = turns
        self._parts = parts
        self._ahead = ahead

    def open(
        self, plan: Plan, placement: Placement, files: list[OpenFiles], set_out: SetOut
    ) -> Any:
        """The model's pipeline. `files` becomes what is open, for the caller to close, also after
        an error. Raises BadCheckpoint, NoRoom and the libraries' own errors."""
        if not plan.components:
            return self._open_whole(plan, placement, files, set_out)
        for wanted in plan.components:
            files.append(OpenFiles(wanted.files))  # held from before the headers are read
        there = self._ahead.take(plan)
        found: dict[str, Any] = {}
        for number, wanted in enumerate(plan.components):
            if there is not None:
                bare = there.components[number]
            else:
                bare = bare_component(wanted, plan.dtype, self._turns)
            made_by = "" if bare.mapped else f"{wanted.name} {_libraries()} {plan.dtype}"
            component = self._component(
                plan, placement, wanted.name, bare.skeleton, wanted.files, made_by
            )
            if bare.mapped:  # it can be read again from its files
                component.files, component.identities = wanted.files, files[number].identities
            set_out(component, wanted.size_bytes, files[number])
            found[wanted.name] = component.module
        return assemble(plan, found) if there is None else there.pipeline

    def _open_whole(
        self, plan: Plan, placement: Placement, files: list[OpenFiles], set_out: SetOut
    ) -> Any:
        """A single file, whose names only the library knows to translate."""
        files.append(OpenFiles([plan.path]))
        with self._turns.turn():
            pipeline = open_file(plan)
        found = {name: captured(module) for name, module in modules(pipeline).items()}
        for name, skeleton in found.items():
            made_by = f"{name} {_libraries()} {plan.dtype}"
            component = self._component(plan, placement, name, skeleton, (plan.path,), made_by)
            set_out(component, plan.size_bytes // len(found), files[0])
        return pipeline

    def _component(
        self,
        plan: Plan,
        placement: Placement,
        name: str,
        skeleton: Skeleton,
        files: tuple[Path, ...],
        made_by: str,
    ) -> Component:
        weights, computed = split(skeleton)
        key = content_key(weights, files, made_by)
        part = self._parts.get(key, weights.size_bytes, plan.source.model)
        component = Component(name, skeleton.module, weights, computed, part)
        component.torch_device = self._device.torch_device
        component.home = home_in(placement, name)
        return component


def _libraries() -> str:
    names = ("diffusers", "transformers")
    return " ".join(f"{name} {version(name)}" for name in names)
