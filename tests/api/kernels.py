"""Real kernels of a test's server, asked directly over their own sockets."""

import ast
import contextlib
import os
import signal
from typing import Any, Self

import httpx
from jupyter_client.blocking.client import BlockingKernelClient

from tests.api.people import WAIT_S, Person
from tests.serverprocess import ServerProcess


class RunningKernel:
    """A kernel that the server started, as the session of a notebook ("": of none)."""

    def __init__(self, server: ServerProcess, notebook: str = "faces.ipynb") -> None:
        self.server = server
        self._http = httpx.Client(
            base_url=server.url,
            headers={"Authorization": f"token {server.token}"},
            timeout=WAIT_S,
            trust_env=False,
        )
        if notebook:
            session = {"path": notebook, "name": notebook, "type": "notebook"}
            answer = self._http.post("api/sessions", json=session | {"kernel": {"name": "python3"}})
            self._session = answer.raise_for_status().json()
            self.id: str = self._session["kernel"]["id"]
        else:
            self.id = self._http.post("api/kernels", json={}).raise_for_status().json()["id"]
        self._client = self._connect()

    def _connect(self) -> BlockingKernelClient:
        client = BlockingKernelClient()
        client.load_connection_file(str(self.server.runtime_dir / f"kernel-{self.id}.json"))
        # Without the heartbeat's one-second limit, which a busy machine misses.
        client.start_channels(hb=False)
        client.wait_for_ready(timeout=WAIT_S)
        return client

    def value(self, expression: str) -> Any:
        """The value of an expression (a literal's repr) in the kernel."""
        reply = self._client.execute_interactive(
            "", user_expressions={"it": expression}, timeout=WAIT_S, output_hook=lambda _: None
        )
        found = reply["content"]["user_expressions"]["it"]
        assert found["status"] == "ok", found
        return ast.literal_eval(found["data"]["text/plain"])

    def begin(self, code: str) -> None:
        """Has a cell executed, and does not wait for its end."""
        self._client.execute(code)

    def environment(self, name: str) -> str:
        return str(self.value(f"__import__('os').environ.get({name!r}, '')"))

    def person(self) -> Person:
        """The participant that this kernel is, with the token in its environment."""
        return Person(self.server, token=self.environment("WORKSHOP_GPU_TOKEN"))

    def restart(self) -> None:
        self._client.stop_channels()
        self._http.post(f"api/kernels/{self.id}/restart").raise_for_status()
        self._client = self._connect()

    def change(self) -> str:
        """Its notebook gets another kernel, as in JupyterLab's menu; gives that one's id."""
        self._client.stop_channels()
        changed = {"kernel": {"name": "python3"}}
        answer = self._http.patch(f"api/sessions/{self._session['id']}", json=changed)
        self.id = answer.raise_for_status().json()["kernel"]["id"]
        self._client = self._connect()
        return self.id

    def reconnect(self) -> None:
        """Somebody else restarted it."""
        self._client.stop_channels()
        self._client = self._connect()

    def kill(self) -> None:
        """The kernel's process dies as if out of memory. The server starts it again."""
        pid = self.value("__import__('os').getpid()")
        os.kill(pid, signal.SIGKILL)

    def shut_down(self) -> None:
        self._client.stop_channels()
        with contextlib.suppress(httpx.HTTPError):  # it, or its server, is gone
            self._http.delete(f"api/kernels/{self.id}").raise_for_status()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut_down()
        self._http.close()
