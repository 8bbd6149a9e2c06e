"""The compiler's process: what becomes of the worker when it fails, and when somebody draws."""

import os
import select
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.worker.opening import opened
from tests.worker.small_pipelines import save_flux
from tests.worker.worker_host import ANSWER_S, params
from workshop_gpu.worker import protocol
from workshop_gpu.worker.compilers import EAGER

WANTED = [params(width=64, height=64, steps=1)]


def task() -> Any:
    from workshop_gpu.worker.compiler import Task

    return Task(protocol.ModelSource("small", "diffusers", "/nowhere"), "cpu", EAGER, "/", ())


def test_while_somebody_draws_the_compiler_is_halted() -> None:
    from workshop_gpu.worker.compiler_process import CompilerProcess

    begins, may_end = threading.Event(), threading.Event()
    script = "import signal, sys; print(sys.argv[1], flush=True); signal.pause()"
    twin = '{"name": "a", "kind": "b", "form": "c", "backend": "eager"}'
    process = CompilerProcess((sys.executable, "-c", script, twin))
    ends: list[str] = []

    def arrived(twin: Any) -> None:
        begins.set()
        may_end.wait()

    thread = threading.Thread(target=lambda: ends.append(process.run(task(), arrived)))
    thread.start()
    begins.wait()
    pid = process._pid
    assert pid is not None
    with process.halted():
        stopped = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        assert stopped is not None
    os.kill(pid, signal.SIGTERM)
    may_end.set()
    thread.join()
    assert ends == ["the compiler ended with status -15"]
    with process.halted():
        pass  # nobody is there any more


def test_time_in_which_the_compiler_is_halted_does_not_count_against_its_limit() -> None:
    from workshop_gpu.worker.compiler_process import CompilerProcess

    process = CompilerProcess(limit_s=0.02)
    looks: list[float] = []

    def happens_at_the_fifth_look(wait_s: float) -> bool:
        select.select([], [], [], wait_s)
        looks.append(wait_s)
        return len(looks) == 5

    assert not process._within_limit(happens_at_the_fifth_look)
    looks.clear()
    with process.halted():
        assert process._within_limit(happens_at_the_fifth_look)


NOTHING_MORE = "import signal; signal.pause()"


@pytest.mark.usefixtures("quiet_libraries")
@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("raise SystemExit(3)", "the compiler ended with status 3"),
        (NOTHING_MORE, "the compiler got no further within 0.5 s, and was ended"),
    ],
)
def test_a_compiler_that_breaks_or_hangs_is_told_of_once_and_not_tried_again(
    tmp_path: Path, script: str, problem: str
) -> None:
    from workshop_gpu.worker.compiler_process import CompilerProcess
    from workshop_gpu.worker.compiling import Compiling
    from workshop_gpu.worker.drawing import draw
    from workshop_gpu.worker.turns import Turns
    from workshop_gpu.worker.twin_store import TwinStore

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = opened(save_flux(tmp_path / "flux"))
    told: list[protocol.Compiled] = []
    breaks = CompilerProcess(
        (sys.executable, "-c", script), limit_s=0.5 if "pause" in script else 0
    )
    store = TwinStore(tmp_path / "compiled", "CPU", EAGER)
    compiling = Compiling(store, Turns(), "cpu", told.append, breaks)
    compiling.look_at(model)

    def drawn() -> None:
        assert not compiling.chooses(model, WANTED)
        with compiling.drawing(model, WANTED, compiled=False):
            draw(model, WANTED, lambda step: None)
        assert not any("forward" in vars(each) for each in model.pipeline.transformer.modules())

    drawn()
    assert compiling.wants("small")
    compiling._compile("small")
    assert told == [protocol.Compiled("small", ready=False, problem=problem)]
    drawn()
    assert not compiling.wants("small")


ON_A_FULL_DISK = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
sys.argv[1:] = [PID]
runpy.run_module("workshop_gpu.worker.compiler", run_name="__main__")
"""
"""What is known of a twin can be written, but not the twin."""


@pytest.mark.usefixtures("quiet_libraries")
def test_what_could_not_be_written_is_compiled_by_the_next_worker(tmp_path: Path) -> None:
    from workshop_gpu.worker.compiler_process import CompilerProcess
    from workshop_gpu.worker.compiling import Compiling
    from workshop_gpu.worker.drawing import draw
    from workshop_gpu.worker.turns import Turns
    from workshop_gpu.worker.twin_store import TwinStore

    model = opened(save_flux(tmp_path / "flux"))

    def compiled(process: CompilerProcess) -> protocol.Compiled:
        """As a worker of its own would."""
        told: list[protocol.Compiled] = []
        store = TwinStore(tmp_path / "compiled", "CPU", EAGER)
        compiling = Compiling(store, Turns(), "cpu", told.append, process)
        compiling.look_at(model)
        with compiling.drawing(model, WANTED, compiled=False):
            draw(model, WANTED, lambda step: None)
        compiling._compile("small")
        (answer,) = told
        return answer

    script = ON_A_FULL_DISK.replace("PID", repr(str(os.getpid())))
    on_a_full_disk = compiled(CompilerProcess((sys.executable, "-c", script)))
    assert not on_a_full_disk.ready
    assert "File too large" in on_a_full_disk.problem
    assert [path for path in (tmp_path / "compiled").rglob("*") if path.is_file()] == []
    assert compiled(CompilerProcess()) == protocol.Compiled("small", ready=True)


COMPILER = """
import os, signal, subprocess, sys
from workshop_gpu.worker.lifeline import die_with_parent
die_with_parent(int(sys.argv[1]))
helper = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print('{"name": "%d", "kind": "%d", "form": "", "backend": "eager"}' % (os.getpid(), helper.pid))
sys.stdout.flush()
signal.pause()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a promise of Linux's alone")
def test_a_compiler_that_hangs_is_ended_and_so_is_what_it_started() -> None:
    from workshop_gpu.worker.compiler_process import CompilerProcess

    command = (sys.executable, "-c", COMPILER, str(os.getpid()))
    ends: list[int] = []

    def arrived(twin: Any) -> None:
        ends.extend(os.pidfd_open(int(pid)) for pid in (twin.name, twin.kind))

    said = CompilerProcess(command, limit_s=10).run(task(), arrived)
    assert said == "the compiler got no further within 10 s, and was ended"
    assert len(ends) == 2
    for end in ends:
        assert select.select([end], [], [], ANSWER_S)[0], "it outlives its limit"
        os.close(end)


WORKER = """
import os, signal, sys
from tests.worker.test_worker_compiler_process import COMPILER, task
from workshop_gpu.worker.compiler_process import CompilerProcess
process = CompilerProcess((sys.executable, "-c", COMPILER, str(os.getpid())))
def arrived(twin):
    with process.halted():
        print(twin.name, twin.kind, flush=True)
        signal.pause()
process.run(task(), arrived)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a promise of Linux's alone")
@pytest.mark.parametrize("hangup", ["SIG_DFL", "SIG_IGN"], ids=["as usual", "under nohup"])
def test_when_a_worker_is_killed_its_halted_compiler_ends_and_so_does_what_that_started(
    hangup: str,
) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", f"import signal; signal.signal(1, signal.{hangup})" + WORKER],
        stdout=subprocess.PIPE,
        start_new_session=True,  # as the host starts it
    )
    assert worker.stdout is not None
    told = worker.stdout.readline().split()
    assert len(told) == 2
    ends = [os.pidfd_open(int(pid)) for pid in told]
    assert select.select(ends, [], [], 0)[0] == []
    worker.kill()
    worker.wait()
    worker.stdout.close()
    for end in ends:
        outlives = not select.select([end], [], [], ANSWER_S)[0]
        if outlives:
            signal.pidfd_send_signal(end, signal.SIGKILL)
        os.close(end)
        assert not outlives
