"""Host memory that a driver registers, in chunks; the driver is a pretended one that may refuse."""

import mmap
import resource
from typing import Any

import pytest

CHUNK = 4096


class Driver:
    """Registers so many chunks. `there` are those that are registered, by address; `asked` are the
    ways in which it was asked to."""

    def __init__(self, most: int = 1000) -> None:
        self.most = most
        self.there: dict[int, int] = {}
        self.asked: set[tuple[int, ...]] = set()

    def register(self, address: int, size_bytes: int, ways: tuple[int, ...]) -> str:
        self.asked.add(ways)
        if len(self.there) >= self.most:
            return "the driver refused"
        assert address not in self.there
        self.there[address] = size_bytes
        return ""

    def cudaHostUnregister(self, address: int) -> int:
        del self.there[address]
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    from workshop_gpu.worker import pinning

    found = Driver()
    monkeypatch.setattr(pinning, "CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(pinning, "_register", found.register)
    monkeypatch.setattr(pinning, "_cudart", lambda: found)
    return found


def memory_of(size_bytes: int) -> Any:
    import torch

    return torch.arange(size_bytes, dtype=torch.int64).to(torch.uint8)


def never() -> bool:
    return False


def test_no_more_is_registered_than_there_is_and_all_of_it_is_given_back(driver: Driver) -> None:
    from workshop_gpu.worker.pinning import Pinning

    memory = memory_of(2 * CHUNK + 100)  # far from a power of two
    pinned = Pinning(never).at_once(memory)
    start = memory.data_ptr()
    assert driver.there == {start: CHUNK, start + CHUNK: CHUNK, start + 2 * CHUNK: 100}
    assert pinned.ready_bytes == len(memory)
    pinned.release()
    assert driver.there == {}
    assert pinned.ready_bytes == 0


def test_what_the_driver_refuses_stays_as_it_is_and_what_it_took_is_given_back(
    driver: Driver,
) -> None:
    from workshop_gpu.worker.pinning import Pinning

    driver.most = 2
    pinning = Pinning(never)
    memory = memory_of(4 * CHUNK)
    pinned = pinning.at_once(memory)
    assert pinned.ready_bytes == 2 * CHUNK
    assert pinning.problem == "the driver refused"
    assert pinned.memory.equal(memory_of(4 * CHUNK))
    pinned.release()
    assert driver.there == {}

    driver.most = 1000
    again = pinning.at_once(memory)
    assert again.ready_bytes == len(memory), "one refusal is not for ever"
    again.release()


def test_only_what_others_share_is_registered_for_reading_alone(driver: Driver) -> None:
    """Who writes to a private page that is registered so may write to another one than is read."""
    from workshop_gpu.worker.pinning import Pinned, Pinning

    Pinning(never).at_once(memory_of(CHUNK))
    assert driver.asked == {(0,)}
    driver.asked.clear()
    assert not Pinned(memory_of(CHUNK)).register_next([])
    assert driver.asked == {(8, 0)}


def test_private_pages_are_there_to_be_written_before_they_are_registered() -> None:
    from workshop_gpu.worker import pinning

    memory = mmap.mmap(-1, 2**20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = torch_tensor(memory).data_ptr()
    pinning._map_pages(address, 2**20, to_write=True)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for start in range(0, 2**20, mmap.PAGESIZE):
        memory[start] = 1
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before < 16


def torch_tensor(memory: mmap.mmap) -> Any:
    import torch

    return torch.frombuffer(memory, dtype=torch.uint8)


def test_what_was_released_is_registered_no_more_by_who_had_begun(driver: Driver) -> None:
    from workshop_gpu.worker.pinning import Pinned

    pinned, problems = Pinned(memory_of(3 * CHUNK)), []
    assert pinned.register_next(problems)
    pinned.release()
    assert not pinned.register_next(problems)
    assert (driver.there, problems) == ({}, [])


def test_memory_that_is_released_before_its_turn_is_not_held_until_then(driver: Driver) -> None:
    import threading
    import weakref

    from workshop_gpu.worker.pinning import Pinned

    gone = threading.Event()
    memory = memory_of(CHUNK)
    pinned = Pinned(memory)  # as it waits in the queue
    weakref.finalize(memory, gone.set)
    del memory
    assert not gone.is_set()
    pinned.release()
    assert gone.is_set()
    assert not pinned.register_next([])
