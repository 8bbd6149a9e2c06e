"""First on a server's PYTHONPATH, this gives its workers fault points, each with its signal.

At SIGUSR2 a worker reads from an address of the card that is nobody's, after which its CUDA context
answers nothing any more. At a signal of `OUT_OF_MEMORY` the next network of that phase that is
called finds no memory.
"""

import signal
import sys

_READS_NOWHERE = "template <typename T> T nowhere(T x) { return *reinterpret_cast<T*>(16) + x; }"
OUT_OF_MEMORY = {
    signal.SIGRTMIN + 1: ("CLIPTextModel", "CLIPTextModelWithProjection", "T5EncoderModel"),
    signal.SIGRTMIN + 2: ("UNet2DConditionModel", "SD3Transformer2DModel"),
    signal.SIGRTMIN + 3: ("Decoder",),
}
"""What encodes, denoises and decodes in the shipped models."""


def _break_the_context(*_: object) -> None:
    import torch

    read = torch.cuda.jiterator._create_jit_fn(_READS_NOWHERE)
    read(torch.zeros(1, device="cuda"))


def _run_out_of_memory(number: int, _: object) -> None:
    import torch

    def refuse(module: object, _: object) -> None:
        if type(module).__name__ in OUT_OF_MEMORY[number]:
            handle.remove()
            raise torch.OutOfMemoryError("a fault point: no memory is left")

    handle = torch.nn.modules.module.register_module_forward_pre_hook(refuse)


if "workshop_gpu.worker" in sys.orig_argv:
    signal.signal(signal.SIGUSR2, _break_the_context)
    for _number in OUT_OF_MEMORY:
        signal.signal(_number, _run_out_of_memory)
