"""The device of a worker: a CUDA card, or the CPU with a VRAM size that it pretends to have."""

import gc
import importlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch

from workshop_gpu.worker.protocol import Memory

USUAL_CONTEXT_BYTES = 500_000_000
"""A CUDA context's usual size; taken where the driver gives no figures before we have one."""
_LARGEST_CONTEXT_BYTES = 2_000_000_000
"""A first reading above this saw another process's memory change, not our context."""


class DeviceUnusable(Exception):
    """The device does not answer."""


class Device(Protocol):
    """What the engine needs to know of a device. All sizes are bytes."""

    torch_device: torch.device
    name: str
    uuid: str
    """The card's, as the driver writes it; "" where there is none."""
    total_bytes: int
    default_dtype: torch.dtype

    def memory(self, weights_bytes: int) -> Memory:
        """The memory now, where loaded models have `weights_bytes`."""

    def allocated_bytes(self) -> int | None:
        """What live tensors take by the allocator's count; None: this device does not count."""

    def cached_bytes(self) -> int:
        """What the allocator keeps for new tensors, and nobody else can have."""

    def free_bytes(self, weights_bytes: int) -> int:
        """What a new tensor could take."""

    def start_peak(self) -> None:
        """From now on, remember the most that was allocated."""

    def peak_bytes(self) -> int:
        """The most since `start_peak` above what was allocated then; 0: not measured."""

    def settle(self) -> None:
        """Wait until all that this thread has begun is computed. A job that was broken off leaves
        work behind, which must not be computed with weights that are gone.

        Raises RuntimeError if the device no longer answers.
        """

    def give_back(self) -> None:
        """Return everything that nobody refers to any more to the driver.

        Raises RuntimeError if the device no longer answers.
        """


class CpuDevice:
    """The CPU. It pretends to have `total_bytes` of VRAM that hold nothing but weights."""

    def __init__(self, total_bytes: int) -> None:
        self.torch_device = torch.device("cpu")
        self.name = "CPU"
        self.uuid = ""
        self.total_bytes = total_bytes
        self.default_dtype = default_dtype("cpu")

    def memory(self, weights_bytes: int) -> Memory:
        return Memory(used_bytes=weights_bytes, ours_bytes=weights_bytes)

    def allocated_bytes(self) -> int | None:
        return None

    def cached_bytes(self) -> int:
        return 0

    def free_bytes(self, weights_bytes: int) -> int:
        return max(0, self.total_bytes - weights_bytes)

    def start_peak(self) -> None:
        pass

    def peak_bytes(self) -> int:
        return 0

    def settle(self) -> None:
        pass

    def give_back(self) -> None:
        gc.collect()


class CudaDevice:
    """The first visible CUDA card. `context_bytes` is what a CUDA context takes of it (0: it is
    measured, which it cannot be while another process gives memory back)."""

    def __init__(self, context_bytes: int = 0) -> None:
        if not torch.cuda.is_available():
            raise DeviceUnusable("torch sees no CUDA card: is CUDA_VISIBLE_DEVICES right?")
        self._nvml = Nvml()
        used_before = self._nvml.used_bytes_by_uuid()
        self.torch_device = torch.device("cuda", 0)
        try:
            torch.zeros(1, device=self.torch_device)  # creates the context
            torch.cuda.synchronize()
        except RuntimeError as problem:
            raise DeviceUnusable(f"the CUDA card does not answer: {problem}") from None
        self._uuid = card_uuid(self.torch_device)
        self.name = str(torch.cuda.get_device_properties(0).name)
        self.total_bytes = int(torch.cuda.mem_get_info()[1])
        self.default_dtype = default_dtype("cuda")
        self.uuid = f"GPU-{self._uuid}" if self._uuid else ""
        self._context_bytes = context_bytes or self._measure_context(used_before)
        self.transfers = torch.cuda.Stream()
        self.streaming = torch.cuda.Stream(priority=-1)
        self._peak = _Peak()

    def _measure_context(self, used_before: dict[str, int]) -> int:
        used_now = self._nvml.used_bytes_by_uuid()
        if self._uuid not in used_before or self._uuid not in used_now:
            return USUAL_CONTEXT_BYTES
        grown = used_now[self._uuid] - used_before[self._uuid] - torch.cuda.memory_reserved()
        return grown if 0 < grown <= _LARGEST_CONTEXT_BYTES else USUAL_CONTEXT_BYTES

    def memory(self, weights_bytes: int) -> Memory:
        free, total = torch.cuda.mem_get_info()
        used = total - free
        reserved = torch.cuda.memory_reserved()
        ours = self._nvml.bytes_of_this_process(self._uuid, reserved)
        if ours is None:
            ours = reserved + self._context_bytes
        return Memory(used_bytes=used, ours_bytes=min(ours, used))

    def allocated_bytes(self) -> int | None:
        return torch.cuda.memory_allocated()

    def cached_bytes(self) -> int:
        return torch.cuda.memory_reserved() - torch.cuda.memory_allocated()

    def free_bytes(self, weights_bytes: int) -> int:
        return int(torch.cuda.mem_get_info()[0]) + self.cached_bytes()

    def start_peak(self) -> None:
        self._peak.start()

    def peak_bytes(self) -> int:
        return self._peak.bytes()

    def settle(self) -> None:
        # Memory of the stream that transfers goes back to the driver once that one rests; whether
        # another stream still computes with it nobody asks.
        torch.cuda.current_stream().synchronize()

    def room_for_weights(self, size_bytes: int) -> torch.Tensor:
        """Memory for weights, uint8, to be written on the stream `transfers`.

        It belongs to that stream: memory that kernels of a running job still use is never in it.
        """
        with self._peak.weights_come_or_go(), torch.cuda.stream(self.transfers):
            return torch.empty(size_bytes, dtype=torch.uint8, device=self.torch_device)

    def return_cache(self) -> None:
        """Return what the allocator keeps to the driver, at once and without waiting for jobs."""
        torch.cuda.empty_cache()

    def weights_go(self) -> AbstractContextManager[None]:
        """While weights are let go: no job's peak counts them."""
        return self._peak.weights_come_or_go()

    def give_back(self) -> None:
        gc.collect()
        torch.cuda.synchronize()  # an error of the card that was not seen yet is seen here
        torch.cuda.empty_cache()


class _Peak:
    """The most that a job allocates above what was there, without weights that come meanwhile.

    Each time that weights come or go the stretch since the last time is closed: its own highest
    mark above its own floor counts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._floor_bytes = 0
        self._highest_bytes = 0

    def start(self) -> None:
        with self._lock:
            self._highest_bytes = 0
            torch.cuda.reset_peak_memory_stats()
            self._floor_bytes = torch.cuda.memory_allocated()

    def bytes(self) -> int:
        with self._lock:
            return self._highest_now()

    @contextmanager
    def weights_come_or_go(self) -> Iterator[None]:
        with self._lock:
            self._highest_bytes = self._highest_now()
            before_bytes = torch.cuda.memory_allocated()
            try:
                yield
            finally:
                # What a job allocates in this moment is taken for weights: microseconds.
                self._floor_bytes += torch.cuda.memory_allocated() - before_bytes
                torch.cuda.reset_peak_memory_stats()

    def _highest_now(self) -> int:
        return max(self._highest_bytes, torch.cuda.max_memory_allocated() - self._floor_bytes)


class Nvml:
    """The driver's own figures, where it gives them; without NVML everything is unknown."""

    def __init__(self) -> None:
        self._nvml: Any = None
        try:
            pynvml = importlib.import_module("pynvml")
            pynvml.nvmlInit()
            self._nvml = pynvml
        except Exception:  # no library, no driver, no permission: each raises a class of its own
            self._nvml = None

    def used_bytes_by_uuid(self) -> dict[str, int]:
        if self._nvml is None:
            return {}
        used: dict[str, int] = {}
        try:
            for index in range(self._nvml.nvmlDeviceGetCount()):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = _text(self._nvml.nvmlDeviceGetUUID(handle)).removeprefix("GPU-")
                used[uuid] = int(self._nvml.nvmlDeviceGetMemoryInfo(handle).used)
        except self._nvml.NVMLError:
            return {}
        return used

    def bytes_of_this_process(self, uuid: str, least_bytes: int) -> int | None:
        """What the driver counts for this process on that card, where it surely holds
        `least_bytes`; None where it does not say.

        In a container the driver often lists processes by numbers from outside it, or no sizes.
        """
        if self._nvml is None or not uuid:
            return None
        try:
            handle = self._nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                figure = int(process.usedGpuMemory or 0)
                if process.pid == os.getpid() and figure >= max(1, least_bytes):
                    return figure
        except self._nvml.NVMLError:
            return None
        return None


def card_uuid(device: torch.device) -> str:
    """The card's, without "GPU-" before it; "" where torch does not tell. It touches no card."""
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", "")
    return str(uuid).removeprefix("GPU-")


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def default_dtype(kind: str) -> torch.dtype:
    """What models are opened as on a device of that kind, where nothing else is said."""
    return torch.bfloat16 if kind == "cuda" else torch.float32


def open_device(kind: str, total_bytes: int, context_bytes: int = 0) -> Device:
    """The device of that kind ("cpu" or "cuda"). Raises DeviceUnusable."""
    return CudaDevice(context_bytes) if kind == "cuda" else CpuDevice(total_bytes)


def open_early(open_it: Callable[[], Device], is_alone: threading.Event) -> Device:
    """The device, opened while its last worker may still be going: what that holds can leave no
    room, or it may have the card to itself. Then it is opened once it `is_alone`. Raises
    DeviceUnusable."""
    try:
        return open_it()
    except DeviceUnusable:
        is_alone.wait()
        return open_it()
