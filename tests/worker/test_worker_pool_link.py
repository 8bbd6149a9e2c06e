"""The weight pool's messages between the host's end and a worker's, over a real socket."""

import asyncio
import socket
import subprocess
import sys

from workshop_gpu.host.channel import Channel
from workshop_gpu.host.host_memory import HostMemory
from workshop_gpu.host.weight_pool import WeightPool
from workshop_gpu.worker import protocol

WORKER = """
import os, resource, socket, sys
from workshop_gpu.worker.link import Link
from workshop_gpu.worker.pool_link import PoolLink

link = Link(socket.socket(fileno=int(sys.argv[1])))
link.start()
pool = PoolLink(link)
"""
FILLS = """
grant = pool.want("file:a", 5)
print(grant.state.value, grant.size_bytes, os.get_inheritable(grant.descriptors[0]))
os.pwrite(grant.descriptors[0], b"bytes", 0)
print(pool.filled("file:a", "sha256:a").state.value)
grant = pool.want("file:b", 5)
os.pwrite(grant.descriptors[0], b"bytes", 0)
print(pool.filled("file:b", "sha256:a").state.value)
pool.drop("file:a")
print(pool.want("file:c", 10**9).reason)
"""
READS = """
grant = pool.want("sha256:a", 5)
print(grant.state.value, os.pread(grant.descriptors[0], 10, 0))
"""
HAS_TOO_MANY_FILES_OPEN = """
highest = os.dup(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (highest, highest))
print(pool.want("sha256:a", 5).reason)
"""


class Peer:
    """A worker process to the pool, and what it printed."""

    def __init__(self, script):
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", WORKER + script, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdout=subprocess.PIPE,
                text=True,
            )

    def send(self, order, *descriptors):
        self.channel.send(protocol.frame(order), *descriptors)

    async def live(self, pool):
        try:
            while True:
                length = int.from_bytes(await self.channel.receive(4), "big")
                pool.handle(self, protocol.read_report(await self.channel.receive(length)))
        except EOFError:
            pool.release(self)
            self.channel.close()
            return self.process.communicate()[0].splitlines()


def lives(*scripts):
    """What each of these workers printed, one living after the other, and what is left."""

    async def run():
        pool = WeightPool(10**6, read_memory=lambda: HostMemory(10**12, 10**12))
        printed = [await Peer(script).live(pool) for script in scripts]
        state = pool.state()
        pool.close()
        return printed, state

    return asyncio.run(run())


def test_memory_passes_from_one_worker_to_the_next():
    (first, second), state = lives(FILLS, READS)
    assert first[:3] == ["empty 5 False", "complete", "complete"]
    assert first[3].startswith("a part of 1.0 GB is larger than the weight pool")
    assert second == ["complete b'bytes'"]
    assert [(part.name, part.workers) for part in state.parts] == [("sha256:a", 0)]


def test_a_worker_with_too_many_files_open_goes_on_without_the_pool():
    (_, second), _ = lives(FILLS, HAS_TOO_MANY_FILES_OPEN)
    assert second == [
        "the memory's descriptors did not arrive: this process has too many files open"
    ]
