"""Whose are the processes on a GPU? Without a GPU: the driver's list is made by hand."""

import os
import subprocess
import sys

from workshop_gpu.conductor.events import ForeignProcess
from workshop_gpu.host.foreign import ForeignProcesses, ProcessInfo, process_info
from workshop_gpu.host.gpu_readings import GPUProcess

SERVER, WORKER, KERNEL, CHILD, OTHER = 1, 2, 3, 4, 5
TREE = {
    WORKER: ProcessInfo("python", frozenset({WORKER, SERVER})),
    KERNEL: ProcessInfo("python", frozenset({KERNEL, SERVER})),
    CHILD: ProcessInfo("python", frozenset({CHILD, KERNEL, SERVER})),
    OTHER: ProcessInfo("blender", frozenset({OTHER})),
}


def foreign(*processes, names=None):
    return ForeignProcesses(
        (names or {"k1": "faces"}).get,
        processes=lambda: [GPUProcess(*each) for each in processes],
        info=TREE.get,
        server_pid=SERVER,
    )


def test_a_kernel_and_its_children_go_by_the_notebooks_name_and_workers_are_ours():
    found = foreign((0, WORKER, 90), (0, KERNEL, 20), (0, CHILD, 30), (0, OTHER, 5))
    found.started("k1", KERNEL)
    assert found.read() == {
        "cuda:0": (
            ForeignProcess("faces", CHILD, "k1", 30),
            ForeignProcess("faces", KERNEL, "k1", 20),
            ForeignProcess("blender (process 5)", OTHER, None, 5),
        )
    }


def test_each_card_has_its_own():
    found = foreign((0, WORKER, 90), (1, WORKER, 90), (1, OTHER, 5))
    assert found.read() == {
        "cuda:0": (),
        "cuda:1": (ForeignProcess("blender (process 5)", OTHER, None, 5),),
    }


def test_a_kernel_that_ended_is_a_stranger_and_one_that_starts_again_is_known():
    found = foreign((0, WORKER, 90), (0, OTHER, 5))
    found.started("k1", KERNEL)
    found.started("k1", OTHER)
    assert [process.kernel for process in found.read()["cuda:0"]] == ["k1"]
    found.ended("k1")
    assert [process.kernel for process in found.read()["cuda:0"]] == [None]


def test_a_kernel_without_a_name_is_called_by_its_id():
    found = foreign((0, WORKER, 90), (0, KERNEL, 5))
    found.started("0123456789", KERNEL)
    assert found.read()["cuda:0"][0].name == "kernel 01234567"


def test_where_the_driver_counts_processes_in_another_way_nobody_is_named():
    found = foreign((0, KERNEL, 20), (0, 4711, 30))
    found.started("k1", KERNEL)
    assert found.read() == {}


def test_a_process_that_ended_meanwhile_is_named_by_its_number():
    found = foreign((0, WORKER, 90), (0, 4711, 5))
    assert found.read()["cuda:0"][0].name == "process (process 4711)"


def test_a_real_process_tells_where_it_comes_from():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        info = process_info(child.pid)
        assert info is not None
        assert {child.pid, os.getpid(), os.getsid(0)} <= info.origins
    finally:
        child.communicate(b"\n")
    assert process_info(child.pid) is None
