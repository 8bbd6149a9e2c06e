"""The swap device of a model, where a command works with one device of the machine.

A model that names a swap device is refused where that one is not there. A command that draws on
one device takes the other one along for the rungs that need it, and leaves it aside for all others:
with two devices the conductor could put the model on either.
"""

from contextlib import suppress

import msgspec

from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.catalogue.spec import ModelSpec
from workshop_gpu.conductor.errors import InvalidRequest
from workshop_gpu.conductor.ladder import AUTO, rung_named
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.rungs import HOST
from workshop_gpu.host.devices import DeviceConfig, find_devices

_MOST_PRETENDED = 8


class LocalCatalogue(Catalogue):
    """The catalogue of one command; `swap_aside`: all models as if they named no swap device."""

    swap_aside = False

    def memory(self, spec: ModelSpec) -> MemorySettings:
        """The model's memory settings, as they count now."""
        settings = super().memory(spec)
        if not self.swap_aside or settings.swap_device in HOST:
            return settings
        placement = AUTO if swaps(settings.placement) else settings.placement
        return msgspec.structs.replace(settings, placement=placement, swap_device="")


def swaps(rung: str) -> bool:
    """Whether the rung of that name takes another GPU's memory."""
    found = rung_named(rung)
    return found is not None and found.swaps


def device_and_swap(option: str, spec: ModelSpec) -> tuple[DeviceConfig, DeviceConfig | None]:
    """The device to work with, and the model's swap device beside it; None where it names none, or
    one that this machine does not have. Raises InvalidRequest for an option that makes no sense.

    On the CPU the swap device is pretended too, as large as the other.
    """
    found, name = find_devices([option]), spec.memory.swap_device
    device = next((each for each in found if each.id != name), found[0])
    if name in HOST or device.id == name:
        return device, None
    kind, _, number = name.partition(":")
    if kind == "cpu" and device.torch_device == "cpu":
        fits = number.isdecimal() and int(number) < _MOST_PRETENDED
        found = find_devices([option] * (int(number) + 1)) if fits else []
    elif kind == "cuda" and device.torch_device == "cuda":
        with suppress(InvalidRequest):
            found = find_devices([name])
    return device, next((each for each in found if each.id == name), None)
