"""Compiled twins of blocks: made from a block and a call of it, kept as files, run in its place.

A twin computes what a block does from the block's own tensors, which it takes anew at each call: so
it goes with weights that stay, stream or were exchanged, and one twin serves all blocks that are
alike. It holds for more sizes than those of the call that it was made from; which ones, its guards
say. Making a twin needs no weights and no memory on a card.
"""

import hashlib
import importlib
import os
import runpy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import torch

from workshop_gpu.worker.block_calls import Call, form_of, tensor_forms, value_of
from workshop_gpu.worker.compilers import EAGER

Run = Callable[..., Sequence[torch.Tensor]]


class NotCompilable(Exception):
    """The block cannot be traced as a whole."""


class Twin(msgspec.Struct, frozen=True):
    """What is known of a twin: for blocks of which kind, called in which form, under which guards
    (an expression over the call's tensors, "": none), what it gives, and its file. Where there can
    be none, `problem` says why."""

    name: str
    kind: str
    form: str
    backend: str
    guards: str = ""
    output: Any = None
    file: str = ""
    problem: str = ""

    @staticmethod
    def impossible(kind: str, call: Call, backend: str, problem: str) -> "Twin":
        """What is kept instead of a twin, so that nobody tries again."""
        return Twin(_name(kind, call, backend), kind, call.form, backend, problem=problem)


def _name(kind: str, call: Call, backend: str) -> str:
    return hashlib.sha256(repr((kind, call, backend)).encode()).hexdigest()[:32]


class LoadedTwin:
    """A twin that can be called."""

    def __init__(self, twin: Twin, run: Run) -> None:
        self.twin = twin
        self._run = run

    def holds_for(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether it computes what a block with these tensors, and these arguments, does."""
        guards = self.twin.guards
        return not guards or bool(_shapes().evaluate_guards_expression(guards, tensors))

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        return value_of(self.twin.output, iter(self._run(*tensors)))


def block_tensors(block: Any) -> Callable[[], list[torch.Tensor]]:
    """Gives the block's tensors as they are at each moment, in an order that goes with its kind."""
    places: list[tuple[dict[str, torch.Tensor], str]] = []
    seen: set[int] = set()
    for module in block.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    places.append((tensors, name))
    return lambda: [tensors[name] for tensors, name in places]


_WORDS = "import torch\nfrom torch import device\nfrom math import inf, nan\n"
"""What the code of a graph is written in."""


def _read_code(path: Path) -> Run:
    """A graph as code over torch's operations; it is run as it stands, and nothing is traced."""
    forward = runpy.run_path(str(path))["forward"]

    def run(*tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        given: Sequence[torch.Tensor] = forward(None, *tensors)
        return given

    return run


@cache
def _shapes() -> Any:
    """Where the words are known in which guards are written."""
    return importlib.import_module("torch.fx.experimental.symbolic_shapes").ShapeEnv()


def load(folder: Path, twin: Twin) -> LoadedTwin:
    """Read a twin's file. Raises OSError, and what torch raises for files of another version."""
    path = folder / twin.file
    if twin.backend == EAGER:
        return LoadedTwin(twin, _read_code(path))
    return LoadedTwin(twin, _inductor().CompiledArtifact.load(path=str(path), format="binary"))


def twins_in(folder: Path) -> list[Twin]:
    """The twins in a folder, oldest first; those that cannot be read are left out."""
    found = []
    for path in sorted(folder.glob("*.json"), key=lambda path: (_age(path), path)):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Twin))
        except (OSError, msgspec.MsgspecError):
            continue
    return found


def _age(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


# Making


def make(block: Any, kind: str, call: Call, backend: str, folder: Path, device: str) -> Twin:
    """A twin of the block, as files in the folder. Raises NotCompilable, and whatever torch's
    tracing and compiling raise."""
    program, output = _traced(block, call, device)
    graph = program.graph_module
    inputs = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    given = len(call.sizes)
    if len(inputs) != len(block_tensors(block)()) + given:
        raise NotCompilable("it makes tensors of its own")
    name = _name(kind, call, backend)
    path = folder / f"{name}.{backend}"
    with _replacing(path) as fresh:
        if backend == EAGER:
            fresh.write_text(_WORDS + graph.code)
        else:
            _compiled(graph, inputs).save(path=str(fresh), format="binary")
    guards = _guards(inputs, given)  # the compiler may have added some of its own
    return keep(folder, Twin(name, kind, call.form, backend, guards, output, path.name))


def keep(folder: Path, twin: Twin) -> Twin:
    """Write down what is known of a twin."""
    with _replacing(folder / f"{twin.name}.json") as fresh:
        fresh.write_bytes(msgspec.json.encode(twin))
    return twin


def _traced(block: Any, call: Call, device: str) -> tuple[Any, Any]:
    """The block's computation as a graph over its tensors and the call's, for all sizes for which
    it is the same; and the form of what it gives."""
    fake = importlib.import_module("torch._subclasses.fake_tensor").FakeTensorMode()
    form = msgspec.json.decode(call.form)
    outputs: list[Any] = []
    apart = _Apart(block, form, outputs.append)
    with fake:  # tensors without memory
        own = [
            torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=device)
            for each in block_tensors(block)()
        ]
        given = [
            torch.empty(sizes, dtype=dtype, device=where)
            for sizes, (dtype, where) in zip(call.sizes, tensor_forms(form), strict=True)
        ]
    any_size = [dict.fromkeys(range(each.dim()), torch.export.Dim.AUTO) for each in given]
    shapes: dict[str, Any] = {"own": [None] * len(own), "given": any_size}
    with torch.no_grad():
        program = torch.export.export(apart, (own, given), dynamic_shapes=shapes, strict=False)
    signature = program.graph_signature
    if not signature.user_outputs:
        raise NotCompilable("it gives no tensor")
    return program, outputs[-1]


class _Apart(torch.nn.Module):
    """A block whose tensors are inputs like those of its call, and whose outputs are tensors."""

    def __init__(self, block: Any, form: Any, on_output: Callable[[Any], None]) -> None:
        super().__init__()
        self._block = [block]  # in a list: its parameters are not this module's
        self._form = form
        self._on_output = on_output

    def forward(self, own: list[torch.Tensor], given: list[torch.Tensor]) -> tuple[Any, ...]:
        (block,) = self._block
        named = dict(zip(_names(block), own, strict=True))
        args, kwargs = value_of(self._form, iter(given))
        before = [each._version for each in (*own, *given)]
        found: list[torch.Tensor] = []
        result = torch.func.functional_call(block, named, tuple(args), kwargs)
        if before != [each._version for each in (*own, *given)]:
            raise NotCompilable("it changes what it is given")
        self._on_output(form_of(result, found))
        return tuple(found)


def _names(block: Any) -> list[str]:
    """The names of a block's tensors, in the order of `block_tensors`."""
    found, seen = [], set()
    for prefix, module in block.named_modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    found.append(f"{prefix}.{name}" if prefix else name)
    return found


def _compiled(graph: Any, inputs: Sequence[Any]) -> Any:
    """Nothing is measured on the card to choose among kernels that round otherwise: the same
    picture comes after a restart, too, and whatever else the card does meanwhile."""
    inductor = _inductor()
    settings = {"deterministic": True} if hasattr(inductor.config, "deterministic") else {}
    with inductor.config.patch(settings):
        return inductor.standalone_compile(graph, list(inputs))


def _guards(inputs: Sequence[Any], given: int) -> str:
    """What must hold of the call's tensors. The block's own are those of its kind; where they
    begin in memory is of no account."""
    own = len(inputs) - given
    sources = importlib.import_module("torch._dynamo.source")
    names = [f"own{number}" for number in range(own)] + [f"t{number}" for number in range(given)]
    environment = next((each.fake_mode.shape_env for each in inputs[own:]), None)
    if environment is None:
        return ""
    said = environment.produce_guards(
        inputs, [sources.LocalSource(name) for name in names], ignore_static=False
    )
    kept = [each for each in said if "L['t" in each and "storage_offset" not in each]
    return " and ".join(f"({each})" for each in kept)


def _inductor() -> Any:
    return importlib.import_module("torch._inductor")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A path to write to; what is there then has the other's name at once, and as a whole."""
    fresh = path.with_suffix(f".{os.getpid()}")
    try:
        yield fresh
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
