"""One worker process and the socket to it."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from pathlib import Path
from typing import IO

import anyio
import msgspec

from workshop_gpu.host.channel import Channel
from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.exiting import is_exiting
from workshop_gpu.worker.protocol import (
    MAX_MESSAGE_BYTES,
    FromWorker,
    Shutdown,
    ToWorker,
    frame,
    read_report,
)
from workshop_gpu.worker.protocol_spare import Begin, TakeOver

_LAST_LINES_BYTES = 32_000
_LAST_LINES = 20
_CRASH = "Fatal Python error"
"""How a crash begins in the log; the threads' stacks follow."""
_DUMP_S = 0.5
"""So long a worker that hangs has to write down what it does."""
_SECRET = re.compile(r"TOKEN|PASSWORD|SECRET|API_KEY")
_END_TIMEOUT_S = 3.0
_LOOK_S = 0.05
"""How often it is looked whether a worker dies: twenty readings of a small file take a fraction of
a millisecond."""


class Compilation(msgspec.Struct, frozen=True):
    """What compiles a worker's blocks ("auto": on a card; "off", or a backend's name), and the
    folder where they are kept (None: nothing is compiled). A compiler that gets no further within
    `limit_s` is ended (0: never)."""

    compiler: str = "auto"
    folder: Path | None = None
    limit_s: float = 0.0

    @property
    def options(self) -> list[str]:
        """The worker's."""
        if self.folder is None:
            return []
        options = ["--compiler", self.compiler, "--compiled", str(self.folder)]
        return [*options, "--compile-limit", f"{self.limit_s:g}"]


UNCOMPILED = Compilation()


class WorkerProcess:
    """A running worker. Orders go out with `send`; reports come in with `receive`.

    The process ends when its socket closes, so it never outlives the server.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        channel: Channel,
        log_path: Path,
    ) -> None:
        self._process = process
        self._channel = channel
        self._log_path = log_path
        self._log_path_then = log_path
        self._broke_protocol = ""
        self.opens = False
        """Whether it stood by and was told which device to open."""

    @classmethod
    async def start(
        cls,
        device: DeviceConfig,
        log_folder: Path,
        threads: int = 0,
        compilation: Compilation = UNCOMPILED,
    ) -> "WorkerProcess":
        """Starts the process; its first report is `Ready`, seconds later. Raises OSError."""
        options = ["--device", device.torch_device, "--total-bytes", str(device.total_bytes)]
        options += compilation.options
        if device.neighbours:
            options += ["--neighbours", *device.neighbours]
        cards = ",".join((device.gpu_uuid, *device.neighbours.values()))
        return await cls._start(
            options, threads, _environment(cards), _log_path(log_folder, device)
        )

    @classmethod
    async def stand_by(
        cls,
        log_folder: Path,
        threads: int,
        cards: tuple[str, ...],
        compilation: Compilation = UNCOMPILED,
    ) -> "WorkerProcess":
        """Starts a process for a device that is named later, with `take_over`.

        `cards` are the UUIDs of those that it may be. Its first report is `StandingBy`.
        Raises OSError.
        """
        environment = _environment(",".join(cards))
        return await cls._start(
            ["--stand-by", *compilation.options],
            threads,
            environment,
            log_folder / "worker-spare.log",
        )

    @classmethod
    async def _start(
        cls, options: list[str], threads: int, environment: dict[str, str], log_path: Path
    ) -> "WorkerProcess":
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        command = [sys.executable, "-m", "workshop_gpu.worker", "--fd", str(theirs.fileno())]
        command += [*options, *(["--threads", str(threads)] if threads else [])]
        log = _open_log(log_path)
        try:
            # A server that stops in this very moment still gets the process, to end it.
            with anyio.CancelScope(shield=True):
                process = await asyncio.create_subprocess_exec(
                    *command,
                    pass_fds=[theirs.fileno()],
                    env=environment,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            log.close()
        return cls(process, Channel(ours), log_path)

    @property
    def pid(self) -> int:
        return self._process.pid

    def take_over(self, device: DeviceConfig, log_folder: Path, context_bytes: int = 0) -> None:
        """Lets a process that stands by open this device, while its last worker may still be going.
        `context_bytes` is what that one held of it at first (0: not known)."""
        self.opens = True
        self._log_path_then = _log_path(log_folder, device)
        self.send(
            TakeOver(
                device.torch_device,
                device.gpu_uuid,
                device.total_bytes,
                device.neighbours,
                context_bytes,
            )
        )

    def begin(self) -> None:
        """The last worker is gone: the one that took over is the device's; it answers with
        `Ready`. Until now the log of that name was the other's."""
        with contextlib.suppress(OSError):  # then it keeps its log's name
            _set_aside(self._log_path_then)
            self._log_path = self._log_path.replace(self._log_path_then)
        self.send(Begin())

    async def dies(self) -> None:
        """Returns once the process is on its way out, as far as the system tells.

        Its socket tells later: the kernel first takes back the memory that the process has mapped,
        which takes a second where that is a large model's.
        """
        while True:
            if is_exiting(self.pid):
                return
            await anyio.sleep(_LOOK_S)

    def send(self, order: ToWorker, *descriptors: int) -> None:
        """Hands an order to the socket; a dead worker shows in `receive`, not here.

        Descriptors that go with it stay the caller's, who may close them at once.
        """
        self._channel.send(frame(order), *descriptors)

    async def receive(self) -> FromWorker | None:
        """The next report, or None once the worker has ended or broke the protocol."""
        try:
            length = int.from_bytes(await self._channel.receive(4), "big")
            if length > MAX_MESSAGE_BYTES:
                raise msgspec.DecodeError(f"a message of {length} bytes")
            return read_report(await self._channel.receive(length))
        except msgspec.MsgspecError as broken:
            self._broke_protocol = f"it sent what is no message ({broken}); "
        except EOFError:
            pass
        return None

    async def end(self) -> str:
        """Ends the process if it still runs; returns in words how it ended.

        One that even SIGKILL does not end, because it is stuck in the driver, is left behind.
        """
        self.send(Shutdown())
        self._channel.close()
        if not await self._ends():
            self.kill()
            if not await self._ends():
                return "it does not end: it is stuck in the driver"
        return self._how_it_ended()

    async def _ends(self) -> bool:
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    async def kill_hung(self) -> None:
        """Ends a process that no longer answers; if it can, it first writes into its log where
        it hangs."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)
        await asyncio.sleep(_DUMP_S)
        self.kill()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _how_it_ended(self) -> str:
        code = self._process.returncode
        if code is not None and code < 0:
            how = f"signal {signal.Signals(-code).name}"
        else:
            how = f"exit code {code}"
        how = self._broke_protocol + how
        lines = self.last_lines()
        if not lines:
            return how
        return f"{how}: {(lines[0] if lines[0].startswith(_CRASH) else lines[-1]).strip()}"

    def last_lines(self) -> tuple[str, ...]:
        """The end of its log; after a crash, where that begins."""
        try:
            with open(self._log_path, "rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - _LAST_LINES_BYTES))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ()
        crashes = [number for number, line in enumerate(lines) if line.startswith(_CRASH)]
        first = crashes[-1] if crashes else max(0, len(lines) - _LAST_LINES)
        return tuple(line.rstrip()[:300] for line in lines[first : first + _LAST_LINES])


def _open_log(path: Path) -> IO[bytes]:
    """The worker's log is begun anew at each start; the one before is kept beside it. A full disk
    is no reason to have no worker: then it writes to nowhere."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _set_aside(path)
        return open(path, "wb")
    except OSError:
        return open(os.devnull, "wb")


def _set_aside(log_path: Path) -> None:
    if log_path.exists():
        log_path.replace(log_path.with_suffix(".previous.log"))


def _log_path(folder: Path, device: DeviceConfig) -> Path:
    return folder / f"worker-{device.id.replace(':', '-')}.log"


def _environment(visible_cards: str) -> dict[str, str]:
    """The server's environment, less its secrets, with these cards visible: this worker's first."""
    kept = {name: value for name, value in os.environ.items() if not _SECRET.search(name)}
    return kept | {
        "CUDA_VISIBLE_DEVICES": visible_cards,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
