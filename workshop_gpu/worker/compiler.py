"""`python -m workshop_gpu.worker.compiler`: makes twins of a model's blocks, as its own process.

The compiler computes for many seconds and changes torch's global state meanwhile; beside a worker's
lanes neither would do. Here it gets in nobody's way: it runs at the lowest priority, can be halted
at any moment, and takes no weights, only the shape of the model. Its task comes in over stdin, and
each twin is told on stdout as it is finished.
"""

import contextlib
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from workshop_gpu.worker.block_calls import Call, NotDescribable, kind_of
from workshop_gpu.worker.devices import default_dtype
from workshop_gpu.worker.lifeline import die_with_parent
from workshop_gpu.worker.pipelines import plan_model
from workshop_gpu.worker.protocol import ModelSource
from workshop_gpu.worker.skeletons import build_skeleton
from workshop_gpu.worker.stored import stored_tensors
from workshop_gpu.worker.twins import NotCompilable, Twin, keep, make

_LONGEST_PROBLEM = 300


class Wanted(msgspec.Struct, frozen=True):
    """A twin that is wanted: of that block of a component (its path there), called so."""

    component: str
    block: str
    kind: str
    call: Call


class Task(msgspec.Struct, frozen=True):
    """What is to be compiled, for a device of that kind ("cuda" or "cpu"), into which folder."""

    source: ModelSource
    device: str
    backend: str
    folder: str
    wanted: tuple[Wanted, ...]


def main() -> None:
    """One task for the worker with the process id that is the argument. The exit status is 0 unless
    the model itself could not be built."""
    die_with_parent(int(sys.argv[1]))
    warnings.simplefilter("ignore")
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    told, sys.stdout = sys.stdout, sys.stderr  # what the libraries print is no answer
    for twin in carried_out(task):
        told.write(msgspec.json.encode(twin).decode() + "\n")
        told.flush()


def carried_out(task: Task) -> Iterator[Twin]:
    """The twins, one by one; of blocks that cannot be compiled, their problem. Raises BadCheckpoint
    and the libraries' errors where the model cannot be built."""
    components = {wanted.component for wanted in task.wanted}
    blocks = _Blocks(task)
    for name in components:
        blocks.build(name)
    for wanted in task.wanted:
        yield _made(task, wanted, blocks)


class _Blocks:
    """The components' modules, without weights."""

    def __init__(self, task: Task) -> None:
        self._plan = plan_model(task.source, default_dtype(task.device))
        self._modules: dict[str, dict[str, Any]] = {}

    def build(self, component: str) -> None:
        """Nothing where only the library can open the component, with all its weights."""
        for files in self._plan.components:
            if files.name == component:
                stored = stored_tensors(files.files)
                skeleton = build_skeleton(files.cls, files.folder, stored, self._plan.dtype)
                if skeleton is not None:
                    self._modules[component] = dict(skeleton.module.named_modules())

    def find(self, wanted: Wanted) -> Any:
        """The block. Raises NotCompilable."""
        block = self._modules.get(wanted.component, {}).get(wanted.block)
        if block is None:
            raise NotCompilable("its shape is not in files of its own")
        if kind_of(block) != wanted.kind:
            raise NotCompilable("it was changed after it was opened")
        return block


def _made(task: Task, wanted: Wanted, blocks: _Blocks) -> Twin:
    folder = Path(task.folder)
    try:
        block = blocks.find(wanted)
        return make(block, wanted.kind, wanted.call, task.backend, folder, task.device)
    except (NotCompilable, NotDescribable) as problem:
        said = str(problem)
    except Exception as problem:  # the compiler has classes of its own for whatever it cannot do
        said = f"{type(problem).__name__}: {problem}"
        with contextlib.suppress(OSError):  # the log's disk may be full
            traceback.print_exc()
        if _passes(problem):
            return _without(wanted, task, said)
    return keep(folder, _without(wanted, task, said))


def _passes(problem: Exception) -> bool:
    """Whether it is one of the machine's, such as a full disk, and not of the block: then the next
    worker tries again."""
    first = getattr(problem, "inner_exception", problem)  # as the compiler wraps it
    return isinstance(first, OSError | MemoryError)


def _without(wanted: Wanted, task: Task, said: str) -> Twin:
    line = (said.strip().splitlines() or ["it cannot be compiled"])[0][:_LONGEST_PROBLEM]
    return Twin.impossible(wanted.kind, wanted.call, task.backend, line)


if __name__ == "__main__":
    main()
