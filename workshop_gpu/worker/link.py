"""The worker's end of the socket: orders in, reports out, and the end of the process.

The reader thread blocks in `recv`; it puts every order into its lane's inbox in order of arrival,
and marks a cancelled job at once, while the lane is busy with that very job. Any thread may send.
"""

import contextlib
import os
import queue
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import NoReturn

import msgspec

from workshop_gpu.worker import protocol
from workshop_gpu.worker.protocol_loras import ForgetLoras
from workshop_gpu.worker.protocol_spare import Begin, TakeOver

EXIT_GONE = 0
EXIT_BROKEN_STREAM = 3

_LENGTH_BYTES = 4
_MOST_DESCRIPTORS = 64
"""In one read; the host sends far fewer with a message."""

Move = protocol.Load | protocol.Evict | protocol.FreePool
"""What is done on the lane that moves models."""

PoolAnswer = tuple[protocol.PoolAnswer, list[int]]
"""An answer of the weight pool and the descriptors that came with it, which the taker owns."""


class Cancellations:
    """Which of the jobs that are waiting in the inbox or running have been cancelled.

    A job is known from the moment its Run is read until the lane has answered it. A Cancel for
    any other job is stale and leaves no trace, so that it cannot hit a later job of that name.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._cancelled: set[str] = set()

    def arrived(self, job: str) -> None:
        with self._lock:
            self._known.add(job)

    def cancel(self, job: str) -> None:
        with self._lock:
            if job in self._known:
                self._cancelled.add(job)

    def cancelled(self, job: str) -> bool:
        with self._lock:
            return job in self._cancelled

    def ended(self, job: str) -> None:
        with self._lock:
            self._known.discard(job)
            self._cancelled.discard(job)


class Link:
    """The socket to the host. `start` begins reading.

    Then `jobs` fills with what is to be drawn, `moves` with models to load and to evict, and
    `pool_answers` with what the server's weight pool says.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self.jobs: queue.SimpleQueue[protocol.Run] = queue.SimpleQueue()
        self.moves: queue.SimpleQueue[Move] = queue.SimpleQueue()
        self.take_overs: queue.SimpleQueue[TakeOver] = queue.SimpleQueue()
        self.begins = threading.Event()
        """Whether the device is this worker's alone."""
        self.preparations: queue.SimpleQueue[protocol.Prepare] = queue.SimpleQueue()
        self.pool_answers: queue.SimpleQueue[PoolAnswer] = queue.SimpleQueue()
        self.compile: Callable[[str], None] = lambda model: None
        """Takes an order to compile a model's blocks, once somebody does that."""
        self.forget_loras: Callable[[tuple[str, ...]], None] = lambda keys: None
        """Takes an order to let go of LoRAs, once somebody keeps some."""
        self.cancellations = Cancellations()
        self._descriptors: deque[int] = deque()

    def start(self) -> None:
        threading.Thread(target=self._read_for_ever, name="orders", daemon=True).start()

    def send(self, report: protocol.FromWorker) -> None:
        """Send one report. A host that is gone ends the process."""
        try:
            with self._sending:
                self._connection.sendall(protocol.frame(report))
        except OSError:
            end_process(EXIT_GONE)

    def _read_for_ever(self) -> None:
        try:
            while True:
                self._take(protocol.read_order(self._next_body()))
        except (msgspec.DecodeError, BrokenStream) as problem:
            end_process(EXIT_BROKEN_STREAM, f"the host sent a malformed message: {problem}")
        except OSError:
            end_process(EXIT_GONE)

    def _take(self, order: protocol.ToWorker) -> None:
        match order:
            case protocol.Cancel(job=job):
                self.cancellations.cancel(job)
            case protocol.Shutdown():
                end_process(EXIT_GONE)
            case TakeOver():
                self.take_overs.put(order)
            case Begin():
                self.begins.set()
            case protocol.Prepare():
                self.preparations.put(order)
            case protocol.Compile(model):
                self.compile(model)
            case ForgetLoras(keys):
                self.forget_loras(keys)
            case protocol.PartGranted():
                # Some may be lost on the way, where this process has too many files open.
                there = min(order.segments, len(self._descriptors))
                self.pool_answers.put((order, [self._descriptors.popleft() for _ in range(there)]))
            case protocol.PartRefused():
                self.pool_answers.put((order, []))
            case protocol.Run():
                # Known before it is in the inbox: the lane may end it before this thread goes on.
                for member in order.members:
                    self.cancellations.arrived(member.job)
                self.jobs.put(order)
            case protocol.Load() | protocol.Evict() | protocol.FreePool():
                self.moves.put(order)

    def _next_body(self) -> bytes:
        length = int.from_bytes(self._exactly(_LENGTH_BYTES, between_messages=True), "big")
        if not 0 < length <= protocol.MAX_MESSAGE_BYTES:
            raise BrokenStream(f"a message of {length} bytes")
        return self._exactly(length, between_messages=False)

    def _exactly(self, size_bytes: int, *, between_messages: bool) -> bytes:
        received = bytearray()
        while len(received) < size_bytes:
            chunk, descriptors, _, _ = socket.recv_fds(
                self._connection, min(size_bytes - len(received), 1 << 20), _MOST_DESCRIPTORS
            )
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
                self._descriptors.append(descriptor)
            if not chunk:
                if between_messages and not received:
                    end_process(EXIT_GONE)
                raise BrokenStream("the stream ended inside a message")
            received += chunk
        return bytes(received)


class BrokenStream(Exception):
    """The bytes on the socket are not messages."""


def end_process(code: int, reason: str = "") -> NoReturn:
    """End at once, from any thread: the kernel and the driver take all memory back."""
    if reason:
        with contextlib.suppress(OSError):  # the log's disk may be full
            print(f"workshop-gpu worker {os.getpid()}: {reason}", file=sys.stderr, flush=True)
    os._exit(code)
