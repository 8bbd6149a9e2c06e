"""Memory that the system is asked for ahead of those who write to it."""

import os
import threading
from collections.abc import Iterator

import pytest

pytestmark = pytest.mark.usefixtures("quiet_libraries")

ASKED = 4096
AHEAD = 3 * ASKED
SIZE = 64 * ASKED


@pytest.fixture
def descriptor(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    from workshop_gpu.worker import shared_memory

    monkeypatch.setattr(shared_memory, "_ASKED_BYTES", ASKED)
    monkeypatch.setattr(shared_memory, "_AHEAD_BYTES", AHEAD)
    number = os.memfd_create("test")
    yield number
    os.close(number)


def asking() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pool memory"]


def test_who_rests_has_only_a_little_memory_given_ahead(descriptor: int) -> None:
    """To clear the rest takes all cores, which whoever it rests for needs."""
    from workshop_gpu.worker.shared_memory import MemoryAhead

    memory = MemoryAhead(descriptor, SIZE)
    memory.wait_for(10 * ASKED)
    memory.stop()
    for thread in asking():
        thread.join()
    assert 10 * ASKED <= os.fstat(descriptor).st_size <= 10 * ASKED + AHEAD


def test_who_writes_to_the_end_has_all_of_the_memory_given(descriptor: int) -> None:
    from workshop_gpu.worker.shared_memory import MemoryAhead

    memory = MemoryAhead(descriptor, SIZE)
    for stop in range(0, SIZE + 1, ASKED):
        memory.wait_for(stop)
    for thread in asking():
        thread.join()
    assert os.fstat(descriptor).st_size == SIZE
    assert os.fstat(descriptor).st_blocks * 512 == SIZE


def test_a_block_that_is_filled_by_a_second_trip_asks_for_its_memory_once(descriptor: int) -> None:
    """The first one was given up."""
    from workshop_gpu.worker.host_copy import SharedCopy

    os.ftruncate(descriptor, SIZE)
    copy = SharedCopy([os.dup(descriptor)], SIZE, private=False)
    copy.begin()
    copy.wait_for_memory(0, ASKED)
    copy.begin()
    assert len(asking()) == 1
    copy.wait_for_memory(0, SIZE)
    copy.close()
    for thread in asking():
        thread.join()
    assert os.fstat(descriptor).st_blocks * 512 == SIZE
