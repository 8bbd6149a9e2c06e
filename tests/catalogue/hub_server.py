"""A stand-in for the Hugging Face hub on this machine's loopback, spoken to by the real client."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubServer(ThreadingHTTPServer):
    """Serves one repository, "org/model", from a folder. `refusal` is a status and an error's code;
    while `gives` is not set, files are waited for."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.fetched: list[str] = []
        self.refusal: tuple[int, str] | None = None
        self.gives = Event()
        self.gives.set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def files(self) -> dict[str, bytes]:
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in paths}


class _Handler(BaseHTTPRequestHandler):
    server: HubServer

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.server.refusal:
            status, code = self.server.refusal
            self._send(b"{}", status, {"X-Error-Code": code})
        elif self.path.startswith("/api/models/org/model/tree/"):
            self._send_json([_entry(name, body) for name, body in self.server.files().items()])
        elif self.path.startswith("/api/models/org/model"):
            names = self.server.files().items()
            siblings = [{"rfilename": name, "size": len(body)} for name, body in names]
            self._send_json({"id": "org/model", "sha": COMMIT, "siblings": siblings})
        elif self.path.startswith("/org/model/resolve/"):
            self._send_file(self.path.split("/", 5)[5].split("?")[0])
        else:
            self._send(b"{}", 404, {"X-Error-Code": "RepoNotFound"})

    def _send_file(self, name: str) -> None:
        body = self.server.files()[name]
        if self.command == "GET":
            self.server.fetched.append(name)
            self.server.gives.wait()
        sha = hashlib.sha256(body).hexdigest()
        self._send(body, 200, {"ETag": f'"{sha}"', "X-Repo-Commit": COMMIT})

    def _send_json(self, data: object) -> None:
        self._send(json.dumps(data).encode(), 200, {"Content-Type": "application/json"})

    def _send(self, body: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Silence."""


def _entry(name: str, body: bytes) -> dict[str, object]:
    return {
        "type": "file",
        "path": name,
        "size": len(body),
        "oid": hashlib.sha1(body).hexdigest(),
    }


@contextmanager
def hub_server(folder: Path) -> Iterator[HubServer]:
    with HubServer(folder) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
