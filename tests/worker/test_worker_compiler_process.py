"""The compiler's process: what becomes of the worker when it fails, and when somebody draws."""

import os
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.worker.opening import opened
from tests.worker.small_pipelines import save_flux
from tests.worker.worker_host import params
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


@pytest.mark.usefixtures("quiet_libraries")
def test_a_compiler_that_breaks_is_told_of_once_and_not_tried_again(tmp_path: Path) -> None:
    from workshop_gpu.worker.compiler_process import CompilerProcess
    from workshop_gpu.worker.compiling import Compiling
    from workshop_gpu.worker.drawing import draw
    from workshop_gpu.worker.turns import Turns
    from workshop_gpu.worker.twin_store import TwinStore

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = opened(save_flux(tmp_path / "flux"))
    told: list[protocol.Compiled] = []
    breaks = CompilerProcess((sys.executable, "-c", "raise SystemExit(3)"))
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
    assert told == [
        protocol.Compiled("small", ready=False, problem="the compiler ended with status 3")
    ]
    drawn()
    assert not compiling.wants("small")
