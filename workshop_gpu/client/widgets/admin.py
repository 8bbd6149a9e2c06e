"""`wg.Admin()`: the instructor's buttons, for front ends without the panel.

A notebook's own token never has the right. An instructor connects with a token that has it
(`wg.connect(url, token=…)`); without it the widget says so, and does nothing.
"""

import threading
import time
from typing import Any

import anywidget
import traitlets

from workshop_gpu.api import schemas_instructor as instructor
from workshop_gpu.client.client import Client
from workshop_gpu.client.errors import ClientError
from workshop_gpu.client.faults import Faults
from workshop_gpu.client.http import Http
from workshop_gpu.client.session import current
from workshop_gpu.client.widgets.admin_actions import act
from workshop_gpu.client.widgets.admin_view import Known, admin_view
from workshop_gpu.client.widgets.scripts import script, style

_REFUSAL = (
    "This needs the instructor's right, and a notebook's own token never has it. If you are the "
    'instructor, use the GPU panel, or connect first: wg.connect("http://…", token="the server\'s '
    'token"), then wg.Admin() again.'
)
_PAUSE_S = 2.0
"""It looks at the server at most so often, and only when something changed there."""


class Admin(anywidget.AnyWidget):
    """What an instructor does, by clicking. What hurts somebody asks first."""

    _esm = script("admin.js")
    _css = style("frame.css", "admin.css")

    _view = traitlets.Dict().tag(sync=True)
    _refusal = traitlets.Unicode("").tag(sync=True)
    _result = traitlets.Dict().tag(sync=True)
    """What became of the last click: its words, whether it failed, a number that counts them."""

    def __init__(self, client: Client | None = None) -> None:
        self._client = client or current()
        self._closed = threading.Event()
        self._looking = threading.Lock()
        allowed = self._client.me().admin
        view = admin_view(look(self._client)) if allowed else {}
        super().__init__(_view=view, _refusal="" if allowed else _REFUSAL)
        self.on_msg(self._on_message)
        if allowed:
            self._client.events.start()
            name = "workshop-gpu-admin"
            threading.Thread(target=self._follow, name=name, daemon=True).start()

    def close(self) -> None:
        """Take the widget off the screen and stop looking."""
        closed = getattr(self, "_closed", None)
        if closed is not None:
            closed.set()
        super().close()

    def refresh(self) -> None:
        """Looks at the server now."""
        with self._looking:
            self._view = admin_view(look(self._client))

    def _on_message(self, _: Any, content: Any, __: Any) -> None:
        """A click."""
        if self._refusal or not isinstance(content, dict):
            return
        do, what, value = (str(content.get(name, "")) for name in ("do", "what", "value"))
        try:
            words, failed = act(self._client.admin, do, what, value), False
            self.refresh()
        except ClientError as problem:
            words, failed = f"{problem.title}: {problem.message}", True
        self._result = {"words": words, "failed": failed, "at": time.time()}

    def _follow(self) -> None:
        """In a thread of its own, until it is closed."""
        seen, faults = 0, Faults()
        while not self._closed.wait(_PAUSE_S) and not self._client.closed:
            before, seen = seen, self._client.events.wait(seen, _PAUSE_S)
            if seen == before or self._closed.is_set():
                continue
            try:
                self.refresh()
            except ClientError:
                continue  # the next change tells; a click says what is wrong
            except Exception as fault:  # of ours, over what the next change may bring right
                faults.say(fault)

    def __repr__(self) -> str:
        return "<Admin: no right>" if self._refusal else "<Admin>"


def look(client: Client) -> Known:
    """All that is shown, as the server has it now. Raises what it refuses."""
    http: Http = client.admin.http()
    return Known(
        status=client.status().status,
        models=list(client.models()),
        policy=http.get("policy", instructor.Policy),
        participants=list(client.admin.participants()),
        kernels=list(client.admin.kernels()),
        audit=list(client.admin.audit()),
    )
