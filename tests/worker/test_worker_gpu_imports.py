"""A worker that stands by starts no CUDA, which reads once which cards it may see."""

import subprocess
import sys

import pytest

from tests.worker.worker_host import ASSETS
from workshop_gpu.host import gpu_readings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_readings.gpus(), reason="this machine has no NVIDIA GPU"),
]

STANDING_BY = """
import builtins, contextlib, os, sys, traceback
from workshop_gpu.worker import __main__ as worker

def threads():
    found = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended
            found.append(open(f"/proc/self/task/{thread}/comm").read().strip())
    # NVML alone starts one that is called cuda, too.
    return [name for name in found if name.startswith("cuda-EvtHandlr")]

def look(what):
    if threads():
        print(what, threads())
        traceback.print_stack(limit=12, file=sys.stdout)
        sys.exit(1)

def watched(name, *rest, **named):
    module = imports(name, *rest, **named)
    look(f"after the import of {name}:")
    return module

worker._prepare_environment(0)
worker._leave_cards_alone()
imports, builtins.__import__ = builtins.__import__, watched
from workshop_gpu.worker import engine, loras, moving, neighbours, pool_link
from workshop_gpu.worker.ahead import Ahead
from workshop_gpu.worker.pipelines import import_usual_classes
from workshop_gpu.worker.protocol import ModelSource
from workshop_gpu.worker.turns import Turns
import_usual_classes()
ahead = Ahead(Turns())
for folder in sys.argv[1:]:
    ahead.build(ModelSource("model", "diffusers", folder), "cuda")
    look(f"after building {folder}:")
import torch
assert torch.cuda.is_available()
look("after the question whether there is a card:")
builtins.__import__ = imports
torch.zeros(1, device="cuda")
assert threads(), "CUDA is not known by its threads"
"""


def test_neither_imports_nor_models_that_are_built_ahead_start_it() -> None:
    folders = [str(ASSETS / model) for model in ("shapes", "shapes-dit")]
    command = [sys.executable, "-c", STANDING_BY, *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
