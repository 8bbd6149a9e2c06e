"""The hand that breaks things: one method for each kind of fault."""

import contextlib
import os
import resource
import signal
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import httpx
import psutil

from tests.api.kernels import RunningKernel
from tests.faults.points.sitecustomize import BREAKS, DRIVER_FAILS, OUT_OF_MEMORY
from tests.serverprocess import ServerProcess

_START_S = 40.0
"""Older workers are ready, on a machine that is not overrun."""
_GIVEN_UP_S = 20.0
"""So long the workers of a device must fail to start before it is given up."""

Fault = Callable[[], bool]
"""Does it, and says whether there was anything to do it to."""


class Hand:
    """Does faults to a server and what belongs to it. `restart` starts the server again after it
    was ended, and tells everybody its address; `new_client` kills a client and starts another;
    `a_client` is the process id of one."""

    def __init__(
        self,
        server: ServerProcess,
        random: Random,
        restart: Callable[[], None],
        new_client: Callable[[], None],
        a_client: Callable[[], int],
    ) -> None:
        self._server = server
        self._random = random
        self._restart = restart
        self._new_client = new_client
        self._a_client = a_client
        self.done: Counter[str] = Counter()
        self.kinds: dict[str, Fault] = {
            "worker killed": lambda: self._signal_worker(signal.SIGKILL),
            "worker crashed": lambda: self._signal_worker(signal.SIGSEGV),
            "worker stopped for good": lambda: self._signal_worker(signal.SIGSTOP),
            "worker late": self._worker_late,
            "worker out of memory": self._worker_out_of_memory,
            "worker out of memory in a phase": self._worker_out_of_memory_in_a_phase,
            "worker's driver fails": lambda: self._signal_worker(DRIVER_FAILS),
            "worker killed as it loads": self._worker_killed_as_it_loads,
            "worker and heir killed": self._worker_and_heir_killed,
            "device lost": self._device_lost,
            "server's task broken": self._task_broken,
            "server late": self._server_late,
            "connections cut": self._cut_connections,
            "half a request": self._half_a_request,
            "client killed": self._client_killed,
            "client late": self._client_late,
            "kernel killed": self._kernel_killed,
            "kernel stopped and killed": self._kernel_stopped_and_killed,
            "disk full": self._disk_full,
            "file cut": self._cut_file,
            "server killed": self._server_killed,
            "server ended": self._server_ended,
        }

    def act(self, kind: str) -> None:
        """Does one fault."""
        with contextlib.suppress(psutil.Error, ProcessLookupError, httpx.HTTPError):
            self.done[kind] += self.kinds[kind]()

    # workers

    def workers(self) -> list[psutil.Process]:
        """The server's worker processes, those that stand by too."""
        children = psutil.Process(self._server.pid).children()
        return [child for child in children if "workshop_gpu.worker" in child.cmdline()]

    def _worker(self) -> psutil.Process | None:
        """One that has had time to become ready, now and then any."""
        workers = self.workers()
        grown = [each for each in workers if time.time() - each.create_time() > _START_S]
        if self._random.random() < 0.9:
            workers = grown
        return self._random.choice(workers) if workers else None

    def _signal_worker(self, which: int) -> bool:
        worker = self._worker()
        if worker is not None:
            worker.send_signal(which)
        return worker is not None

    def _worker_late(self) -> bool:
        worker = self._worker()
        if worker is None:
            return False
        worker.send_signal(signal.SIGSTOP)
        time.sleep(self._random.random())
        worker.send_signal(signal.SIGCONT)
        return True

    def _worker_out_of_memory(self) -> bool:
        """Whatever it allocates in the next moment is refused."""
        worker = self._worker()
        if worker is None:
            return False
        limit_bytes = worker.memory_info().vms + self._random.randrange(1, 30) * 1_000_000
        before = resource.prlimit(worker.pid, resource.RLIMIT_AS)
        resource.prlimit(worker.pid, resource.RLIMIT_AS, (limit_bytes, before[1]))
        time.sleep(0.2 + self._random.random())
        resource.prlimit(worker.pid, resource.RLIMIT_AS, before)
        return True

    def _worker_out_of_memory_in_a_phase(self) -> bool:
        """The next time that it encodes, denoises or decodes it finds no memory."""
        return self._signal_worker(self._random.choice(list(OUT_OF_MEMORY)))

    def _worker_killed_as_it_loads(self) -> bool:
        """All of them: the model leaves, comes back, and they die at some moment of that."""
        headers = {"Authorization": f"token {self._server.token}"}
        model = f"{self._server.url}workshop-gpu/api/models/shapes"
        with httpx.Client(headers=headers, trust_env=False, timeout=10.0) as http:
            http.post(f"{model}/evict")
            http.post(f"{model}/load")
        time.sleep(self._random.random())
        return self._kill(self.workers())

    def _worker_and_heir_killed(self) -> bool:
        """A worker dies, and at some moment of its taking over so does what stood by."""
        workers = [each for each in self.workers() if not _stood_by(each)]
        if not workers:
            return False
        heirs = [each for each in self.workers() if _stood_by(each)]
        self._kill([self._random.choice(workers)])
        time.sleep(1.5 * self._random.random())
        return self._kill(heirs)

    def _device_lost(self) -> bool:
        """No worker comes up any more, until the server gives devices up."""
        end = time.monotonic() + _GIVEN_UP_S
        killed = False
        while time.monotonic() < end:
            killed |= self._kill(self.workers())
            time.sleep(0.2)
        return killed

    def _kill(self, workers: list[psutil.Process]) -> bool:
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
        return bool(workers)

    # the server

    def _task_broken(self) -> bool:
        os.kill(self._server.pid, self._random.choice(list(BREAKS)))
        return True

    def _server_late(self) -> bool:
        os.kill(self._server.pid, signal.SIGSTOP)
        time.sleep(self._random.random())
        os.kill(self._server.pid, signal.SIGCONT)
        return True

    def _server_killed(self) -> bool:
        self._server.kill()
        self._restart()
        return True

    def _server_ended(self) -> bool:
        self._server.end()
        self._restart()
        return True

    # connections and clients

    def _connect(self) -> socket.socket:
        address = urlsplit(self._server.url)
        return socket.create_connection((address.hostname, address.port), timeout=10)

    def _request(self, head: str) -> bytes:
        return f"{head}\r\nHost: x\r\nAuthorization: token {self._server.token}\r\n".encode()

    def _cut_connections(self) -> bool:
        """Readers of the stream that are gone without a word, with data on the way."""
        for _ in range(5):
            with contextlib.suppress(OSError), self._connect() as connection:
                path = f"{urlsplit(self._server.url).path}workshop-gpu/api/events"
                connection.sendall(self._request(f"GET {path} HTTP/1.1") + b"\r\n")
                connection.recv(1)
                reset = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        return True

    def _half_a_request(self) -> bool:
        with contextlib.suppress(OSError), self._connect() as connection:
            path = f"{urlsplit(self._server.url).path}workshop-gpu/api/jobs"
            body = b'{"model": "shapes", "pro'
            head = self._request(f"POST {path} HTTP/1.1") + b"Content-Length: 5000\r\n\r\n"
            sent = (head + body)[: self._random.randrange(1, len(head) + len(body))]
            connection.sendall(sent)
        return True

    def _client_killed(self) -> bool:
        self._new_client()
        return True

    def _client_late(self) -> bool:
        """It reads nothing for a moment, whatever it listens to."""
        client = self._a_client()
        os.kill(client, signal.SIGSTOP)
        time.sleep(self._random.random())
        os.kill(client, signal.SIGCONT)
        return True

    def _kernel_killed(self) -> bool:
        """A kernel takes a hold, asks for pictures, and dies of a sudden."""
        return self._kernel_ends(stopped=False)

    def _kernel_stopped_and_killed(self) -> bool:
        """As `_kernel_killed`, after it answered nobody for a moment."""
        return self._kernel_ends(stopped=True)

    def _kernel_ends(self, *, stopped: bool) -> bool:
        kernel = RunningKernel(self._server, f"faults-{sum(self.done.values())}.ipynb")
        try:
            with kernel.person() as person:
                person.hold("shapes", ttl_s=3000.0)
                for _ in range(3):
                    person.submit()
            pid = kernel.value("__import__('os').getpid()")
            if stopped:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self._random.random())
            os.kill(pid, signal.SIGKILL)
        finally:
            kernel.shut_down()
        return True

    # the disk

    @property
    def data_folder(self) -> Path:
        return self._server.folder / "data" / "workshop_gpu"

    def _disk_full(self) -> bool:
        """Every byte of its file system is taken, or where that is not a small one, pictures have
        no place to go."""
        free = os.statvfs(self.data_folder)
        free_bytes = free.f_bavail * free.f_frsize
        if free_bytes < 1_000_000_000:
            filler = self.data_folder / "filler"
            with contextlib.suppress(OSError), filler.open("wb") as file:
                while True:
                    file.write(bytes(100_000))
            time.sleep(1.0)
            filler.unlink()
            return True
        images = self.data_folder / "images"
        if not images.is_dir():
            return False
        aside = self.data_folder / "images-aside"
        images.rename(aside)
        images.write_text("a file in the way")
        time.sleep(1.0)
        images.unlink()
        aside.rename(images)
        return True

    def _cut_file(self) -> bool:
        """What the server keeps of its own to be faster or to remember rules; not the journal."""
        files = sorted(self.data_folder.glob("*.json"))
        if not files:
            return False
        file = self._random.choice(files)
        os.truncate(file, self._random.randrange(max(1, file.stat().st_size)))
        return True


def _stood_by(worker: psutil.Process) -> bool:
    return "--stand-by" in worker.cmdline()
