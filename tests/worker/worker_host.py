"""A host for tests: starts a real worker over a real socket and speaks the protocol with it."""

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TypeVar

from workshop_gpu.host.weight_pool import WeightPool
from workshop_gpu.worker import protocol

ASSETS = Path(__file__).parents[2] / "workshop_gpu" / "catalogue" / "assets"
MODELS = ("shapes", "shapes-dit", "shapes-dit-turbo")
START_S = 240.0
ANSWER_S = 180.0
POOL_BYTES = 2 * 10**9
FIRST_CARD = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
"""Which a worker gets that is to have one card: the first that these tests may see."""

Report = TypeVar("Report", bound=protocol.FromWorker)


class PoolUser:
    """The worker as the pool sees it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.answers: list[protocol.ToWorker] = []

    def send(self, order: protocol.ToWorker, *descriptors: int) -> None:
        self.answers.append(order)
        with contextlib.suppress(OSError):  # the worker has ended
            socket.send_fds(self._connection, [protocol.frame(order)], descriptors)


class Host:
    """One worker process and our end of its socket, with a weight pool behind it."""

    def __init__(self, *options: str, pool: WeightPool | None = None, **environment: str) -> None:
        ours, theirs = socket.socketpair()
        self.connection = ours
        self.pool = pool or WeightPool(POOL_BYTES)
        self._owns_pool = pool is None
        self.user = PoolUser(ours)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        command = [sys.executable, "-m", "workshop_gpu.worker", "--fd", str(theirs.fileno())]
        self.process = subprocess.Popen(
            [*command, *options],
            pass_fds=[theirs.fileno()],
            stderr=self._stderr,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        theirs.close()

    def send(self, *orders: protocol.ToWorker) -> None:
        self.connection.sendall(b"".join(protocol.frame(order) for order in orders))

    def receive(self, timeout_s: float = ANSWER_S) -> protocol.FromWorker:
        """The next report but for idle readings and heartbeats."""
        deadline = time.monotonic() + timeout_s
        while isinstance(report := self.receive_any(deadline), protocol.MemoryReading):
            pass
        return report

    def receive_any(self, deadline: float | None = None) -> protocol.FromWorker:
        """The next report, idle readings too; without heartbeats."""
        deadline = deadline or time.monotonic() + ANSWER_S
        while True:
            length = int.from_bytes(self._exactly(4, deadline), "big")
            report = protocol.read_report(self._exactly(length, deadline))
            if isinstance(report, protocol.PoolReport):
                self.pool.handle(self.user, report)
            elif not isinstance(report, protocol.Heartbeat):
                return report

    def expect(self, kind: type[Report], timeout_s: float = ANSWER_S) -> Report:
        """The next report, which must be of this kind."""
        report = self.receive(timeout_s)
        assert isinstance(report, kind), report
        return report

    def until(self, kind: type[Report]) -> Report:
        """Skip what goes on (loading, started, progress) to the report of this kind."""
        return self.collect(kind)[0]

    def collect(
        self, kind: type[Report], *also: type[protocol.FromWorker]
    ) -> tuple[Report, list[protocol.FromWorker]]:
        """The report of this kind, and all reports that came before it (of the kinds `also` too).

        Pictures and models have a lane each, so their reports come in any order.
        """
        before: list[protocol.FromWorker] = []
        passing = (protocol.Loading, protocol.Started, protocol.Progress, protocol.Drawn, *also)
        while not isinstance(report := self.receive(), kind):
            assert isinstance(report, passing), report
            before.append(report)
        return report, before

    def ask(self, order: protocol.ToWorker, kind: type[Report]) -> Report:
        self.send(order)
        return self.until(kind)

    def load(self, model: str, path: Path | None = None, **fields: str) -> protocol.Loaded:
        source = source_of(model, path, **fields)
        return self.ask(protocol.Load(source), protocol.Loaded)

    def complaints(self) -> str:
        """What the worker has written on stderr."""
        self._stderr.seek(0)
        return self._stderr.read().decode()

    def exit_code(self) -> int:
        return self.process.wait(ANSWER_S)

    def close(self) -> None:
        self.connection.close()
        try:
            self.process.wait(ANSWER_S)
        finally:
            self.process.kill()
            self._stderr.close()
            self.pool.release(self.user)
            if self._owns_pool:
                self.pool.close()

    def _exactly(self, size_bytes: int, deadline: float) -> bytes:
        received = bytearray()
        while len(received) < size_bytes:
            self.connection.settimeout(max(0.001, deadline - time.monotonic()))
            chunk = self.connection.recv(size_bytes - len(received))
            assert chunk, f"the worker is gone: {self.process.poll()}"
            received += chunk
        return bytes(received)


def source_of(model: str, path: Path | None = None, **fields: str) -> protocol.ModelSource:
    return protocol.ModelSource(model, "diffusers", str(path or ASSETS / model), **fields)


def params(**changes: object) -> protocol.GenerateParams:
    values: dict[str, object] = {
        "prompt": "a red circle on a blue background",
        "seed": 7,
        "steps": 4,
        "guidance": 3.0,
        "width": 128,
        "height": 128,
    }
    return protocol.GenerateParams(**{**values, **changes})


def float32_bytes(model: str) -> int:
    """What the numbers in a shipped model's files take in float32, by the files' headers."""
    count = 0
    for path in (ASSETS / model).rglob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        header.pop("__metadata__", None)
        for entry in header.values():
            size = 1
            for length in entry["shape"]:
                size *= length
            count += size
    return 4 * count
