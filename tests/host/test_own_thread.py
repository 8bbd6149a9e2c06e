"""Threads that nobody waits for."""

import asyncio
import subprocess
import sys
import threading

import pytest

from workshop_gpu.host.own_thread import in_own_thread

BEGINS = """
import asyncio, threading
from types import SimpleNamespace
from workshop_gpu.host.downloads import Downloads
from workshop_gpu.host.foreign_watch import ForeignWatch

began = threading.Event()

def stuck(*_):
    began.set()
    threading.Event().wait()

async def main(task):
    task = asyncio.ensure_future(task)
    await asyncio.to_thread(began.wait)
    task.cancel()
    await asyncio.wait({task})
    assert task.done()

"""
STUCK = {
    "a download": "Downloads(lambda: None, stuck).fetch(SimpleNamespace(id='shapes'))",
    "the driver": "ForeignWatch('cuda:0', stuck, lambda *_: None, lambda text: None).run()",
}


@pytest.mark.parametrize("what", STUCK)
def test_what_never_returns_holds_up_neither_the_servers_end_nor_pythons(what):
    script = f"{BEGINS}asyncio.run(main({STUCK[what]}))"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_what_the_call_returns_or_raises_is_the_callers():
    async def scenario():
        assert await in_own_thread("t", lambda: 7, stop=lambda: None) == 7
        with pytest.raises(KeyError, match="no such card"):
            await in_own_thread("t", lambda: {}["no such card"], stop=lambda: None)

    asyncio.run(scenario())


def test_a_call_that_ends_when_it_is_asked_to_is_waited_for():
    stop, ended = threading.Event(), threading.Event()

    def call():
        stop.wait(60)
        ended.set()
        raise OSError("heard by nobody")

    async def scenario():
        task = asyncio.create_task(in_own_thread("t", call, stop=stop.set, grace_s=60.0))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert ended.is_set()

    asyncio.run(scenario())
