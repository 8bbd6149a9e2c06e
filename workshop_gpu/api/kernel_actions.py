"""kernels: those that run here, what each holds of a GPU, and a restart of one from outside.

The restart is the Jupyter server's own: it is as if the person had pressed the button.
"""

from typing import Any

from jupyter_server.utils import ensure_async
from tornado.web import authenticated

from workshop_gpu.api.errors import KernelUnknown, RestartFailed
from workshop_gpu.api.handler import WorkshopHandler, administered
from workshop_gpu.api.people import granted_bytes, own_bytes_of_kernels
from workshop_gpu.api.schemas_instructor import Kernel, KernelList
from workshop_gpu.conductor.effects import Snapshot
from workshop_gpu.conductor.errors import gigabytes
from workshop_gpu.conductor.states import JobState, ReservationState


class _KernelHandler(WorkshopHandler):
    """The base of both."""

    def kernel(self, kernel: str, snapshot: Snapshot) -> Kernel:
        """What a running kernel has."""
        participant = self.tokens.participant(kernel)
        holds = [hold.model for hold in snapshot.holds if hold.kernel == kernel]
        granted = [
            view
            for view in snapshot.reservations
            if view.kernel == kernel and view.state is ReservationState.GRANTED
        ]
        sizes = [view.size_bytes for view in granted]
        waiting = sum(
            job.kernel == kernel and job.state is JobState.QUEUED for job in snapshot.jobs
        )
        manager: Any = self.settings["kernel_manager"]
        own_bytes = own_bytes_of_kernels(self.runtime)[kernel]
        return Kernel(
            id=kernel,
            name=participant.name,
            notebook=participant.notebook_name,
            state=getattr(manager.get_kernel(kernel), "execution_state", "") or "unknown",
            own_bytes=own_bytes,
            reserved_bytes=sum(granted_bytes(view, snapshot) for view in granted),
            holds=holds,
            reservations=len(granted),
            waiting=waiting,
            restart_loses=_losses(own_bytes, len(holds), sizes, waiting),
        )

    def running(self) -> list[str]:
        """Kernels that got a token of ours, and still run."""
        manager: Any = self.settings["kernel_manager"]
        return [kernel for kernel in self.tokens.kernels() if kernel in manager]


class KernelsHandler(_KernelHandler):
    """All kernels."""

    @authenticated
    @administered
    async def get(self) -> None:
        snapshot = self.runtime.snapshot()
        self.answer(KernelList([self.kernel(kernel, snapshot) for kernel in self.running()]))


class RestartHandler(_KernelHandler):
    """Restarts one: its memory on the GPU comes back, and all of its variables are lost."""

    @authenticated
    @administered
    async def post(self, kernel: str) -> None:
        if kernel not in self.running():
            raise KernelUnknown(kernel)
        before = self.kernel(kernel, self.runtime.snapshot())
        manager: Any = self.settings["kernel_manager"]
        try:
            await ensure_async(manager.restart_kernel(kernel))
        except Exception as fault:
            self.log.exception("The restart of kernel %s failed", kernel)
            raise RestartFailed(before.name, str(fault)) from None
        details = {"notebook": before.notebook, "lost": ", ".join(before.restart_loses)}
        await self.note("restarted a kernel", kernel, {"name": before.name, **details})
        self.answer(self.kernel(kernel, self.runtime.snapshot()))


def _losses(own_bytes: int, holds: int, granted: list[int | None], waiting: int) -> list[str]:
    """What a restart takes away, in words. Finished pictures stay, and running jobs finish."""
    losses = ["all variables of the notebook"]
    if own_bytes:
        losses.append(f"{gigabytes(own_bytes)} that its code has on a GPU")
    if holds:
        losses.append(f"{holds} hold{'s' * (holds > 1)} on models")
    if granted:
        whole = any(size is None for size in granted)
        what = "a whole GPU" if whole else gigabytes(sum(size or 0 for size in granted))
        losses.append(f"its reservation of {what}")
    if waiting:
        losses.append(f"{waiting} waiting job{'s' * (waiting > 1)}")
    return losses
