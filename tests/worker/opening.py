"""Models opened by the worker's own loader, in this process, on the CPU and without a pool."""

from pathlib import Path
from typing import Any


def loader(
    pool: Any = None, total_bytes: int = 10**9, ahead: Any = None, neighbours: tuple[str, ...] = ()
) -> Any:
    """The worker's loader over a pretended device, with others beside it."""
    from workshop_gpu.worker.devices import CpuDevice
    from workshop_gpu.worker.loading import Loader
    from workshop_gpu.worker.neighbours import Neighbours
    from workshop_gpu.worker.pool import NoPool
    from workshop_gpu.worker.turns import Turns

    device, no_pool = CpuDevice(total_bytes), NoPool("none here")
    return Loader(device, Turns(), pool or no_pool, ahead, Neighbours(neighbours))


def opened(folder: Path, **fields: str) -> Any:
    """A model on the device."""
    return loader().load(source(folder, **fields), lambda done, total, speed: None)


def source(folder: Path, name: str = "small", **fields: str) -> Any:
    from workshop_gpu.worker.protocol import ModelSource

    return ModelSource(name, "diffusers", str(folder), **fields)
