"""What text encoders made of prompts, kept in host memory for the next picture of the same prompt.

Where encoders have to come for each picture, or compute on the CPU, most of their work is for a
prompt that was read before: people change the seed, and jobs draw several pictures. The tensors
are the very bytes that the encoders gave, so that the picture is the same bit for bit.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

_MOST_BYTES = 128 * 2**20
"""For each model; a prompt of SD3.5 takes about 6 MB with its negative one."""
_CALLS_KEPT = 1000
_TOLD = (type(None), bool, int, float, str, torch.device, torch.dtype)
"""What a key may be made of: it says all of itself."""


class _Unknown(Exception):
    """Something that neither a key nor a copy is made of."""


class _Kept(NamedTuple):
    """A tensor's bytes, and where it was."""

    copy: torch.Tensor
    device: torch.device


class Embeddings:
    """Of one model in one placement, by the arguments of its pipeline's `encode_prompt`. Only the
    thread that draws uses it."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._sufficed: OrderedDict[str, frozenset[str]] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        """What is kept."""
        return sum(size_bytes for _, size_bytes in self._kept.values())

    def suffice(self, call: str) -> bool:
        """Whether a call with this key needed nothing of the encoders but what is still kept."""
        needed = self._sufficed.get(call) if call else None
        return needed is not None and needed <= self._kept.keys()

    def note(self, call: str, prompts: frozenset[str]) -> None:
        """A call with this key asked for these prompts and for nothing else of the encoders."""
        if call and prompts <= self._kept.keys():
            self._sufficed[call] = prompts
            while len(self._sufficed) > _CALLS_KEPT:
                self._sufficed.popitem(last=False)

    def find(self, key: str) -> Any:
        """What `encode_prompt` gave for it, in tensors of its own; None: it is not kept."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return _with_tensors(_restored, self._kept[key][0])

    def keep(self, key: str, copy: Any) -> None:
        """Of what `encode_prompt` gave, a copy by `copied`."""
        self._kept[key] = copy, _size_bytes(copy)
        while self.size_bytes > self._most_bytes:
            self._kept.popitem(last=False)


def key_of(*values: object) -> str:
    """The same for the same arguments; "" where there are some that do not say all of themselves,
    such as pictures."""
    try:
        return _told(values)
    except _Unknown:
        return ""


def _told(value: object) -> str:
    if isinstance(value, _TOLD):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({','.join(map(_told, value))})"
    if isinstance(value, Mapping):
        return f"map({','.join(f'{_told(k)}={_told(v)}' for k, v in value.items())})"
    raise _Unknown


def copied(value: Any) -> Any:
    """What `encode_prompt` gave, in tensors that nobody else writes to, on the same device; None
    where it is of anything else. Tensors that are not contiguous are copied by nobody: in another
    order in memory they may be summed up in another way."""
    try:
        return _copied(value)
    except _Unknown:
        return None


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if not value.is_contiguous():
            raise _Unknown
        return _Kept(value.detach().clone(), value.device)
    if isinstance(value, _TOLD):
        return value
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    raise _Unknown


def _with_tensors(change: Callable[[_Kept], object], value: Any) -> Any:
    if isinstance(value, _Kept):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(_with_tensors(change, each) for each in value)
    return value


def _in_host_memory(tensor: _Kept) -> _Kept:
    return tensor._replace(copy=tensor.copy.to("cpu"))


def _restored(tensor: _Kept) -> torch.Tensor:
    return tensor.copy.to(tensor.device, copy=True)


def _size_bytes(value: Any) -> int:
    if isinstance(value, _Kept):
        return value.copy.nbytes
    return sum(map(_size_bytes, value)) if type(value) in (list, tuple) else 0


class Reading:
    """The encoders' part of one call."""

    def __init__(self, embeddings: Embeddings) -> None:
        self._embeddings = embeddings
        self._call = ""
        self._prompts: set[str] = set()
        self._fresh: dict[str, Any] = {}
        self._encoding = False
        self._else = False
        self.encoded = False
        """Whether the encoders computed anything."""

    def of(self, arguments: Mapping[str, object]) -> None:
        """The call is made with these arguments, as far as they are of the prompt."""
        self._call = key_of(arguments)

    @property
    def is_known(self) -> bool:
        """Whether the encoders need not come, as far as anybody knows."""
        return self._embeddings.suffice(self._call)

    def read(self, encode: Callable[[], Any], *arguments: object) -> Any:
        """What `encode` gives, which is the pipeline's `encode_prompt` with these arguments."""
        key = key_of(*arguments)
        found = self._embeddings.find(key)
        if found is None:
            self._encoding = True
            found = encode()
            self._encoding = False
            self._fresh[key] = copied(found)
        self._prompts.add(key)
        return found

    def encoder_is_called(self) -> None:
        """Whoever calls it, and not all that is computed is for a prompt."""
        self.encoded = True
        self._else = self._else or not self._encoding

    def end(self, *, well: bool) -> None:
        """The call ended. Only now: a copy to the host waits for all that is computed."""
        fresh, self._fresh = self._fresh, {}
        if not well:
            return
        for key, copy in fresh.items():
            if key and copy is not None:
                self._embeddings.keep(key, _with_tensors(_in_host_memory, copy))
        if self._prompts and not self._else:
            self._embeddings.note(self._call, frozenset(self._prompts))
