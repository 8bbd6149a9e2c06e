"""First on a server's PYTHONPATH, this gives it and its workers fault points, each with its signal.

At SIGUSR2 a worker reads from an address of the card that is nobody's, after which its CUDA context
answers nothing any more. At a signal of `OUT_OF_MEMORY` the next network of that phase that is
called finds no memory; at `DRIVER_FAILS` the card's driver fails the next denoiser, and answers
again. At a signal of `BREAKS` the server's next call of that method, each in a task in the
background, fails.
"""

import importlib
import signal
import sys

_READS_NOWHERE = "template <typename T> T nowhere(T x) { return *reinterpret_cast<T*>(16) + x; }"
OUT_OF_MEMORY = {
    signal.SIGRTMIN + 1: ("CLIPTextModel", "CLIPTextModelWithProjection", "T5EncoderModel"),
    signal.SIGRTMIN + 2: ("UNet2DConditionModel", "SD3Transformer2DModel"),
    signal.SIGRTMIN + 3: ("Decoder",),
}
"""What encodes, denoises and decodes in the shipped models."""
DRIVER_FAILS = signal.SIGRTMIN + 7
BREAKS = {
    signal.SIGRTMIN + 4: ("keeper", "Keeper", "look_after"),
    signal.SIGRTMIN + 5: ("leases", "Leases", "renew"),
    signal.SIGRTMIN + 6: ("supervisor", "Supervisor", "_hand_on"),
}


def _break_the_context(*_: object) -> None:
    import torch

    read = torch.cuda.jiterator._create_jit_fn(_READS_NOWHERE)
    read(torch.zeros(1, device="cuda"))


def _run_out_of_memory(number: int, _: object) -> None:
    import torch

    _fail_next(OUT_OF_MEMORY[number], torch.OutOfMemoryError("a fault point: no memory is left"))


def _let_the_driver_fail(*_: object) -> None:
    problem = "CUDA error: resource already mapped (a fault point)"
    _fail_next(OUT_OF_MEMORY[signal.SIGRTMIN + 2], RuntimeError(problem))


def _fail_next(networks: tuple[str, ...], error: Exception) -> None:
    import torch

    def refuse(module: object, _: object) -> None:
        if type(module).__name__ in networks:
            handle.remove()
            raise error

    handle = torch.nn.modules.module.register_module_forward_pre_hook(refuse)


def _break_a_task(number: int, _: object) -> None:
    module, name, method = BREAKS[number]
    owner = getattr(importlib.import_module(f"workshop_gpu.host.{module}"), name)
    sound = getattr(owner, method)

    def breaks(*_: object) -> None:
        setattr(owner, method, sound)
        raise RuntimeError(f"a fault point: {name}.{method} breaks")

    setattr(owner, method, breaks)


if "jupyter-server" in " ".join(sys.orig_argv):
    for _number in BREAKS:
        signal.signal(_number, _break_a_task)
if "workshop_gpu.worker" in sys.orig_argv:
    signal.signal(signal.SIGUSR2, _break_the_context)
    signal.signal(DRIVER_FAILS, _let_the_driver_fail)
    for _number in OUT_OF_MEMORY:
        signal.signal(_number, _run_out_of_memory)
