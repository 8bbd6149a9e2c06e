"""Whose are the processes on a GPU? Without a GPU: the driver's list is made by hand."""

import asyncio
import os
import subprocess
import sys
import threading

import anyio

from workshop_gpu.conductor.events import ForeignProcess
from workshop_gpu.host.foreign import ForeignProcesses, ProcessInfo, process_info
from workshop_gpu.host.foreign_watch import ForeignWatch
from workshop_gpu.host.gpu_readings import GPUProcess

SERVER, WORKER, KERNEL, CHILD, OTHER, SPARE = 1, 2, 3, 4, 5, 6
TREE = {
    WORKER: ProcessInfo("python", frozenset({WORKER, SERVER})),
    KERNEL: ProcessInfo("python", frozenset({KERNEL, SERVER})),
    CHILD: ProcessInfo("python", frozenset({CHILD, KERNEL, SERVER})),
    OTHER: ProcessInfo("blender", frozenset({OTHER})),
    SPARE: ProcessInfo("python", frozenset({SPARE, SERVER})),
}


def foreign(*processes, names=None):
    return ForeignProcesses(
        (names or {"k1": "faces"}).get,
        processes=lambda index: [GPUProcess(*each) for each in processes if each[0] == index],
        info=TREE.get,
        server_pid=SERVER,
    )


def test_a_kernel_and_its_children_go_by_the_notebooks_name_and_workers_are_ours():
    found = foreign((0, WORKER, 90), (0, KERNEL, 20), (0, CHILD, 30), (0, OTHER, 5))
    found.started("k1", KERNEL)
    assert found.read("cuda:0") == (
        ForeignProcess("faces", CHILD, "k1", 30),
        ForeignProcess("faces", KERNEL, "k1", 20),
        ForeignProcess("blender (process 5)", OTHER, None, 5),
    )


def test_the_spare_worker_is_named_while_it_has_a_card_open_and_is_ours_otherwise():
    found = foreign((0, SPARE, 5))
    found.spare_holds(SPARE)
    assert found.read("cuda:0") == (
        ForeignProcess("the spare worker", SPARE, None, 5, is_spare=True),
    )
    found.spare_holds(None)
    assert found.read("cuda:0") == ()


def test_each_card_has_its_own():
    found = foreign((0, WORKER, 90), (1, WORKER, 90), (1, OTHER, 5))
    assert found.read("cuda:0") == ()
    assert found.read("cuda:1") == (ForeignProcess("blender (process 5)", OTHER, None, 5),)


def test_a_kernel_that_ended_is_a_stranger_and_one_that_starts_again_is_known():
    found = foreign((0, WORKER, 90), (0, OTHER, 5))
    found.started("k1", KERNEL)
    found.started("k1", OTHER)
    assert [process.kernel for process in found.read("cuda:0")] == ["k1"]
    found.ended("k1")
    assert [process.kernel for process in found.read("cuda:0")] == [None]


def test_a_kernel_without_a_name_is_called_by_its_id():
    found = foreign((0, WORKER, 90), (0, KERNEL, 5))
    found.started("0123456789", KERNEL)
    assert found.read("cuda:0")[0].name == "kernel 01234567"


def test_where_the_driver_counts_processes_in_another_way_nobody_is_named():
    found = foreign((0, KERNEL, 20), (0, 4711, 30))
    found.started("k1", KERNEL)
    assert found.read("cuda:0") is None


def test_a_process_that_ended_meanwhile_is_named_by_its_number():
    found = foreign((0, WORKER, 90), (0, 4711, 5))
    assert found.read("cuda:0")[0].name == "process (process 4711)"


def test_a_real_process_tells_where_it_comes_from():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        info = process_info(child.pid)
        assert info is not None
        assert {child.pid, os.getpid(), os.getsid(0)} <= info.origins
    finally:
        child.communicate(b"\n")
    assert process_info(child.pid) is None


def test_a_card_that_does_not_answer_is_told_once_and_holds_up_neither_the_others_nor_the_end():
    answers = threading.Event()
    other = (ForeignProcess("blender (process 5)", OTHER, None, 5),)
    known, told = {"cuda:0": other}, []

    def read(device):
        if device == "cuda:0":
            answers.wait(120)
        return other

    async def scenario():
        silent, read_often = asyncio.Event(), asyncio.Event()
        readings = []

        def on_read(device, found):
            known[device] = found
            readings.append(device)
            if silent.is_set() and readings.count("cuda:1") > 2:
                read_often.set()

        def tell(text):
            told.append(text)
            silent.set()

        watches = [
            ForeignWatch(device, read, on_read, tell, patience_s=0.0 if stuck else 100, rest_s=0.0)
            for device, stuck in (("cuda:0", True), ("cuda:1", False))
        ]
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for watch in watches:
                    group.start_soon(watch.run)
                await silent.wait()
                await read_often.wait()
                assert known == {"cuda:0": None, "cuda:1": other}
                assert [bool(watch.problem) for watch in watches] == [True, False]
                group.cancel_scope.cancel()
            assert not answers.is_set(), "the end waited for the driver"
        assert len(told) == 1
        assert "cuda:0" in told[0]

    try:
        asyncio.run(scenario())
    finally:
        answers.set()


def test_a_driver_that_answers_again_is_told_and_listened_to():
    answers, told, found = threading.Event(), [], []

    async def scenario():
        over = asyncio.Event()

        def tell(text):
            told.append(text)
            (over if answers.is_set() else answers).set()

        def read(device):
            answers.wait(120)
            return ()

        watch = ForeignWatch(
            "cuda:0", read, lambda *each: found.append(each), tell, patience_s=0.01, rest_s=100
        )
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(watch.run)
                await over.wait()
                group.cancel_scope.cancel()
        assert watch.problem == ""

    asyncio.run(scenario())
    assert ["does not answer" in text for text in told] == [True, False]
    assert found == [("cuda:0", None), ("cuda:0", ())]
