"""The compiler's process as the worker sees it: one at a time, halted while somebody draws."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from workshop_gpu.worker.compiler import Task
from workshop_gpu.worker.compilers import EAGER
from workshop_gpu.worker.twins import Twin

_LOWEST_PRIORITY = 19
_COMMAND = (sys.executable, "-m", "workshop_gpu.worker.compiler", str(os.getpid()))


class CompilerProcess:
    """Runs tasks, from one thread; another one may halt it.

    It has a process group of its own, so that what it starts (a C compiler, say) halts with it, but
    the worker's session, which the host began. So when the worker ends nobody in the session looks
    after the group any more, and Linux ends what is halted in it (SIGHUP, SIGCONT). In a session of
    its own it would stay halted, and there, for ever.
    """

    def __init__(self, command: tuple[str, ...] = _COMMAND) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._halts = False
        self._pid: int | None = None

    def run(self, task: Task, on_twin: Callable[[Twin], None]) -> str:
        """Hand over each twin as it is finished; return once all are. Says why it ended before
        its end, "" where it did not. Raises OSError where it cannot be started."""
        with subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            if task.backend != EAGER:  # that one is for trials, and soon done
                os.setpriority(os.PRIO_PROCESS, process.pid, _LOWEST_PRIORITY)
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(msgspec.json.encode(task))
            with self._lock:
                self._pid = process.pid
                if self._halts:
                    self._signal(signal.SIGSTOP)
            try:
                for line in process.stdout:
                    on_twin(msgspec.json.decode(line, type=Twin))
                status = process.wait()
            finally:
                with self._lock:
                    if process.poll() is None:
                        self._signal(signal.SIGKILL)
                    self._pid = None
        return f"the compiler ended with status {status}" if status else ""

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
