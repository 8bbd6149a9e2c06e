"""Starts kernels with a token of their own, and tells when they end.

Registered as a kernel provisioner, so that it sees every start, restart and end at the moment
it happens, before the new kernel runs.
"""

from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from workshop_gpu.api.kernels import Kernels

NAME = "workshop-gpu-provisioner"
SESSION_NAME = "JPY_SESSION_NAME"


class WorkshopProvisioner(LocalProvisioner):
    """A local provisioner whose kernels know their server and who they are."""

    @property
    def _kernels(self) -> Kernels | None:
        """The server's book of kernels; None where a kernel is started without a server."""
        manager = self.parent
        server = getattr(getattr(manager, "parent", None), "parent", None)
        web_app = getattr(server, "web_app", None)
        found: Kernels | None = web_app.settings.get("workshop_gpu_kernels") if web_app else None
        return found

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        kwargs = await super().pre_launch(**kwargs)
        if self._kernels is not None and self.kernel_id:
            environment = kwargs.setdefault("env", {})
            path = str(environment.get(SESSION_NAME, ""))
            environment.update(await self._kernels.starting(self.kernel_id, path))
        return kwargs

    async def post_launch(self, **kwargs: Any) -> None:
        await super().post_launch(**kwargs)
        if self._kernels is not None and self.kernel_id and self.pid is not None:
            self._kernels.started(self.kernel_id, self.pid)

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart=restart)
        if self._kernels is not None and self.kernel_id:
            await self._kernels.ended(self.kernel_id, for_good=not restart)
