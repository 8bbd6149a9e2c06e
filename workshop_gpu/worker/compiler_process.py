"""The compiler's process as the worker sees it: one at a time, halted while somebody draws."""

import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

import msgspec

from workshop_gpu.worker.compiler import Task
from workshop_gpu.worker.compilers import EAGER
from workshop_gpu.worker.twins import Twin

_LOWEST_PRIORITY = 19
LIMIT_S = 1200.0
"""A large model's block takes twenty seconds, and a slow machine's cores some minutes."""
_LOOK_S = 1.0
_ENDS_S = 0.05
_KILL_S = 10.0
_MOST_BYTES = 1 << 16
_COMMAND = (sys.executable, "-m", "workshop_gpu.worker.compiler", str(os.getpid()))


class CompilerProcess:
    """Runs tasks, from one thread; another one may halt it.

    It has a process group of its own, so that what it starts (a C compiler, say) halts with it, but
    the worker's session, which the host began. So when the worker ends nobody in the session looks
    after the group any more, and Linux ends what is halted in it (SIGHUP, SIGCONT). In a session of
    its own it would stay halted, and there, for ever.

    One that gets no further within `limit_s` of its own time (0: without limit), that in which it
    is halted aside, is ended with all that it started.
    """

    def __init__(self, command: tuple[str, ...] = _COMMAND, limit_s: float = LIMIT_S) -> None:
        self._command = command
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._halts = False
        self._pid: int | None = None

    def run(self, task: Task, on_twin: Callable[[Twin], None]) -> str:
        """Hand over each twin as it is finished; return once all are. Says why it ended before
        its end, "" where it did not. Raises OSError where it cannot be started."""
        with tempfile.TemporaryFile() as order:  # to a pipe we might write for ever
            order.write(msgspec.json.encode(task))
            order.seek(0)
            process = subprocess.Popen(
                self._command, stdin=order, stdout=subprocess.PIPE, process_group=0
            )
        assert process.stdout is not None
        with process.stdout as told:
            if task.backend != EAGER:  # that one is for trials, and soon done
                os.setpriority(os.PRIO_PROCESS, process.pid, _LOWEST_PRIORITY)
            with self._lock:
                self._pid = process.pid
                if self._halts:
                    self._signal(signal.SIGSTOP)
            try:
                in_time = self._hands_over(told, on_twin) and self._ends(process.pid)
            finally:
                with self._lock:
                    self._signal(signal.SIGKILL)
                    self._pid = None
                with suppress(subprocess.TimeoutExpired):  # it is stuck in the driver
                    process.wait(_KILL_S)
        if not in_time:
            return f"the compiler got no further within {self._limit_s:g} s, and was ended"
        status = process.returncode
        return f"the compiler ended with status {status}" if status else ""

    def _hands_over(self, told: IO[bytes], on_twin: Callable[[Twin], None]) -> bool:
        """All that it says; whether it came to an end."""
        line = b""
        while self._within_limit(lambda wait_s: bool(select.select([told], [], [], wait_s)[0])):
            piece = os.read(told.fileno(), _MOST_BYTES)
            if not piece:
                return True
            *lines, line = (line + piece).split(b"\n")
            for each in lines:
                on_twin(msgspec.json.decode(each, type=Twin))
        return False

    def _ends(self, pid: int) -> bool:
        """Whether the process ends; nobody takes its number before what it started was ended."""

        def has_ended(wait_s: float) -> bool:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return True
            time.sleep(min(wait_s, _ENDS_S))
            return False

        return self._within_limit(has_ended)

    def _within_limit(self, happens: Callable[[float], bool]) -> bool:
        """Whether it happens before the limit; it is asked to wait so many seconds for it."""
        left_s = self._limit_s or math.inf
        while left_s > 0:
            began = time.monotonic()
            if happens(min(left_s, _LOOK_S)):
                return True
            if not self._halts:
                left_s -= time.monotonic() - began
        return False

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Meanwhile it takes no time of any processor or card."""
        self._halt(True)
        try:
            yield
        finally:
            self._halt(False)

    def _halt(self, halts: bool) -> None:
        with self._lock:
            self._halts = halts
            self._signal(signal.SIGSTOP if halts else signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._pid, number)
