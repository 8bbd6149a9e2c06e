"""LoRAs: small additions to a model's layers, put on for a job and taken off after it.

The weights of a model are shared and can only be read, so nothing is ever fused into them. PEFT
puts a layer around each layer that a LoRA changes: the plain one computes as always, and the
addition is computed beside it. Where no job asks for a LoRA the plain layers stand in the model,
so that it costs nothing and leaves nothing behind; what PEFT made is kept aside, in host memory. It
counts in the weight pool's budget: the host is told of it, and may have it forgotten.
A LoRA's few bytes come to the device with a job and leave with it: they are a part of the job's
working memory, and no placement has to know of them.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
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
from workshop_gpu.worker.protocol_loras import KeptLora
from workshop_gpu.worker.stored import content_name

MOST_KEPT = 4
"""Of each model, beside those in use; the one that was not used for longest is forgotten."""
MOST_KEPT_BYTES = 2_000_000_000
"""Of all models together, beside those in use; fewer where the weight pool needs the room."""
_LONGEST_PROBLEM = 300
"""Characters of a library's message."""

Tell = Callable[[tuple[KeptLora, ...]], None]
"""Tells the host what is kept."""


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
    """A LoRA as PEFT knows it, by this name, with the layers of its model that it changes.
    `sha256`: of its file."""

    model: str
    name: str
    sha256: str
    layers: tuple[_Layer, ...]
    tensors: list[_Tensor]

    @property
    def key(self) -> str:
        """Of all that the worker keeps."""
        return f"{self.model} {self.name}"

    @property
    def size_bytes(self) -> int:
        """In host memory."""
        return sum(each.host.nbytes for each in self.tensors)

    def let_go(self) -> None:
        """Its bytes go. What PEFT made stays around the model's plain layers, and is empty."""
        for each in self.tensors:
            each.parameter.data = each.host.new_empty(0)
        self.tensors.clear()


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
    gone: list[_Adapter] = field(default_factory=list)
    """Let go of, and to be taken out of PEFT's layers by the thread that draws."""

    def let_go(self, key: str) -> None:
        adapter = self.adapters.pop(key)
        for known in (self.names, self.used):
            known.pop(key, None)
        adapter.let_go()
        self.gone.append(adapter)


class Loras:
    """The LoRAs of all models of a worker. Only for the thread that draws, but for `forget` and
    `closed`: others must have the memory back while it draws for minutes."""

    def __init__(
        self, most_kept_bytes: int = MOST_KEPT_BYTES, tell: Tell = lambda kept: None
    ) -> None:
        self._most_kept_bytes = most_kept_bytes
        self._uses = 0
        self._fitted: WeakKeyDictionary[OpenModel, _Fitted] = WeakKeyDictionary()
        self._in_use: set[_Adapter] = set()
        self._keeping = threading.Lock()
        """Held while it is decided what stays, and what is used."""
        self._tell = tell
        self._telling = threading.Lock()
        self._told: tuple[KeptLora, ...] = ()

    @contextmanager
    def on(self, model: OpenModel, wanted: Sequence[Wanted]) -> Iterator[dict[str, str]]:
        """As long as this lasts the model draws with these; gives the SHA-256 of their files, by
        their names. Only for who has the turn: PEFT sets the libraries' global state. Raises
        LoraUnusable, and torch's error without memory."""
        if not wanted:
            yield {}
            return
        with self._keeping:
            fitted = self._fitted.setdefault(model, _Fitted())
        _take_out(model, fitted)
        adapters: list[_Adapter] = []
        try:
            for each in wanted:
                adapters.append(self._used(model, fitted, each))
            self._make_room(fitted, MOST_KEPT + len(wanted))
            _take_out(model, fitted)
            self._tell_kept()
            _put_on(adapters, [each.scale for each in wanted])
            yield {each.name: made.sha256 for each, made in zip(wanted, adapters, strict=True)}
        finally:
            _take_off(adapters)
            with self._keeping:
                self._in_use.clear()
            self._tell_kept()

    def _used(self, model: OpenModel, fitted: _Fitted, wanted: Wanted) -> _Adapter:
        """The LoRA for this model: kept from before, or made now. From here on it is in use."""
        with _told_as_unusable(model, wanted):
            if not wanted.file.is_file():
                raise BadCheckpoint("its file is not there (any more)")
            key = content_name(wanted.file)
            with self._keeping:
                found = fitted.adapters.pop(key, None)
                if found is not None:
                    self._keep(fitted, key, wanted.name, found)
            if found is None:
                found = self._made(model, fitted, wanted.file)
                with self._keeping:
                    self._keep(fitted, key, wanted.name, found)
        return found

    def _made(self, model: OpenModel, fitted: _Fitted, file: Path) -> _Adapter:
        """Where it fails, all that was ever made for the model is forgotten, since nobody knows
        how far PEFT came."""
        try:
            return _made(model, fitted, file)
        except BaseException:
            with self._keeping:
                _forget_all(model, fitted)
            raise

    def _keep(self, fitted: _Fitted, key: str, name: str, adapter: _Adapter) -> None:
        self._uses += 1
        self._in_use.add(adapter)
        fitted.adapters[key], fitted.names[key], fitted.used[key] = adapter, name, self._uses

    def _make_room(self, fitted: _Fitted, most: int) -> None:
        """Of this model at most so many stay; of all, those that were not used for longest go
        where they are too large together."""
        with self._keeping:
            for key in [*fitted.adapters][: max(0, len(fitted.adapters) - most)]:
                fitted.let_go(key)
            aside = [each for each in self._all() if each[-1] not in self._in_use]
            kept_bytes = sum(adapter.size_bytes for *_, adapter in aside)
            for of, key, adapter in aside:
                if kept_bytes > self._most_kept_bytes:
                    kept_bytes -= adapter.size_bytes
                    of.let_go(key)

    def _all(self) -> list[tuple[_Fitted, str, _Adapter]]:
        """Those of all models, the last used at the end."""
        found = [
            (fitted, key, adapter)
            for fitted in self._fitted.values()
            for key, adapter in fitted.adapters.items()
        ]
        return sorted(found, key=lambda each: each[0].used[each[1]])

    def kept(self, model: OpenModel) -> tuple[str, ...]:
        """The LoRAs that are ready for the model's next jobs, those used last at the end."""
        with self._keeping:
            fitted = self._fitted.get(model)
            names = [fitted.names[key] for key in fitted.adapters] if fitted else []
        return tuple(dict.fromkeys(names))

    @property
    def kept_bytes(self) -> int:
        """What all of them take of the host's memory."""
        with self._keeping:
            return sum(adapter.size_bytes for *_, adapter in self._all())

    # From other threads too

    def forget(self, keys: Collection[str]) -> None:
        """The host needs the memory of these: they go, but for those in use."""
        with self._keeping:
            for fitted, key, adapter in self._all():
                if adapter.key in keys and adapter not in self._in_use:
                    fitted.let_go(key)
        self._tell_kept()

    def closed(self, model: OpenModel) -> None:
        """The model is forgotten, and its LoRAs with it."""
        with self._keeping:
            fitted = self._fitted.pop(model, _Fitted())
            for key in [*fitted.adapters]:
                fitted.let_go(key)
        self._tell_kept()

    def _tell_kept(self) -> None:
        with self._telling:  # so that what is told last is what is so
            with self._keeping:
                kept = tuple(
                    KeptLora(
                        adapter.key, fitted.names[key], adapter.model, adapter.size_bytes,
                        adapter in self._in_use,
                    )
                    for fitted, key, adapter in self._all()
                )  # fmt: skip
            if kept != self._told:
                self._told = kept
                self._tell(kept)


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


@contextmanager
def _told_as_unusable(model: OpenModel, wanted: Wanted) -> Iterator[None]:
    """What goes wrong is the LoRA's fault."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except BadCheckpoint as problem:
        raise LoraUnusable(wanted.name, model.source.model, str(problem)) from None
    except Exception as problem:  # each library has classes of its own for what it does not know
        text = f"{type(problem).__name__}: {' '.join(str(problem).split())[:_LONGEST_PROBLEM]}"
        raise LoraUnusable(wanted.name, model.source.model, text) from None


def _sha256(file: Path) -> str:
    """Two files of one name are told apart by it, on any machine."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _made(model: OpenModel, fitted: _Fitted, file: Path) -> _Adapter:
    """Let PEFT make it, around layers that it may have made before."""
    read = read_lora(file, model.pipeline)
    fitted.made += 1
    name = f"lora{fitted.made}"
    for layer in fitted.layers:
        layer.put_on()
    try:
        for component in read.components:
            add_adapter(model.pipeline.components[component], component, name, read)
        found = _found(model, name, _sha256(file), _adapted_layers(model))
        if len(found.tensors) != read.count:
            raise BadCheckpoint(
                f"{file.name} has {read.count} tensors, of which {len(found.tensors)} fit this "
                "model: it is for another one"
            )
        return found
    finally:
        fitted.layers = _adapted_layers(model)
        for layer in fitted.layers:
            layer.take_off()


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


def _found(model: OpenModel, name: str, sha256: str, layers: Sequence[_Layer]) -> _Adapter:
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
    return _Adapter(model.source.model, name, sha256, tuple(own), tensors)


# Forgotten


def _take_out(model: OpenModel, fitted: _Fitted) -> None:
    """PEFT knows nothing any more of what was let go of."""
    with suppress(IndexError):
        while adapter := fitted.gone.pop():
            for layer in adapter.layers:
                layer.adapted.delete_adapter(adapter.name)
            for component in model.components:
                getattr(component.module, "peft_config", {}).pop(adapter.name, None)


def _forget_all(model: OpenModel, fitted: _Fitted) -> None:
    """The model is as if there had never been a LoRA."""
    for layer in fitted.layers:
        layer.take_off()
    fitted.layers.clear()
    fitted.gone.clear()
    fitted.adapters.clear()
    fitted.names.clear()
    fitted.used.clear()
    for component in model.components:
        if hasattr(component.module, "peft_config"):
            del component.module.peft_config
            component.module._hf_peft_config_loaded = False
