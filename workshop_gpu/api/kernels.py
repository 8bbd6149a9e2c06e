"""The book of this server's kernels: what each gets at its start, what goes with its end."""

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from workshop_gpu.api.identity import KernelTokens
from workshop_gpu.api.rules import without_participant
from workshop_gpu.host.runtime import Runtime

URL_VARIABLE = "WORKSHOP_GPU_URL"
TOKEN_VARIABLE = "WORKSHOP_GPU_TOKEN"  # noqa: S105 - the variable's name


class Kernels:
    """Called by the provisioner. `server_url` gives the server's base URL once it listens."""

    def __init__(
        self, runtime: Runtime, tokens: KernelTokens, server_url: Callable[[], str]
    ) -> None:
        self._runtime = runtime
        self._tokens = tokens
        self._server_url = server_url

    def starting(self, kernel: str, notebook: str) -> dict[str, str]:
        """The environment for a kernel that is about to start, the first time or again.

        What the process before it held goes now: a notice of the restart comes too late, after
        the new process may have taken holds of its own. What earlier kernels of the notebook had
        asked for belongs to this one: it is how a notebook finds its pictures again.
        """
        self._runtime.kernel_gone(kernel)
        token = self._tokens.mint(kernel, PurePosixPath(notebook).stem, notebook)
        participant, running = self._tokens.participant(kernel), self._tokens.kernels()
        self._runtime.keeper.inherit(participant, set(running))
        url = self._server_url()
        return {URL_VARIABLE: url, TOKEN_VARIABLE: token} if url else {}

    def started(self, kernel: str, pid: int) -> None:
        """The kernel's process runs: GPU memory that it uses goes by its notebook's name."""
        self._runtime.foreign.started(kernel, pid)

    async def ended(self, kernel: str, *, for_good: bool) -> None:
        self._runtime.kernel_gone(kernel)
        self._runtime.foreign.ended(kernel)
        if for_good:
            self._tokens.forget(kernel)
            self._runtime.classroom.left(kernel)
            await self._forget_rules(kernel)
        else:
            self._tokens.revoke(kernel)

    async def _forget_rules(self, kernel: str) -> None:
        """No kernel of this id will ever come back, so that rules for it would only pile up."""
        policy = without_participant(self._runtime.policy, kernel)
        if policy != self._runtime.policy:
            await self._runtime.change_policy(policy)


def is_busy(manager: Any, kernel: str) -> bool:
    """Whether a kernel of Jupyter's kernel manager executes something."""
    return (
        kernel in manager and getattr(manager.get_kernel(kernel), "execution_state", "") == "busy"
    )
