"""Staged components: on the device only while they are used."""

from collections.abc import Callable

import torch

from workshop_gpu.conductor import errors
from workshop_gpu.worker.carrying import Carrier
from workshop_gpu.worker.components import Component
from workshop_gpu.worker.devices import CudaDevice, Device


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
        if component.visit is not None:
            return
        with torch.inference_mode(False):
            shared = component.part.device  # another model has it here: nothing has to come
            if shared is not None:
                self._compute_after_transfers()
                component.visit = shared
            else:
                component.visit = self._copied(component, phase)
                component.visit_bytes = len(component.visit)
            component.bind_to_device()

    def send_away(self, component: Component) -> None:
        """Let the component leave. What still computes with it is not disturbed."""
        if component.visit is None:
            return
        if self._card is not None:
            # The owner of a shared copy may drop it at any time; the memory is then filled anew
            # by the stream that transfers, and only after what was computed up to here.
            self._card.transfers.wait_stream(torch.cuda.current_stream())
        component.leave()

    def _copied(self, component: Component, phase: str) -> torch.Tensor:
        size_bytes, host = component.part.size_bytes, component.part.host
        assert host is not None
        self._check_room(size_bytes, phase)
        memory = torch.empty(size_bytes, dtype=torch.uint8, device=self._device.torch_device)
        if self._card is not None:
            self._card.transfers.wait_stream(torch.cuda.current_stream())
        trip = self._carrier.upload(host, component.part.pinned, memory, lambda _: None)
        trip.finish()  # all of it is on the way
        self._compute_after_transfers()
        return memory

    def _compute_after_transfers(self) -> None:
        if self._card is not None:
            torch.cuda.current_stream().wait_stream(self._card.transfers)

    def _check_room(self, size_bytes: int, phase: str) -> None:
        """A pretended device is as strict as a real one."""
        if self._card is None:
            free_bytes = self._device.free_bytes(self._held_bytes())
            if size_bytes > free_bytes:
                raise errors.OutOfMemory("generating", size_bytes, free_bytes, phase)
