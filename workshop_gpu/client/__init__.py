"""Workshop GPU in a notebook or a script. It talks to the server's REST API only."""

from typing import TYPE_CHECKING, Any

from workshop_gpu.client.client import Client
from workshop_gpu.client.session import (
    admin,
    again,
    connect,
    generate,
    hold,
    job,
    jobs,
    models,
    reserve,
    reserve_all,
    status,
)

if TYPE_CHECKING:
    from workshop_gpu.client.widgets.studio import Studio

__all__ = [
    "Client",
    "Studio",
    "admin",
    "again",
    "connect",
    "generate",
    "hold",
    "job",
    "jobs",
    "models",
    "reserve",
    "reserve_all",
    "status",
]


def __getattr__(name: str) -> Any:
    """`Studio` brings the widgets along, which scripts need not pay for."""
    if name == "Studio":
        from workshop_gpu.client.widgets.studio import Studio

        return Studio
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
