"""A server that stops promises nothing any more."""

from workshop_gpu.conductor.errors import WorkshopError


class ServerStops(WorkshopError):
    """Jupyter answers for a while yet, but the journal is closed: nothing new would be kept."""

    kind = "server_stops"

    def __init__(self) -> None:
        super().__init__(
            "The server is being stopped and takes nothing new. What it has accepted is kept; ask "
            "again once it is back."
        )
