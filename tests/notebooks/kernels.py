"""A kernel that the server itself started, so that it has its own token."""

import queue
from types import TracebackType
from typing import Any, Self

import httpx
from jupyter_client.blocking.client import BlockingKernelClient

from tests.serverprocess import ServerProcess

ANSWER_S = 180.0


class ServerKernel:
    """Run code in it, and read what it says while it runs."""

    def __init__(self, server: ServerProcess) -> None:
        headers = {"Authorization": f"token {server.token}"}
        self._http = httpx.Client(
            base_url=server.url, headers=headers, trust_env=False, timeout=ANSWER_S
        )
        self._server = server
        self.id = self._http.post("api/kernels", json={"name": "python3"}).json()["id"]
        self._connect()

    def start(self, code: str) -> str:
        """Send code; the id of the message."""
        request: str = self._client.execute(code)
        return request

    def next_output(self, request: str) -> tuple[str, str] | None:
        """The next (kind, text) that the code puts out; None at its end. Kinds are stream,
        error, and the richest MIME type of a display."""
        while True:
            message = self._client.get_iopub_msg(timeout=ANSWER_S)
            if message["parent_header"].get("msg_id") != request:
                continue
            content, kind = message["content"], message["msg_type"]
            if kind == "status" and content["execution_state"] == "idle":
                return None
            if kind == "stream":
                return "stream", content["text"]
            if kind == "error":
                return "error", "\n".join(content["traceback"])
            if kind in ("display_data", "update_display_data", "execute_result"):
                return _richest(content["data"])

    def outputs(self, request: str) -> list[tuple[str, str]]:
        """All that is still to come from the code."""
        found: list[tuple[str, str]] = []
        while (output := self.next_output(request)) is not None:
            found.append(output)
        return found

    def run(self, code: str) -> list[tuple[str, str]]:
        return self.outputs(self.start(code))

    def printed(self, code: str) -> str:
        """What the code prints; fails where it raises."""
        outputs = self.run(code)
        errors = [text for kind, text in outputs if kind == "error"]
        assert errors == []
        return "".join(text for kind, text in outputs if kind == "stream").strip()

    def interrupt(self) -> None:
        """As the stop button does."""
        self._http.post(f"api/kernels/{self.id}/interrupt").raise_for_status()

    def restart(self) -> None:
        self._client.stop_channels()
        self._http.post(f"api/kernels/{self.id}/restart").raise_for_status()
        self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _connect(self) -> None:
        file = self._server.runtime_dir / f"kernel-{self.id}.json"
        self._client = BlockingKernelClient(connection_file=str(file))
        self._client.load_connection_file()
        self._client.start_channels(hb=False)
        try:
            self._wait_until_it_answers()
        except BaseException:
            self._close()
            raise

    def _wait_until_it_answers(self) -> None:
        """Ask until both channels bring something: a subscription that comes too late misses the
        outputs. (The client's own `wait_for_ready` takes a slow start for a death.)"""
        for _ in range(round(ANSWER_S)):
            self._client.kernel_info()
            try:
                self._client.get_shell_msg(timeout=1)
                self._client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            return
        raise TimeoutError("The kernel does not answer.")

    def _close(self) -> None:
        self._client.stop_channels()
        self._http.delete(f"api/kernels/{self.id}")
        self._http.close()


def _richest(data: dict[str, Any]) -> tuple[str, str]:
    for mime in ("image/png", "application/vnd.jupyter.widget-view+json", "text/html"):
        if mime in data:
            return mime, str(data[mime])
    return "text/plain", str(data.get("text/plain", ""))
