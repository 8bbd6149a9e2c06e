"""The worker as a process: how it starts, and every way it ends."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.worker.worker_host import ANSWER_S, START_S, Host, params
from workshop_gpu.worker import protocol, protocol_spare
from workshop_gpu.worker.link import EXIT_BROKEN_STREAM, EXIT_GONE


@pytest.fixture
def fresh() -> Iterator[Host]:
    """A worker that is still importing: every end below must also work then."""
    host = Host("--device", "cpu", "--total-bytes", "1000000000", "--threads", "1")
    yield host
    host.process.kill()
    host.close()


def test_a_worker_says_who_it_is_then_reads_its_memory_and_ends_with_its_socket() -> None:
    host = Host("--device", "cpu", "--total-bytes", "1000000000", "--threads", "1")
    ready = host.expect(protocol.Ready, START_S)
    assert ready.pid == host.process.pid
    assert ready.total_bytes == 1_000_000_000
    assert ready.memory == protocol.Memory(used_bytes=0, ours_bytes=0)
    assert set(ready.versions) >= {"torch", "diffusers"}
    reading = host.receive_any()
    assert reading == protocol.MemoryReading(ready.memory)
    host.process.send_signal(signal.SIGINT)  # Ctrl-C in the server's terminal
    host.load("shapes")
    host.send(protocol.Run("running", "shapes", params(steps=900, images=8)))
    host.expect(protocol.Started)
    host.connection.close()
    assert host.exit_code() == EXIT_GONE
    assert host.complaints() == ""
    host.close()


def test_shutdown_ends_the_process(fresh: Host) -> None:
    fresh.send(protocol.Shutdown())
    assert fresh.exit_code() == EXIT_GONE
    assert fresh.complaints() == ""


def test_a_socket_closed_during_the_start_ends_the_process(fresh: Host) -> None:
    fresh.connection.close()
    assert fresh.exit_code() == EXIT_GONE


WAITS = re.compile(r'line \d+ in wait\n[^\n]*__main__.py", line \d+ in main\n')
"""In the stacks of a worker's threads: it has opened its device, and waits."""


def test_a_worker_that_took_over_has_the_device_open_and_waits_until_it_is_its_own() -> None:
    host = Host("--stand-by", "--threads", "1")
    host.expect(protocol_spare.StandingBy, START_S)
    host.send(protocol_spare.TakeOver("cpu", total_bytes=10**9))
    while not WAITS.search(host.complaints()):
        host.process.send_signal(signal.SIGUSR1)  # it writes down what it does
        assert not select.select([host.connection], [], [], 0.1)[0], "it is ready too early"
    host.send(protocol_spare.Begin())
    assert host.expect(protocol.Ready).total_bytes == 10**9
    host.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x00\x00\x05hello",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        protocol.frame(protocol.Started("a report, not an order")),
        b"\x00\x00\x00\x2a" + bytes([0x82, 0xA4]),
    ],
    ids=["no msgpack", "empty", "4 GB", "wrong direction", "cut off"],
)
def test_a_malformed_message_ends_the_process_with_a_reason(fresh: Host, sent: bytes) -> None:
    fresh.connection.sendall(sent)
    fresh.connection.shutdown(socket.SHUT_WR)
    assert fresh.exit_code() == EXIT_BROKEN_STREAM
    lines = fresh.complaints().splitlines()
    assert len(lines) == 1
    assert "malformed message" in lines[0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a promise of Linux's alone")
def test_a_worker_dies_with_its_parent_even_while_the_socket_lives() -> None:
    ours, theirs = socket.socketpair()
    fd = theirs.fileno()
    worker = f"[sys.executable, '-m', 'workshop_gpu.worker', '--device', 'cpu', \
'--total-bytes', '1000', '--fd', '{fd}']"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time; "
            f"print(subprocess.Popen({worker}, pass_fds=[{fd}]).pid, flush=True); time.sleep(600)",
        ],
        pass_fds=[fd],
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    worker_end = os.pidfd_open(int(parent.stdout.readline()))
    theirs.close()
    ours.settimeout(START_S)
    assert ours.recv(4)  # ready: the kernel has been asked by now
    parent.kill()
    parent.wait()
    ended, _, _ = select.select([worker_end], [], [], ANSWER_S)
    assert ended, "the worker outlives its parent"
    os.close(worker_end)
    parent.stdout.close()
    ours.close()


def test_a_process_whose_parent_ended_before_it_asked_ends_itself() -> None:
    script = (
        "import os, sys; from workshop_gpu.worker.lifeline import die_with_parent; "
        "die_with_parent(os.getppid()); print('has its parent', flush=True); "
        "die_with_parent(os.getpid()); print('has none, and lives on')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=ANSWER_S, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, b"has its parent\n")


@pytest.mark.parametrize(
    "options", [["--device", "tpu"], ["--device", "cpu"], []], ids=["unknown", "no size", "none"]
)
def test_wrong_options_are_refused_at_once(options: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "workshop_gpu.worker", "--fd", "0", *options],
        capture_output=True,
        timeout=ANSWER_S,
        check=False,
    )
    assert ended.returncode == 2
    assert b"--device" in ended.stderr


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="this machine has a card")
def test_a_missing_card_is_said_in_one_line() -> None:
    host = Host("--device", "cuda")
    try:
        assert host.exit_code() == 4
        assert "CUDA" in host.complaints()
    finally:
        host.close()


def test_a_device_that_its_last_worker_leaves_no_room_on_is_opened_once_that_is_gone() -> None:
    from workshop_gpu.worker.devices import CpuDevice, DeviceUnusable, open_early

    is_alone, tries = threading.Event(), []

    def opens() -> CpuDevice:
        tries.append(is_alone.is_set())
        if not is_alone.is_set():
            threading.Thread(target=is_alone.set).start()
            raise DeviceUnusable("out of memory")
        return CpuDevice(10**9)

    assert open_early(opens, is_alone).total_bytes == 10**9
    assert tries == [False, True]

    def broken() -> CpuDevice:
        raise DeviceUnusable("the card does not answer")

    with pytest.raises(DeviceUnusable):
        open_early(broken, is_alone)
