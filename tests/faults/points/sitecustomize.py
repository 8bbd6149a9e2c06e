"""First on a server's PYTHONPATH, this gives its workers a fault point: at SIGUSR2 a worker reads
from an address of the card that is nobody's, after which its CUDA context answers nothing any more.
"""

import signal
import sys

_READS_NOWHERE = "template <typename T> T nowhere(T x) { return *reinterpret_cast<T*>(16) + x; }"


def _break_the_context(*_: object) -> None:
    import torch

    read = torch.cuda.jiterator._create_jit_fn(_READS_NOWHERE)
    read(torch.zeros(1, device="cuda"))


if "workshop_gpu.worker" in sys.orig_argv:
    signal.signal(signal.SIGUSR2, _break_the_context)
