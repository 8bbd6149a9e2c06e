"""LoRAs: small additions to a model's layers, put on for a job and taken off after it.

The weights of a model are shared and can only be read, so nothing is ever fused into them. PEFT
puts a layer around each layer that a LoRA changes: the plain one computes as always, and the
addition is computed beside it. Where no job asks for a LoRA the plain layers stand in the model,
so that it costs nothing and leaves nothing behind; what PEFT made is kept aside, in host memory.
A LoRA's few bytes come to the device with a job and leave with it: they are a part of the job's
working memory, and no placement has to know of them.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from peft.tuners.tuners_utils import BaseTunerLayer

from workshop_gpu.conductor.lora_errors import LoraUnusable
from workshop_gpu.worker.checkpoints import BadCheckpoint
from workshop_gpu.worker.components import Component, OpenModel
from workshop_gpu.worker.lora_files import add_adapter, read_lora
from workshop_gpu.worker.protocol import BatchMember
from workshop_gpu.worker.stored import content_name

MOST_KEPT = 4
"""Of each model, beside those in use; the one that was not used for longest is forgotten."""
MOST_KEPT_BYTES = 2_000_000_000
"""Of all models together, beside those in use: they lie in host memory that is no pool's."""
_LONGEST_PROBLEM = 300
"""Characters of a library's message."""


@dataclass(frozen=True)
class Wanted:
    """A LoRA that a job asks for, its file, and how strongly it counts."""

    name: str
    file: Path
    scale: float


def wanted_by(member: BatchMember) -> list[Wanted]:
    """The LoRAs of a job, in order."""
    files = member.lora_files
    return [
        Wanted(name, Path(files.get(name, "")), scale)
        for name, scale in member.params.loras.items()
    ]


@dataclass(frozen=True, eq=False)
class _Layer:
    """A place in a model, the layer that belongs there, and the one that PEFT put around it."""

    component: Component
    parent: Any
    name: str
    plain: Any
    adapted: Any

    def put_on(self) -> None:
        setattr(self.parent, self.name, self.adapted)

    def take_off(self) -> None:
        setattr(self.parent, self.name, self.plain)


@dataclass(frozen=True, eq=False)
class _Tensor:
    """One of a LoRA's tensors: PEFT's parameter, and what it shows between jobs."""

    component: Component
    parameter: torch.nn.Parameter
    host: torch.Tensor


@dataclass(frozen=True, eq=False)
class _Adapter:
    """A LoRA as PEFT knows it, by this name, with the layers that it changes. `sha256`: of its
    file."""

    name: str
    sha256: str
    layers: tuple[_Layer, ...]
    tensors: tuple[_Tensor, ...]

    @property
    def size_bytes(self) -> int:
        """In host memory."""
        return sum(each.host.nbytes for each in self.tensors)


@dataclass(eq=False)
class _Fitted:
    """What was made for one open model: LoRAs by their files' content, and all their layers."""

    adapters: OrderedDict[str, _Adapter] = field(default_factory=OrderedDict)
    layers: list[_Layer] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """By the files' content, what they were called last."""
    used: dict[str, int] = field(default_factory=dict)
    """By the files' content, the number of their last use among all of the worker's."""
    made: int = 0


class Loras:
    """The LoRAs of all models of a worker. Only for the thread that draws."""

    def __init__(self, most_kept_bytes: int = MOST_KEPT_BYTES) -> None:
        self._most_kept_bytes = most_kept_bytes
        self._uses = 0
        self._fitted: WeakKeyDictionary[OpenModel, _Fitted] = WeakKeyDictionary()

    @contextmanager
    def on(self, model: OpenModel, wanted: Sequence[Wanted]) -> Iterator[dict[str, str]]:
        """As long as this lasts the model draws with these; gives the SHA-256 of their files, by
        their names. Only for who has the turn: PEFT sets the libraries' global state. Raises
        LoraUnusable, and torch's error without memory."""
        if not wanted:
            yield {}
            return
        fitted = self._fitted.setdefault(model, _Fitted())
        adapters = [self._used(model, fitted, each) for each in wanted]
        _forget_oldest(model, fitted, MOST_KEPT + len(wanted))
        self._make_room(adapters)
        try:
            _put_on(adapters, [each.scale for each in wanted])
            yield {each.name: made.sha256 for each, made in zip(wanted, adapters, strict=True)}
        finally:
            _take_off(adapters)

    def _used(self, model: OpenModel, fitted: _Fitted, wanted: Wanted) -> _Adapter:
        found = _adapter(model, fitted, wanted)
        self._uses += 1
        fitted.used[next(reversed(fitted.adapters))] = self._uses
        return found

    def _make_room(self, in_use: Sequence[_Adapter]) -> None:
        """Those that were not used for longest go, of whichever models."""
        aside = [
            (fitted.used[key], model, fitted, key, adapter.size_bytes)
            for model, fitted in self._fitted.items()
            for key, adapter in fitted.adapters.items()
            if adapter not in in_use
        ]
        kept_bytes = sum(size_bytes for *_, size_bytes in aside)
        for _, model, fitted, key, size_bytes in sorted(aside, key=lambda each: each[0]):
            if kept_bytes > self._most_kept_bytes:
                _forget(model, fitted, key)
                kept_bytes -= size_bytes

    def kept(self, model: OpenModel) -> tuple[str, ...]:
        """The LoRAs that are ready for the model's next jobs, those used last at the end."""
        fitted = self._fitted.get(model)
        names = (fitted.names[key] for key in fitted.adapters) if fitted else ()
        return tuple(dict.fromkeys(names))


def _put_on(adapters: Sequence[_Adapter], scales: Sequence[float]) -> None:
    names = [adapter.name for adapter in adapters]
    for adapter, scale in zip(adapters, scales, strict=True):
        for each in adapter.tensors:
            each.parameter.data = each.host.to(each.component.computes_on)
        for layer in adapter.layers:
            layer.adapted.set_scale(adapter.name, scale)
            layer.adapted.set_adapter(names)
            layer.put_on()


def _take_off(adapters: Sequence[_Adapter]) -> None:
    for adapter in adapters:
        for layer in adapter.layers:
            layer.take_off()
        for each in adapter.tensors:
            each.parameter.data = each.host


# Made once, and kept


def _adapter(model: OpenModel, fitted: _Fitted, wanted: Wanted) -> _Adapter:
    """The LoRA for this model: kept from before, or made now."""
    try:
        if not wanted.file.is_file():
            raise BadCheckpoint("its file is not there (any more)")
        key = content_name(wanted.file)
        found = fitted.adapters.pop(key, None) or _made(model, fitted, wanted.file)
    except torch.OutOfMemoryError:
        raise
    except BadCheckpoint as problem:
        raise LoraUnusable(wanted.name, model.source.model, str(problem)) from None
    except Exception as problem:  # each library has classes of its own for what it does not know
        text = f"{type(problem).__name__}: {' '.join(str(problem).split())[:_LONGEST_PROBLEM]}"
        raise LoraUnusable(wanted.name, model.source.model, text) from None
    fitted.adapters[key], fitted.names[key] = found, wanted.name
    return found


def _sha256(file: Path) -> str:
    """Two files of one name are told apart by it, on any machine."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _made(model: OpenModel, fitted: _Fitted, file: Path) -> _Adapter:
    """Let PEFT make it, around layers that it may have made before. Where that fails, all that was
    ever made for the model is forgotten, since nobody knows how far it came."""
    read = read_lora(file, model.pipeline)
    fitted.made += 1
    name = f"lora{fitted.made}"
    for layer in fitted.layers:
        layer.put_on()
    try:
        for component in read.components:
            add_adapter(model.pipeline.components[component], component, name, read)
        fitted.layers = _adapted_layers(model)
        found = _found(name, _sha256(file), fitted.layers)
        if len(found.tensors) != read.count:
            raise BadCheckpoint(
                f"{file.name} has {read.count} tensors, of which {len(found.tensors)} fit this "
                "model: it is for another one"
            )
    except BaseException:
        fitted.layers = _adapted_layers(model)
        _forget_all(model, fitted)
        raise
    finally:
        for layer in fitted.layers:
            layer.take_off()
    return found


def _adapted_layers(model: OpenModel) -> list[_Layer]:
    """All layers around which PEFT has put one by now."""
    return [
        _Layer(component, parent, name, child.base_layer, child)
        for component in model.components
        for parent in component.module.modules()
        if not isinstance(parent, BaseTunerLayer)
        for name, child in parent.named_children()
        if isinstance(child, BaseTunerLayer)
    ]


def _found(name: str, sha256: str, layers: Sequence[_Layer]) -> _Adapter:
    own, tensors = [], []
    for layer in layers:
        mine = [
            parameter
            for path, parameter in layer.adapted.named_parameters()
            if name in path.split(".") and not path.startswith("base_layer.")
        ]
        if mine:
            own.append(layer)
        for parameter in mine:
            parameter.requires_grad_(False)
            tensors.append(_Tensor(layer.component, parameter, parameter.detach().cpu()))
    for each in tensors:
        each.parameter.data = each.host
    return _Adapter(name, sha256, tuple(own), tuple(tensors))


# Forgotten


def _forget_oldest(model: OpenModel, fitted: _Fitted, most: int) -> None:
    while len(fitted.adapters) > most:
        _forget(model, fitted, next(iter(fitted.adapters)))


def _forget(model: OpenModel, fitted: _Fitted, key: str) -> None:
    adapter = fitted.adapters.pop(key)
    for known in (fitted.names, fitted.used):
        known.pop(key, None)
    for layer in adapter.layers:
        layer.adapted.delete_adapter(adapter.name)
    for component in model.components:
        getattr(component.module, "peft_config", {}).pop(adapter.name, None)


def _forget_all(model: OpenModel, fitted: _Fitted) -> None:
    """The model is as if there had never been a LoRA."""
    for layer in fitted.layers:
        layer.take_off()
    fitted.layers.clear()
    fitted.adapters.clear()
    fitted.names.clear()
    fitted.used.clear()
    for component in model.components:
        if hasattr(component.module, "peft_config"):
            del component.module.peft_config
            component.module._hf_peft_config_loaded = False
