"""Which other devices a worker may see: those that models name as their swap device.

Without one a worker sees its own card alone, so that nothing of it can come to anybody else's.
"""

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.host.devices import DeviceConfig

Worker = TypeVar("Worker")


def neighbours_of(
    device: DeviceConfig, devices: Iterable[DeviceConfig], catalogue: Catalogue
) -> dict[str, str]:
    """The cards of those devices by their ids ("" for a pretended one)."""
    named = {spec.memory.swap_device for spec in catalogue.specs}
    return {
        each.id: each.gpu_uuid
        for each in devices
        if each.id in named and each.id != device.id and each.torch_device == device.torch_device
    }


def beside(
    devices: Iterable[DeviceConfig],
    catalogue: Catalogue,
    start: Callable[[DeviceConfig, Path, int], Awaitable[Worker]],
) -> Callable[[DeviceConfig, Path, int], Awaitable[Worker]]:
    """The same way to get a worker, which then sees what is named at that moment."""

    async def started(device: DeviceConfig, log_folder: Path, number: int) -> Worker:
        neighbours = neighbours_of(device, devices, catalogue)
        return await start(
            msgspec.structs.replace(device, neighbours=neighbours), log_folder, number
        )

    return started
