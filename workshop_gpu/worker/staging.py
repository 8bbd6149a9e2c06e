"""Staged components: on the device only while they are used."""

import logging
from collections.abc import Callable, Sequence

import torch

from workshop_gpu.conductor import errors
from workshop_gpu.worker.carrying import Carrier
from workshop_gpu.worker.components import Component
from workshop_gpu.worker.devices import CudaDevice, Device
from workshop_gpu.worker.placements import Home, Kept

_log = logging.getLogger(__name__)


class Stager:
    """Brings components for a while. Only the thread that draws uses it.

    `held_bytes` is what all models take on the device now.
    """

    def __init__(self, device: Device, carrier: Carrier, held_bytes: Callable[[], int]) -> None:
        self._device = device
        self._card = device if isinstance(device, CudaDevice) else None
        self._carrier = carrier
        self._held_bytes = held_bytes

    def bring(self, component: Component, phase: str) -> None:
        """Let the component come. Raises OutOfMemory or torch's error.

        Its memory belongs to the stream that computes: once it has left, what is computed next
        may have it at once.
        """
        if component.visit is not None or component.kept:
            return
        with torch.inference_mode(False):
            shared = component.part.device  # another model has it here: nothing has to come
            if component.home is Home.PASSING:
                component.kept = self._stretches(component, phase)
            elif shared is not None:
                self._compute_after_transfers()
                component.visit = shared
            else:
                (component.visit,) = self._copied(
                    component, [(0, component.part.size_bytes)], phase
                )
                component.visit_bytes = len(component.visit)
            component.bind_to_device()
        _log.debug("%s comes to the device: %s", component.name, phase)

    def send_away(self, component: Component) -> None:
        """Let the component leave. What still computes with it is not disturbed."""
        if component.visit is None and not component.kept:
            return
        if self._card is not None:
            # The owner of a shared copy may drop it at any time; the memory is then filled anew
            # by the stream that transfers, and only after what was computed up to here.
            self._card.transfers.wait_stream(torch.cuda.current_stream())
        component.leave()
        _log.debug("%s leaves the device", component.name)

    def _stretches(self, component: Component, phase: str) -> tuple[tuple[Kept, torch.Tensor], ...]:
        """What is in none of the component's streamed blocks, copied."""
        places = [(kept.start, kept.size_bytes) for kept in component.beside]
        return tuple(zip(component.beside, self._copied(component, places, phase), strict=True))

    def _copied(
        self, component: Component, places: Sequence[tuple[int, int]], phase: str
    ) -> Sequence[torch.Tensor]:
        """Stretches of the component's part on the device, given as start and bytes."""
        host, sizes = component.part.host, [size_bytes for _, size_bytes in places]
        assert host is not None
        self._check_room(sum(sizes), phase)
        memory = torch.empty(sum(sizes), dtype=torch.uint8, device=self._device.torch_device)
        if self._card is not None:
            self._card.transfers.wait_stream(torch.cuda.current_stream())
        found: Sequence[torch.Tensor] = memory.split(sizes)
        trips = [
            self._carrier.upload(host, component.part.pinned, onto, lambda _: None, start)
            for (start, _), onto in zip(places, found, strict=True)
        ]
        for trip in trips:
            trip.finish()  # all of it is on the way
        self._compute_after_transfers()
        return found

    def _compute_after_transfers(self) -> None:
        if self._card is not None:
            torch.cuda.current_stream().wait_stream(self._card.transfers)

    def _check_room(self, size_bytes: int, phase: str) -> None:
        """A pretended device is as strict as a real one."""
        if self._card is None:
            free_bytes = self._device.free_bytes(self._held_bytes())
            if size_bytes > free_bytes:
                raise errors.OutOfMemory("generating", size_bytes, free_bytes, phase)
