"""What a block of a network is called with, and which blocks are alike, in words that another
process understands: types and sizes, never the numbers in a tensor.
"""

import functools
import hashlib
import types
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

import msgspec
import torch

Form = Any
"""A nested list of JSON's types: a value with its tensors left out."""

_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module())) | {"forward", "training"}
_SIMPLE = (type(None), bool, int, float, str)


class NotDescribable(Exception):
    """A value or a block that has no form: an object that nobody here knows."""


class Call(msgspec.Struct, frozen=True):
    """How a block was called. `form` is the arguments' as JSON, `sizes` are those of the tensors in
    it, in their order."""

    form: str
    sizes: tuple[tuple[int, ...], ...]


def call_of(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Call, list[torch.Tensor]]:
    """The call, and its tensors in order. Raises NotDescribable."""
    tensors: list[torch.Tensor] = []
    form = form_of([list(args), kwargs], tensors)
    sizes = tuple(tuple(tensor.shape) for tensor in tensors)
    return Call(msgspec.json.encode(form).decode(), sizes), tensors


def form_of(value: Any, tensors: list[torch.Tensor]) -> Form:
    """The form of a value, whose tensors are added to the list. Raises NotDescribable."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return ["tensor", str(value.dtype).removeprefix("torch."), value.dim(), value.device.type]
    if isinstance(value, _SIMPLE):
        return ["is", value]
    if type(value) in (list, tuple):
        return [type(value).__name__, [form_of(each, tensors) for each in value]]
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return ["dict", {key: form_of(each, tensors) for key, each in value.items()}]
    raise NotDescribable(f"a {type(value).__name__}")


def value_of(form: Form, tensors: Iterator[Any]) -> Any:
    """The value of this form, with the next tensors in their places."""
    kind, *rest = form
    match kind:
        case "tensor":
            return next(tensors)
        case "is":
            return rest[0]
        case "dict":
            return {key: value_of(each, tensors) for key, each in rest[0].items()}
    values = [value_of(each, tensors) for each in rest[0]]
    return tuple(values) if kind == "tuple" else values


def tensor_forms(form: Form) -> Iterator[tuple[torch.dtype, str]]:
    """The dtype and the kind of device of each tensor in a form, in order."""
    kind, *rest = form
    if kind == "tensor":
        yield getattr(torch, rest[0]), rest[2]
    elif kind == "dict":
        for each in rest[0].values():
            yield from tensor_forms(each)
    elif kind != "is":
        for each in rest[0]:
            yield from tensor_forms(each)


def kind_of(block: Any) -> str:
    """A name for all that a block computes but for its weights' numbers: blocks with the same name
    compute alike. Raises NotDescribable where something in it is unknown."""
    text = hashlib.sha256()
    for name, module in block.named_modules():
        text.update(repr((name, _qualified(type(module)), _settings(module))).encode())
    for name, tensor in [*block.named_parameters(), *block.named_buffers()]:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):  # such as a quantized one
            raise NotDescribable(f"a {type(tensor).__name__}")
        text.update(repr((name, tuple(tensor.shape), tensor.stride(), str(tensor.dtype))).encode())
    return text.hexdigest()[:32]


def _settings(module: Any) -> list[tuple[str, Any]]:
    own = vars(module).items()
    return sorted((name, _said(value)) for name, value in own if name not in _OF_EVERY_MODULE)


def _said(value: Any) -> Any:
    """A setting of a module, as something whose text is the same in each process."""
    if isinstance(value, (*_SIMPLE, torch.dtype, Enum)):
        return repr(value)
    if isinstance(value, list | tuple | set | frozenset):
        said = [_said(each) for each in value]
        return said if isinstance(value, list | tuple) else sorted(said)
    if isinstance(value, dict):
        return [(str(key), _said(each)) for key, each in value.items()]
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        return _qualified(value)
    if isinstance(value, functools.partial):
        return [_said(value.func), _said(value.args), _said(value.keywords)]
    if type(value).__module__.startswith("diffusers.models.") and not callable_module(value):
        return [_qualified(type(value)), _said(vars(value))]
    raise NotDescribable(f"a {type(value).__name__}")


def callable_module(value: Any) -> bool:
    """Whether it is a network, which is described among the modules."""
    return isinstance(value, torch.nn.Module)


def _qualified(named: Any) -> str:
    name = named.__qualname__
    if "<" in name:  # a lambda, or a function made in another: many have that name
        raise NotDescribable(name)
    return f"{named.__module__}.{name}"
