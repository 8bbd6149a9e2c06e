"""Modules without their weights, built by the libraries' own rules; what is missing is listed.

diffusers' modules are built on the meta device; transformers' loader gets tensors that stand for
those in the files, over memory that is never touched. What it takes as it is maps one to one. In
every case of doubt (another shape, a conversion, two tensors for one place) the library opens the
component with its real weights, and its result is taken as it comes.

All of this sets the libraries' global state: only who has the turn may call it.
"""

import importlib
import mmap
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workshop_gpu.worker.checkpoints import BadCheckpoint
from workshop_gpu.worker.stored import StoredTensor, same_bytes

# Through importlib, since the libraries' own annotations do not pass a strict type check.
diffusers: Any = importlib.import_module("diffusers")

_ALIGN_BYTES = 64
_TORCHS_OWN = ("_parameters", "_buffers", "_modules")
_MAP_NORESERVE = 0x4000  # in Python's mmap since 3.12 only


@dataclass(frozen=True)
class Slot:
    """A place in a module where a tensor belongs."""

    owner: Any
    name: str
    is_parameter: bool

    @property
    def tensor(self) -> torch.Tensor:
        tensors = self.owner._parameters if self.is_parameter else self.owner._buffers
        found: torch.Tensor = tensors[self.name]
        return found

    def put(self, tensor: torch.Tensor) -> None:
        """Let the slot hold these bytes. A parameter stays the same object: ties hold."""
        if not self.is_parameter:
            self.owner._buffers[self.name] = tensor
        elif (there := self.owner._parameters[self.name]).is_meta:
            fresh = torch.nn.Parameter(tensor, requires_grad=there.requires_grad)
            self.owner._parameters[self.name] = fresh
        else:
            there.data = tensor


@dataclass(frozen=True)
class Origin:
    """One tensor of the module: its slots (several where it is tied) and where it comes from.

    `source` is a tensor in a file, to be had as `dtype`, or a tensor that the library computed.
    """

    slots: tuple[Slot, ...]
    source: StoredTensor | torch.Tensor
    dtype: torch.dtype


@dataclass(frozen=True)
class Skeleton:
    """A module and all its tensors."""

    module: Any
    origins: tuple[Origin, ...]


def build_skeleton(
    cls: Any, folder: Path, stored: dict[str, StoredTensor], dtype: torch.dtype
) -> Skeleton | None:
    """A module without weights; None where its tensors are not simply those of the files."""
    if issubclass(cls, diffusers.ModelMixin):
        return _diffusers_skeleton(cls, folder, stored, dtype)
    if issubclass(cls, importlib.import_module("transformers").PreTrainedModel):
        return _transformers_skeleton(cls, folder, stored, dtype)
    return None


def open_by_library(cls: Any, folder: Path, dtype: torch.dtype, variant: str) -> Skeleton:
    """The component with its weights, by its library's own loader."""
    module, info = cls.from_pretrained(str(folder), **_options(cls, dtype, variant))
    if missing := sorted(map(str, info.get("missing_keys") or ())):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise BadCheckpoint(f"the weights in {folder} lack {missing[0]}{more}")
    return captured(module.eval())


def captured(module: Any) -> Skeleton:
    """A module that holds its weights, as it is; tied tensors are one."""
    origins: dict[tuple[object, ...], list[Slot]] = {}
    for slot in slots_of(module):
        tensor = slot.tensor
        if tensor.is_meta:
            raise BadCheckpoint(f"{type(module).__name__} has no weights for {slot.name}")
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        key = place if tensor.nbytes else (id(tensor),)
        origins.setdefault(key, []).append(slot)
    return Skeleton(
        module,
        tuple(
            Origin(tuple(slots), _plain(slots[0].tensor), slots[0].tensor.dtype)
            for slots in origins.values()
        ),
    )


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a parameter of a library's own class (quantized ones) are a tensor like any;
    what they mean stays with the parameter, which is never replaced."""
    return tensor.detach().as_subclass(torch.Tensor)


def slots_of(module: Any) -> Iterator[Slot]:
    """Every place in the module that holds a tensor; shared submodules once."""
    for owner in module.modules():
        for name, parameter in owner._parameters.items():
            if parameter is not None:
                yield Slot(owner, name, is_parameter=True)
        for name, buffer in owner._buffers.items():
            if buffer is not None:
                yield Slot(owner, name, is_parameter=False)


def _options(cls: Any, dtype: torch.dtype, variant: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "local_files_only": True,
        "use_safetensors": True,
        "output_loading_info": True,
    }
    if variant:
        options["variant"] = variant
    # transformers calls it dtype since 4.56, diffusers (all supported ones) torch_dtype.
    is_diffusers = issubclass(cls, diffusers.ModelMixin)
    options["torch_dtype" if is_diffusers else _transformers_dtype_name()] = dtype
    return options


def _transformers_dtype_name() -> str:
    version: str = importlib.import_module("transformers").__version__
    major, minor = (int(number) for number in version.split(".")[:2])
    return "dtype" if (major, minor) >= (4, 56) else "torch_dtype"


# diffusers


def _diffusers_skeleton(
    cls: Any, folder: Path, stored: dict[str, StoredTensor], dtype: torch.dtype
) -> Skeleton | None:
    """As diffusers' from_pretrained builds it: parameters on meta, real buffers, names mended."""
    config = cls.load_config(str(folder), local_files_only=True)
    if config.get("quantization_config") is not None:
        return None
    with _default_dtype(dtype):
        module = _on_meta(cls, config, stored) or _with_real_buffers(cls, config)
    module.register_to_config(_name_or_path=str(folder))
    module.eval()
    named: dict[str, StoredTensor] = dict(stored)
    if len({tensor.file for tensor in stored.values()}) == 1:
        module._fix_state_dict_keys_on_load(named)
    keep = set(_names(cls._keep_in_fp32_modules))
    state = module.state_dict()
    origins = []
    for name, slot in _named_slots(module):
        source = named.get(name) if name in state else None
        if source is None:
            if slot.tensor.is_meta:
                return None
            origins.append(Origin((slot,), slot.tensor.detach(), slot.tensor.dtype))
            continue
        if source.shape != tuple(slot.tensor.shape):
            return None
        wanted = source.dtype
        if wanted.is_floating_point:
            wanted = torch.float32 if keep & set(name.split(".")) else dtype
        origins.append(Origin((slot,), source, wanted))
    return Skeleton(module, tuple(origins))


def _with_real_buffers(cls: Any, config: Any) -> Any:
    accelerate: Any = importlib.import_module("accelerate")
    with _no_init_weights(), accelerate.init_empty_weights():
        return cls.from_config(config)


def _no_init_weights() -> AbstractContextManager[None]:
    """While modules are built, nothing draws first weights that would only be replaced."""
    modeling: Any = importlib.import_module("diffusers.models.modeling_utils")
    context: AbstractContextManager[None] = modeling.no_init_weights()
    return context


def _on_meta(cls: Any, config: Any, stored: dict[str, StoredTensor]) -> Any:
    """A module whose tensors all come from the files: then computing them would be a waste.

    It can be seconds, for the position tables of some transformers. None where the module needs
    a number that is in no file.
    """
    try:
        with torch.device("meta"), _no_init_weights():
            module = cls.from_config(config)
    except Exception:  # some look at what they compute while they are built
        return None
    for name, buffer in module.named_buffers():
        if buffer.is_meta and name not in stored:
            return None
    for part in module.modules():
        own = {name: value for name, value in vars(part).items() if name not in _TORCHS_OWN}
        if _holds_meta(own):
            return None
    return module


def _holds_meta(value: object) -> bool:
    """Whether there is a tensor without numbers in plain attributes, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return value.is_meta
    if isinstance(value, dict):
        return any(map(_holds_meta, value.values()))
    return isinstance(value, list | tuple | set) and any(map(_holds_meta, value))


def _names(names: Iterable[str] | str | None) -> Iterable[str]:
    return (names,) if isinstance(names, str) else names or ()


def _named_slots(module: Any) -> Iterator[tuple[str, Slot]]:
    for path, owner in module.named_modules():
        prefix = f"{path}." if path else ""
        for is_parameter, tensors in ((True, owner._parameters), (False, owner._buffers)):
            for name, tensor in tensors.items():
                if tensor is not None:
                    yield prefix + name, Slot(owner, name, is_parameter)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """The libraries build a module under its dtype; what they compute in it depends on that."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


# transformers


def _transformers_skeleton(
    cls: Any, folder: Path, stored: dict[str, StoredTensor], dtype: torch.dtype
) -> Skeleton | None:
    """By transformers' own loader, from tensors that only stand for those of the files."""
    stand_ins = _stand_ins(stored, dtype)
    config = cls.config_class.from_pretrained(str(folder), local_files_only=True)
    if getattr(config, "quantization_config", None) is not None:
        return None
    # The loader takes tensors out of the dict that it is given.
    module, info = cls.from_pretrained(
        None, config=config, state_dict=dict(stand_ins), **_options(cls, dtype, "")
    )
    module.config.name_or_path = str(folder)
    if info.get("missing_keys") or info.get("mismatched_keys"):
        return None
    by_address = {tensor.data_ptr(): name for name, tensor in stand_ins.items() if tensor.nbytes}
    state = module.state_dict(keep_vars=True)
    names = {id(tensor): name for name, tensor in state.items()}
    origins: dict[int, Origin] = {}
    taken = set()
    for slot in slots_of(module):
        tensor = slot.tensor
        if there := origins.get(id(tensor)):
            origins[id(tensor)] = Origin((*there.slots, slot), there.source, there.dtype)
            continue
        name = by_address.get(tensor.data_ptr()) or _cast_from(names.get(id(tensor)), stored)
        source: StoredTensor | torch.Tensor = tensor.detach()
        if name is not None:
            source = stored[name]
            taken.add(name)
            if source.shape != tuple(tensor.shape) or not tensor.is_contiguous():
                return None
        elif slot.is_parameter and tensor.nbytes:
            return None  # computed from several tensors, or none of the files'
        origins[id(tensor)] = Origin((slot,), source, tensor.dtype)
    for name in stored.keys() - taken:
        # Two tensors for one place, as some files have them of tied weights: where they differ,
        # the library decides.
        origin = origins.get(id(state.get(name)))
        if origin is not None and not _is_copy(stored[name], origin.source):
            return None
    return Skeleton(module.eval(), tuple(origins.values()))


def _is_copy(stored: StoredTensor, source: StoredTensor | torch.Tensor) -> bool:
    return isinstance(source, StoredTensor) and same_bytes(stored, source)


def _cast_from(name: str | None, stored: dict[str, StoredTensor]) -> str | None:
    """A parameter that is kept in float32 has left the memory of its stand-in."""
    return name if name in stored else None


def _stand_ins(stored: dict[str, StoredTensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """A tensor for each in the files, with an address of its own, in memory that nobody touches."""
    sizes = {}
    for name, tensor in stored.items():
        wanted = dtype if tensor.dtype.is_floating_point else tensor.dtype
        sizes[name] = (wanted, tensor.size_bytes // tensor.dtype.itemsize * wanted.itemsize)
    room_bytes = sum(-(-size // _ALIGN_BYTES) * _ALIGN_BYTES for _, size in sizes.values())
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    memory = mmap.mmap(-1, max(room_bytes, mmap.PAGESIZE), flags=private)
    block = torch.frombuffer(memory, dtype=torch.uint8)
    stand_ins, offset = {}, 0
    for name, (wanted, size_bytes) in sizes.items():
        flat = block[offset : offset + size_bytes]
        stand_ins[name] = flat.view(wanted).view(stored[name].shape)
        offset += -(-size_bytes // _ALIGN_BYTES) * _ALIGN_BYTES
    return stand_ins
