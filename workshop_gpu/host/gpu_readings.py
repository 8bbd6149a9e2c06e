"""What the NVIDIA driver says, through NVML. Without a driver there are simply no GPUs."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import combinations

import msgspec
import pynvml

_READS = 0
"""NVML_P2P_CAPS_INDEX_READ, which in pynvml is a tuple by mistake."""


class GPU(msgspec.Struct, frozen=True):
    """One card as the driver names it. `uuid` stays the same across restarts."""

    index: int
    uuid: str
    name: str
    total_bytes: int
    used_bytes: int


class GPUProcess(msgspec.Struct, frozen=True):
    """A process that holds memory of a card; 0 bytes where the driver does not tell."""

    gpu_index: int
    pid: int
    used_bytes: int


@contextmanager
def _nvml() -> Iterator[bool]:
    """Opens NVML for a few readings; yields False where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        pynvml.nvmlShutdown()


def driver_version() -> str:
    """The NVIDIA driver's version, "" without a driver."""
    with _nvml() as present:
        return str(pynvml.nvmlSystemGetDriverVersion()) if present else ""


def gpus() -> list[GPU]:
    """All cards that answer, in the driver's order."""
    found: list[GPU] = []
    with _nvml() as present:
        for index in range(pynvml.nvmlDeviceGetCount() if present else 0):
            with suppress(pynvml.NVMLError):  # one that is lost must not hide the others
                found.append(_card(index))
    return found


def _card(index: int) -> GPU:
    """Raises NVMLError."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return GPU(
        index=index,
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        name=str(pynvml.nvmlDeviceGetName(handle)),
        total_bytes=int(memory.total),
        used_bytes=int(memory.used),
    )


def gpu_processes() -> list[GPUProcess]:
    """Who holds memory on which card (in a container only what the driver shows there)."""
    with _nvml() as present:
        indices = range(pynvml.nvmlDeviceGetCount() if present else 0)
        return [process for index in indices for process in _processes(index)]


def gpu_processes_of(index: int) -> list[GPUProcess]:
    """Who holds memory on this card; no other card is asked."""
    with _nvml() as present:
        return _processes(index) if present else []


def _processes(index: int) -> list[GPUProcess]:
    found: list[GPUProcess] = []
    with suppress(pynvml.NVMLError):  # a card that does not tell, or is lost
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            used = process.usedGpuMemory
            found.append(GPUProcess(index, int(process.pid), int(used or 0)))
    return found


def gpus_apart() -> list[tuple[int, int]]:
    """Pairs of cards that cannot read each other's memory: what goes between them goes through the
    host. Where the driver does not tell, none."""
    found: list[tuple[int, int]] = []
    with _nvml() as present:
        count = pynvml.nvmlDeviceGetCount() if present else 0
        for one, other in combinations(range(count), 2):
            with suppress(pynvml.NVMLError):
                handles = map(pynvml.nvmlDeviceGetHandleByIndex, (one, other))
                status = pynvml.nvmlDeviceGetP2PStatus(*handles, _READS)
                if status != pynvml.NVML_P2P_STATUS_OK:
                    found.append((one, other))
    return found
