"""How fast bytes come from host memory to the device, measured once at the worker's start."""

import mmap
import time

import torch

from workshop_gpu.worker.pinning import Pinned

_CARD_BYTES = 64 * 2**20
_CPU_BYTES = 16 * 2**20
_CARD_TRIES = 16
"""A card that rested needs some milliseconds to come up to its speed."""
_CPU_TRIES = 3


def bus_bytes_per_s(device: torch.device) -> float:
    """Of registered memory, the best of a few copies; 0: the driver does not register memory.

    On the CPU it is the speed of a copy in memory.
    """
    on_card = device.type == "cuda"
    size_bytes = _CARD_BYTES if on_card else _CPU_BYTES
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    source = torch.frombuffer(mmap.mmap(-1, size_bytes, private), dtype=torch.uint8)
    source.fill_(1)  # memory that nobody has touched is not there yet
    target = torch.empty(size_bytes, dtype=torch.uint8, device=device)
    if not on_card:
        return size_bytes / min(_copy_s(source, target) for _ in range(_CPU_TRIES))
    pinned = Pinned(source, private=True)
    problems: list[str] = []
    pinned.register_next(problems)
    try:
        if problems:
            return 0.0
        return size_bytes / min(_card_copy_s(source, target) for _ in range(_CARD_TRIES))
    finally:
        pinned.release()


def _copy_s(source: torch.Tensor, target: torch.Tensor) -> float:
    started = time.perf_counter()
    target.copy_(source)
    return max(time.perf_counter() - started, 1e-6)


def _card_copy_s(source: torch.Tensor, target: torch.Tensor) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    target.copy_(source, non_blocking=True)
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000
