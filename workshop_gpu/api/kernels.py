"""The book of this server's kernels: what each gets at its start, what goes with its end."""

import logging
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import anyio

from workshop_gpu.api.identity import KernelTokens
from workshop_gpu.conductor.errors import WorkshopError
from workshop_gpu.host.runtime import Runtime

URL_VARIABLE = "WORKSHOP_GPU_URL"
TOKEN_VARIABLE = "WORKSHOP_GPU_TOKEN"  # noqa: S105 - the variable's name
_RESTORED_S = 5.0
"""So long a kernel's start waits for what the server's last life left; no kernel fails for it."""


class Kernels:
    """Called by the provisioner. `server_url` gives the server's base URL once it listens."""

    def __init__(
        self,
        runtime: Runtime,
        tokens: KernelTokens,
        server_url: Callable[[], str],
        log: logging.Logger | None = None,
    ) -> None:
        self._runtime = runtime
        self._tokens = tokens
        self._server_url = server_url
        self._log = log or logging.getLogger("workshop_gpu")

    async def starting(self, kernel: str, notebook: str) -> dict[str, str]:
        """The environment for a kernel that is about to start, the first time or again.

        What the process before it held goes now: a notice of the restart comes too late, after
        the new process may have taken holds of its own.
        """
        self._runtime.heirs.kernel_gone(kernel)
        token = self._tokens.mint(kernel, PurePosixPath(notebook).stem, notebook)
        with anyio.move_on_after(_RESTORED_S):
            await self._runtime.catalogue_read()
        await self._inherit(kernel)
        url = self._server_url()
        return {URL_VARIABLE: url, TOKEN_VARIABLE: token} if url else {}

    def started(self, kernel: str, pid: int) -> None:
        """The kernel's process runs: GPU memory that it uses goes by its notebook's name."""
        self._runtime.foreign.started(kernel, pid)

    async def ended(self, kernel: str, *, for_good: bool) -> None:
        self._runtime.heirs.kernel_gone(kernel)
        self._runtime.foreign.ended(kernel)
        if for_good:
            notebook = self._tokens.participant(kernel).notebook
            self._tokens.forget(kernel)
            self._runtime.classroom.left(kernel)
            # Jupyter changes a notebook's kernel by starting the new one before the old one ends.
            heir = self._tokens.latest_of(notebook)
            if heir is not None:
                await self._inherit(heir)
            elif not notebook:
                await self._forget_rules(kernel)
        else:
            self._tokens.revoke(kernel)

    async def _inherit(self, kernel: str) -> None:
        """What earlier kernels of the notebook had asked for belongs to this one: it is how a
        notebook finds its pictures again. The instructor's rules for them hold for it too."""
        heir, running = self._tokens.participant(kernel), set(self._tokens.kernels())
        if self._runtime.heirs.inherit(heir, running):
            self._log.info("Kernel %s has the rules for %s.", kernel, heir.notebook)
            await self._runtime.keep_policy()

    async def _forget_rules(self, kernel: str) -> None:
        """Nothing can be opened again: they would only pile up. A kernel ends in any case."""
        policy = self._runtime.policy.without([kernel])
        if policy == self._runtime.policy:
            return
        try:
            await self._runtime.change_policy(policy)
        except WorkshopError as refusal:
            self._log.warning("The rules for kernel %s stay: %s", kernel, refusal)


def is_busy(manager: Any, kernel: str) -> bool:
    """Whether a kernel of Jupyter's kernel manager executes something."""
    return (
        kernel in manager and getattr(manager.get_kernel(kernel), "execution_state", "") == "busy"
    )
