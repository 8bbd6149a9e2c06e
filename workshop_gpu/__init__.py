"""Workshop GPU: one GPU for a whole room of notebooks.

`import workshop_gpu as wg` gives the client (`wg.generate`, `wg.Studio`, `wg.hold`, ...). Its
names are looked up on first use, so that the Jupyter server, which imports this package too,
pays for none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from workshop_gpu.client import (
        Admin,
        Client,
        Status,
        Studio,
        admin,
        again,
        agenerate,
        connect,
        errors,
        explain,
        generate,
        grid,
        hold,
        job,
        jobs,
        models,
        reserve,
        reserve_all,
        room,
        status,
        submit,
    )

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "Client",
    "Status",
    "Studio",
    "__version__",
    "admin",
    "again",
    "agenerate",
    "connect",
    "errors",
    "explain",
    "generate",
    "grid",
    "hold",
    "job",
    "jobs",
    "models",
    "reserve",
    "reserve_all",
    "room",
    "status",
    "submit",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("workshop_gpu.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from workshop_gpu.app import WorkshopGPU

    return [{"module": "workshop_gpu", "app": WorkshopGPU}]


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """`%load_ext workshop_gpu` adds the magics."""
    from workshop_gpu.client.magics import register

    register(shell)
