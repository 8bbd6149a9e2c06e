"""Workshop GPU in a notebook or a script. It talks to the server's REST API only."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from workshop_gpu.client import errors
from workshop_gpu.client.client import Client
from workshop_gpu.client.session import (
    admin,
    again,
    agenerate,
    connect,
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

if TYPE_CHECKING:
    from workshop_gpu.client.widgets.admin import Admin
    from workshop_gpu.client.widgets.status import Status
    from workshop_gpu.client.widgets.studio import Studio

__all__ = [
    "Admin",
    "Client",
    "Status",
    "Studio",
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


_WIDGETS = {
    "Admin": "workshop_gpu.client.widgets.admin",
    "Status": "workshop_gpu.client.widgets.status",
    "Studio": "workshop_gpu.client.widgets.studio",
}


def __getattr__(name: str) -> Any:
    """Widgets bring much along, which scripts need not pay for."""
    if name in _WIDGETS:
        return getattr(import_module(_WIDGETS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
