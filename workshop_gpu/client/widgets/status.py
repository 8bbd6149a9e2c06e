"""`wg.Status()`: the GPUs and who holds them, the queue, what happened last and why.

One thread of the widget's own follows the event stream, so that it lives on while a cell runs.
"""

import threading

import anywidget
import traitlets

from workshop_gpu.api import schemas
from workshop_gpu.client.client import Client
from workshop_gpu.client.faults import Faults
from workshop_gpu.client.live_status import LiveStatus
from workshop_gpu.client.session import current
from workshop_gpu.client.widgets.scripts import script, style
from workshop_gpu.client.widgets.status_view import status_view

_LONGEST_SILENCE_S = 5.0
_PAUSE_S = 0.25
"""It is drawn at most four times a second, whatever happens on the server."""


class Status(anywidget.AnyWidget):
    """What goes on in the room. It needs no kernel that is idle, and changes nothing."""

    _esm = script("status.js")
    _css = style("frame.css", "status.css")

    _view = traitlets.Dict().tag(sync=True)

    def __init__(self, client: Client | None = None) -> None:
        self._client = client or current()
        self._lock = threading.Lock()
        self._live = LiveStatus()
        self._unsubscribe = self._client.events.subscribe(self._on_event)
        status = self._client.status().status
        with self._lock:
            self._live.begin(status)
        super().__init__(_view=status_view(status))
        self._closed = threading.Event()
        name = "workshop-gpu-status"
        threading.Thread(target=self._follow, name=name, daemon=True).start()

    def close(self) -> None:
        """Take the widget off the screen and stop listening."""
        closed = getattr(self, "_closed", None)
        if closed is not None:
            closed.set()
            self._unsubscribe()
        super().close()

    def show(self) -> None:
        """Draws what is known now; nothing happens where nothing changed."""
        with self._lock:
            status = self._live.status
        if status is not None:
            self._view = status_view(status, live=self._client.events.live)

    def _on_event(self, event: schemas.StreamEvent) -> None:
        """In the stream's thread."""
        with self._lock:
            self._live.apply(event)

    def _follow(self) -> None:
        """In a thread of its own: draws whenever something changed, until it is closed."""
        seen, faults = 0, Faults()
        while not self._closed.wait(_PAUSE_S) and not self._client.closed:
            seen = self._client.events.wait(seen, _LONGEST_SILENCE_S)
            if self._closed.is_set():
                return
            try:
                self.show()
            except Exception as fault:  # of ours, over what the next change may bring right
                faults.say(fault)

    def __repr__(self) -> str:
        return f"<Status: {self._view.get('summary', '')}>"
