"""A worker that is killed while its compiler works: the compiler ends with it, and what was about
to be kept is there as a whole or not at all."""

import os
import select
import sys
import warnings
from pathlib import Path

import pytest

from tests.worker.bare_pipelines import same_pixels
from tests.worker.small_pipelines import save_flux
from tests.worker.test_worker_compiling import drawn, placed, started
from tests.worker.worker_host import START_S, Host
from workshop_gpu.host.worker_process import Compilation
from workshop_gpu.worker import protocol

POINT = """
import os, signal, sys

def stand_still(event, args):
    if event == "os.rename" and str(args[1]).endswith(os.environ["STANDS_BEFORE"]):
        with open(os.environ["STANDS_AT"], "w") as told:
            told.write(str(os.getpid()))
        while True:
            signal.pause()

if "workshop_gpu.worker.compiler" in sys.orig_argv and "STANDS_BEFORE" in os.environ:
    sys.addaudithook(stand_still)
"""
"""The compiler stands still where a file that it has written would get its name."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a promise of Linux's alone")
def test_a_killed_worker_takes_its_compiler_along_and_leaves_no_half_of_a_twin(
    tmp_path: Path,
) -> None:
    from workshop_gpu.worker.twins import load, twins_in

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = save_flux(tmp_path / "flux")
    kept, pipe = tmp_path / "compiled", tmp_path / "pipe"
    (tmp_path / "sitecustomize.py").write_text(POINT)
    os.mkfifo(pipe)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    expected = None
    for before, written in ((".eager", 0), (".json", 1)):
        told = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        worker = started(kept, PYTHONPATH=path, STANDS_BEFORE=before, STANDS_AT=str(pipe))
        placed(worker, folder)
        image, done = drawn(worker)
        assert not done.drawn.compiled
        assert expected is None or same_pixels(image, expected)
        expected = image

        worker.send(protocol.Compile("small"))
        compiler = os.pidfd_open(pid_from(told))
        assert select.select([compiler], [], [], 0)[0] == [], "it works on"
        killed(worker)
        assert select.select([compiler], [], [], START_S)[0], "it outlives its worker"
        os.close(compiler)
        os.close(told)
        assert len(list(kept.rglob("*.eager"))) == written
        assert list(kept.rglob("*.json")) == [], "nothing is known of what is not there as a whole"

    worker = started(kept)
    try:
        placed(worker, folder)
        image, done = drawn(worker)
        assert (done.drawn.compiled, done.drawn.to_compile) == (False, True)
        worker.send(protocol.Compile("small"))
        assert worker.expect(protocol.Compiled, START_S) == protocol.Compiled("small", ready=True)
        compiled, done = drawn(worker)
        assert done.drawn.compiled
        assert expected is not None
        assert same_pixels(image, expected)
        assert same_pixels(compiled, expected)
    finally:
        worker.close()
    (place,) = kept.glob("twins-*")
    twins = twins_in(place)
    assert len(twins) == 2, "one for each kind of blocks"
    for twin in twins:
        load(place, twin)


HANGS = """
import signal, sys

if "workshop_gpu.worker.compiler" in sys.orig_argv:
    signal.pause()
"""


def test_a_worker_whose_compiler_hangs_ends_it_tells_that_once_and_goes_on(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = save_flux(tmp_path / "flux")
    (tmp_path / "sitecustomize.py").write_text(HANGS)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    compilation = Compilation("eager", tmp_path / "compiled", limit_s=1.5)
    device = ("--device", "cpu", "--total-bytes", str(10**9), "--threads", "1")
    worker = Host(*device, *compilation.options, PYTHONPATH=path)
    try:
        assert worker.expect(protocol.Ready, START_S).compiles
        placed(worker, folder)
        expected, done = drawn(worker)
        assert done.drawn.to_compile
        worker.send(protocol.Compile("small"))
        problem = "the compiler got no further within 1.5 s, and was ended"
        said = worker.expect(protocol.Compiled, START_S)
        assert said == protocol.Compiled("small", ready=False, problem=problem)

        image, done = drawn(worker)
        assert (done.drawn.compiled, done.drawn.to_compile) == (False, False)
        assert same_pixels(image, expected)
        worker.send(protocol.Compile("small"))  # as for any other model
        assert worker.expect(protocol.Compiled) == protocol.Compiled("small", ready=False)
    finally:
        worker.close()


def pid_from(pipe: int) -> int:
    """What the compiler says as it stands still: its process id."""
    assert select.select([pipe], [], [], START_S)[0], "it never came so far"
    said = b""
    while select.select([pipe], [], [], START_S)[0] and (piece := os.read(pipe, 100)):
        said += piece
    return int(said)


def killed(worker: Host) -> None:
    worker.process.kill()
    worker.close()
