import asyncio
import contextlib
import os
import socket

import pytest

from workshop_gpu.host import memfd
from workshop_gpu.host.channel import Channel
from workshop_gpu.host.worker_process import WorkerProcess


def with_channel(work):
    """Runs `work(channel, peer)`, the peer being a plain blocking socket."""

    async def run():
        ours, peer = socket.socketpair()
        channel = Channel(ours)
        try:
            return await asyncio.wait_for(work(channel, peer), 240)
        finally:
            channel.close()
            peer.close()

    return asyncio.run(run())


def open_memory():
    """How many descriptors of shared memory this process has; others come and go with threads that
    earlier tests have left."""
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{descriptor}").startswith("/memfd:")
    return found


def read_all(peer, size_bytes):
    """What comes, and the descriptors among it with the number of bytes before each."""
    data, found = b"", []
    while len(data) < size_bytes:
        chunk, descriptors, _, _ = socket.recv_fds(peer, 1 << 20, 4)
        found += [(len(data), descriptor) for descriptor in descriptors]
        data += chunk
    return data, found


def test_a_descriptor_comes_with_its_message_and_no_other():
    async def work(channel, peer):
        memory = memfd.create(5)
        os.pwrite(memory, b"bytes", 0)
        channel.send(b"before")
        channel.send(b"with it", memory)
        os.close(memory)
        channel.send(b"after")
        return read_all(peer, 18)

    data, [(_, descriptor)] = with_channel(work)
    assert data == b"beforewith itafter"
    assert os.pread(descriptor, 10, 0) == b"bytes"
    os.close(descriptor)


def test_what_does_not_fit_into_the_socket_follows_in_order():
    large = bytes(range(256)) * 40_000

    async def work(channel, peer):
        memory = memfd.create(5)
        channel.send(large)
        channel.send(b"with it", memory)
        channel.send(large)
        os.close(memory)
        return await asyncio.to_thread(read_all, peer, 2 * len(large) + 7)

    data, [(_, descriptor)] = with_channel(work)
    assert data == large + b"with it" + large
    os.close(descriptor)


def test_what_comes_in_pieces_is_read_whole():
    async def work(channel, peer):
        peer.sendall(b"12")
        first = asyncio.ensure_future(channel.receive(3))
        await asyncio.sleep(0)
        peer.sendall(b"3456")
        return await first, await channel.receive(3)

    assert with_channel(work) == (b"123", b"456")


def test_the_peer_s_end_shows_in_receive_and_only_there():
    async def work(channel, peer):
        peer.sendall(b"12")
        peer.close()
        channel.send(b"to nobody")
        memory = memfd.create(5)
        channel.send(b"nor this", memory)
        os.close(memory)
        with pytest.raises(EOFError):
            await channel.receive(3)

    with_channel(work)


def test_no_descriptor_stays_behind_a_full_socket_that_is_closed():
    before = open_memory()

    async def work(channel, peer):
        memory = memfd.create(5)
        channel.send(bytes(10**7))
        channel.send(b"with it", memory)
        os.close(memory)

    with_channel(work)
    assert open_memory() == before


@pytest.mark.parametrize("sent", [b"\x00\x00\x00\x05hello", b"\xff\xff\xff\xff"])
def test_a_worker_that_sends_what_is_no_message_is_ended_and_that_is_told(tmp_path, sent):
    async def run():
        ours, peer = socket.socketpair()
        process = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE)
        worker = WorkerProcess(process, Channel(ours), tmp_path / "none.log")
        peer.sendall(sent)
        report = await worker.receive()
        process.stdin.close()
        how = await worker.end()
        peer.close()
        return report, how

    report, how = asyncio.run(run())
    assert report is None
    assert "it sent what is no message" in how


def test_the_socket_to_a_worker_has_no_name_that_others_could_connect_to():
    async def work(channel, peer):
        return channel._socket.getsockname(), peer.getsockname()

    assert with_channel(work) == ("", "")
