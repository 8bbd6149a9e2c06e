"""Whose are the processes that hold GPU memory and are not our workers?

A process belongs to a kernel if the kernel's process is it, or an ancestor of it, or leads its
session (a kernel is started in a session of its own, so that orphans of its children are found).
"""

import os
from collections.abc import Callable

import msgspec
import psutil

from workshop_gpu.conductor.events import ForeignProcess
from workshop_gpu.host.gpu_readings import GPUProcess, gpu_processes_of


class ProcessInfo(msgspec.Struct, frozen=True):
    """A process of this machine: its program's name, and the processes that it comes from."""

    name: str
    origins: frozenset[int]


def process_info(pid: int) -> ProcessInfo | None:
    """None for a process that has ended meanwhile, or that this account may not look at."""
    try:
        process = psutil.Process(pid)
        origins = {pid, os.getsid(pid), *(parent.pid for parent in process.parents())}
        return ProcessInfo(process.name(), frozenset(origins))
    except (psutil.Error, OSError):
        return None


class ForeignProcesses:
    """Knows the kernels' processes, and names those that hold memory of a GPU.

    `kernel_name` gives the name that a kernel goes by: its notebook's. `started` and `ended` are
    called on the event loop's thread, `read` (it blocks for milliseconds) from any.
    """

    def __init__(
        self,
        kernel_name: Callable[[str], str | None] = lambda kernel: None,
        *,
        processes: Callable[[int], list[GPUProcess]] = gpu_processes_of,
        info: Callable[[int], ProcessInfo | None] = process_info,
        server_pid: int | None = None,
    ) -> None:
        self._kernel_name = kernel_name
        self._processes = processes
        self._info = info
        self._server_pid = os.getpid() if server_pid is None else server_pid
        self._spare_pid: int | None = None
        self._kernels: dict[int, str] = {}

    def started(self, kernel: str, pid: int) -> None:
        self.ended(kernel)
        self._kernels[pid] = kernel

    def ended(self, kernel: str) -> None:
        self._kernels = {pid: name for pid, name in self._kernels.items() if name != kernel}

    def spare_holds(self, pid: int | None) -> None:
        """The worker that stands by has a card open (None: it no longer stands by)."""
        self._spare_pid = pid

    def read(self, device: str) -> tuple[ForeignProcess, ...] | None:
        """The processes of a device ("cuda:0"), the largest first. Our workers are not among them,
        but for the spare, whose memory is not the device's worker's.

        Where the driver lists none of our workers on a card, it counts processes in another way
        than we do (as in a container), and a number of its may be anybody's here: then nothing is
        said of the card, None.
        """
        kernels = self._kernels  # replaced as a whole, never changed while we read it
        found: list[ForeignProcess] = []
        worked = False
        for process in self._processes(int(device.rpartition(":")[2])):
            info = self._info(process.pid)
            origins = info.origins if info else frozenset((process.pid,))
            kernel = next((kernels[pid] for pid in kernels if pid in origins), None)
            ours = kernel is None and self._server_pid in origins
            worked = worked or ours
            if not ours or process.pid == self._spare_pid:
                named = ForeignProcess(
                    name=self._name(process.pid, info, kernel),
                    pid=process.pid,
                    kernel=kernel,
                    bytes=max(0, process.used_bytes),
                    is_spare=process.pid == self._spare_pid,
                )
                found.append(named)
        return tuple(sorted(found, key=lambda process: -process.bytes)) if worked else None

    def _name(self, pid: int, info: ProcessInfo | None, kernel: str | None) -> str:
        if kernel is not None:
            return self._kernel_name(kernel) or f"kernel {kernel[:8]}"
        if pid == self._spare_pid:
            return "the spare worker"
        return f"{info.name if info else 'process'} (process {pid})"
