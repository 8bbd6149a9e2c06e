import mmap
import os
import random

import pytest

from tests.host.test_channel import open_memory
from workshop_gpu.host import memfd
from workshop_gpu.host.host_memory import HostMemory
from workshop_gpu.host.weight_pool import WeightPool
from workshop_gpu.worker.protocol import (
    FreePool,
    Loaded,
    Memory,
    PartBytes,
    PartDropped,
    PartFilled,
    PartGranted,
    PartRefused,
    PartState,
    PartWanted,
)
from workshop_gpu.worker.protocol_loras import ForgetLoras, KeptLora, LorasKept

GB = 10**9
EMPTY, COMPLETE = PartState.EMPTY, PartState.COMPLETE


class Worker:
    """Keeps what the pool sends it, with descriptors of its own."""

    def __init__(self, pool):
        self.pool = pool
        self.answers = []
        self.descriptor = -1

    def send(self, order, *descriptors):
        self.answers.append(order)
        if descriptors:
            self.descriptor = os.dup(descriptors[0])

    def want(self, key, size_bytes=1000):
        self.pool.handle(self, PartWanted(key, size_bytes))
        return self.last

    def fill(self, key, digest="", content=b"w" * 1000):
        self.want(key, len(content))
        self.write(content)
        self.pool.handle(self, PartFilled(key, digest or f"digest of {key}"))
        return self.last

    def write(self, content):
        os.pwrite(self.descriptor, content, 0)

    def read(self):
        return os.pread(self.descriptor, 10_000, 0)

    def drop(self, key):
        self.pool.handle(self, PartDropped(key))

    def keep(self, *loras, in_use=(), size_bytes=1000):
        kept = (KeptLora(lora, lora, "m", size_bytes, lora in in_use) for lora in loras)
        self.pool.handle(self, LorasKept(tuple(kept)))

    @property
    def last(self):
        return self.answers[-1] if self.answers else None


@pytest.fixture
def make_pool():
    pools = []

    def make(budget_bytes=10_000, *, available_bytes=100 * GB, **options):
        memory = HostMemory(100 * GB, available_bytes)
        pools.append(WeightPool(budget_bytes, read_memory=lambda: memory, **options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture
def pool(make_pool):
    return make_pool()


def loaded(model, *parts, no_pool=""):
    bytes_of_parts = tuple(PartBytes(part, 1000) for part in parts)
    return Loaded(model, 0, 0.0, Memory(0, 0), bytes_of_parts, no_pool)


def names(pool):
    return [part.name for part in pool.state().parts]


def test_what_one_worker_has_filled_another_reads(pool):
    first, second = Worker(pool), Worker(pool)
    assert first.want("file:a", 5) == PartGranted("file:a", EMPTY, 5)
    first.write(b"bytes")
    pool.handle(first, PartFilled("file:a", "sha256:a"))
    assert first.last == PartGranted("file:a", COMPLETE, 5, "sha256:a")
    assert second.want("file:a", 5) == PartGranted("file:a", COMPLETE, 5, "sha256:a")
    assert second.read() == b"bytes"


def test_a_worker_s_end_costs_nothing(pool):
    first, second = Worker(pool), Worker(pool)
    first.fill("a")
    pool.release(first)
    assert pool.state().used_bytes == 1000
    assert second.want("a").state is COMPLETE


def test_what_was_not_filled_is_never_used(pool):
    first, second = Worker(pool), Worker(pool)
    first.want("a")
    first.write(b"half")
    pool.release(first)
    assert pool.state().used_bytes == 0
    assert second.want("a").state is EMPTY
    assert second.read() == bytes(1000)


def test_who_wants_what_another_fills_waits_for_it(pool):
    first, second = Worker(pool), Worker(pool)
    first.want("a")
    assert second.want("a") is None
    pool.handle(first, PartFilled("a", "digest"))
    assert second.last == PartGranted("a", COMPLETE, 1000, "digest")


@pytest.mark.parametrize("end", [lambda pool, w: w.drop("a"), lambda pool, w: pool.release(w)])
def test_a_fill_that_fails_passes_to_one_of_those_who_wait(pool, end):
    first, second, third = Worker(pool), Worker(pool), Worker(pool)
    first.want("a")
    second.want("a")
    third.want("a")
    end(pool, first)
    assert second.last == PartGranted("a", EMPTY, 1000)
    assert third.last is None
    pool.handle(second, PartFilled("a", "digest"))
    assert third.last == PartGranted("a", COMPLETE, 1000, "digest")


def test_two_who_fill_what_the_other_wants_do_not_wait_for_each_other(pool):
    first, second = Worker(pool), Worker(pool)
    first.want("a")
    second.want("b")
    assert first.want("b").state is EMPTY
    assert second.want("a").state is EMPTY
    pool.handle(first, PartFilled("a", "digest a"))
    pool.handle(second, PartFilled("a", "digest a"))
    assert second.last == PartGranted("a", COMPLETE, 1000, "digest a")
    assert pool.state().used_bytes == 3000  # a once; b is still being filled by both


def test_who_waited_and_has_ended_gets_nothing(pool):
    first, second = Worker(pool), Worker(pool)
    first.want("a")
    second.want("a")
    pool.release(second)
    pool.handle(first, PartFilled("a", "digest"))
    assert second.answers == []
    assert pool.state().parts[0].workers == 1


def test_the_same_content_under_two_keys_is_kept_once(pool):
    worker = Worker(pool)
    worker.fill("file:a", "sha256:same", b"content")
    assert worker.fill("file:b", "sha256:same", b"content") == PartGranted(
        "file:b", COMPLETE, 7, "sha256:same"
    )
    assert pool.state().used_bytes == 7
    worker.drop("file:a")
    worker.drop("file:b")
    other = Worker(pool)
    assert other.want("file:b", 7).state is COMPLETE
    assert other.want("sha256:same", 7).state is COMPLETE


def test_other_content_under_an_old_key_takes_its_place(make_pool):
    pool = make_pool()
    first, second = Worker(pool), Worker(pool)
    first.want("a")
    second.want("b")
    second.want("a")  # a copy of its own, because it fills b
    pool.handle(first, PartFilled("a", "digest 1"))
    pool.handle(second, PartFilled("a", "digest 2"))
    assert names(pool) == ["digest 1", "digest 2"]
    first.drop("a")
    assert Worker(pool).want("digest 1").state is COMPLETE


def test_room_is_made_by_what_was_not_used_for_longest(make_pool):
    pool = make_pool(3000)
    worker = Worker(pool)
    for key in ("a", "b", "c"):
        worker.fill(key)
    for key in ("b", "c", "a"):  # a was in use until just now
        worker.drop(key)
    worker.fill("d")
    assert names(pool) == ["digest of c", "digest of a", "digest of d"]


def test_what_a_worker_uses_never_leaves(make_pool):
    pool = make_pool(2000)
    worker, other = Worker(pool), Worker(pool)
    worker.fill("a")
    worker.fill("b")
    assert other.want("c").reason.startswith("the weight pool is full")
    assert names(pool) == ["digest of a", "digest of b"]
    assert worker.last == FreePool(1000)
    worker.drop("a")
    assert other.want("c").state is EMPTY


def test_nothing_leaves_in_vain_where_there_is_no_room_anyway(make_pool):
    pool = make_pool(2000)
    worker = Worker(pool)
    worker.fill("used", content=b"w" * 1500)
    worker.fill("unused", content=b"w" * 500)
    worker.drop("unused")
    assert worker.want("b").reason.startswith("the weight pool is full")
    assert names(pool) == ["digest of used", "digest of unused"]


def test_memory_that_cannot_be_passed_on_is_refused_and_counts_for_nobody(pool):
    class Unlucky(Worker):
        def send(self, order, *descriptors):
            if descriptors:
                raise OSError(24, "Too many open files")
            super().send(order)

    Worker(pool).fill("a")
    worker = Unlucky(pool)
    reason = "the memory could not be passed on: Too many open files"
    assert worker.want("a") == PartRefused("a", reason)
    assert worker.want("b") == PartRefused("b", reason)
    assert pool.state().used_bytes == 1000
    assert pool.state().parts[0].workers == 1


def test_a_part_larger_than_the_pool_is_refused_and_nothing_leaves(pool):
    worker = Worker(pool)
    worker.fill("a")
    worker.drop("a")
    assert "larger than the weight pool" in worker.want("b", 10_001).reason
    assert names(pool) == ["digest of a"]


def test_the_machine_s_memory_is_not_filled_to_the_brim(make_pool):
    pool = make_pool(50 * GB, available_bytes=8 * GB)
    worker = Worker(pool)
    assert worker.want("a", 3 * GB).state is EMPTY
    refusal = worker.want("b", 3 * GB)  # the first has not been written yet, but it will be
    assert "this machine's memory is full: 3.0 GB are needed" in refusal.reason


def test_when_memory_runs_short_the_unused_leaves_and_workers_are_asked_once(make_pool):
    memory = [HostMemory(100 * GB, 50 * GB)]
    pool = WeightPool(10_000, read_memory=lambda: memory[0])
    worker = Worker(pool)
    worker.fill("a")
    worker.fill("b")
    worker.drop("a")
    pool.relieve()
    assert len(names(pool)) == 2
    memory[0] = HostMemory(100 * GB, 4 * GB - 1500)
    pool.relieve()
    pool.relieve()
    assert names(pool) == ["digest of b"]
    assert worker.answers.count(FreePool(500)) == 1
    pool.close()


def test_a_complete_part_can_be_changed_by_nobody(pool):
    worker = Worker(pool)
    worker.want("a")
    filling = worker.descriptor
    for size_bytes in (10, 2000):
        with pytest.raises(PermissionError):
            os.ftruncate(filling, size_bytes)
    pool.handle(worker, PartFilled("a", "digest"))
    for descriptor in (filling, worker.descriptor):
        writable = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
        for change in (lambda fd: os.pwrite(fd, b"other", 0), lambda fd: os.ftruncate(fd, 10)):
            with pytest.raises(PermissionError):
                change(writable)
        os.close(writable)


def test_a_complete_part_is_mapped_for_reading_and_privately_for_writing(pool):
    worker = Worker(pool)
    worker.fill("a", content=b"bytes")
    shared = mmap.mmap(worker.descriptor, 5, mmap.MAP_SHARED, mmap.PROT_READ)
    private = mmap.mmap(worker.descriptor, 5, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    private[:] = b"other"
    assert shared[:] == b"bytes"


def test_a_mapping_to_write_does_not_stand_in_the_way_of_sealing():
    descriptor = memfd.create(5)
    mapping = mmap.mmap(descriptor, 5)
    reader = memfd.sealed(descriptor)
    writable = os.open(f"/proc/self/fd/{reader}", os.O_RDWR)
    with pytest.raises(PermissionError):
        os.pwrite(writable, b"other", 0)
    mapping.close()
    os.close(writable)
    os.close(reader)


def test_no_descriptor_is_left_open(make_pool):
    before = open_memory()
    pool = make_pool(3000)
    answers = []
    choose = random.Random(7)
    workers = [Worker(pool) for _ in range(3)]
    for worker in workers:
        worker.send = lambda order, *_: answers.append(order)
    for _ in range(500):
        worker, key = choose.choice(workers), choose.choice("abcd")
        match choose.randrange(4):
            case 0:
                worker.pool.handle(worker, PartWanted(key, 1000))
            case 1:
                worker.pool.handle(worker, PartFilled(key, choose.choice("xyz")))
            case 2:
                worker.drop(key)
            case 3:
                pool.release(worker)
        assert pool.state().used_bytes <= 3000
    pool.close()
    assert open_memory() == before


def test_a_pool_that_is_switched_off_says_so(make_pool):
    pool = make_pool(0)
    reason = "it is switched off (WorkshopGPU.pool_gb is 0)"
    assert Worker(pool).want("a") == PartRefused("a", reason)
    assert pool.state().problem == reason
    assert pool.problem == "", "it was meant so"


def test_a_system_without_shared_memory_has_no_pool(make_pool, monkeypatch):
    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", refuse)
    pool = make_pool()
    assert "Function not implemented" in pool.state().problem
    assert "Function not implemented" in Worker(pool).want("a").reason


def test_shared_memory_that_is_refused_later_is_told(pool, monkeypatch):
    def refuse(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", refuse)
    reason = "the system refused shared memory: Too many open files"
    assert Worker(pool).want("a") == PartRefused("a", reason)


def test_it_is_known_which_models_use_a_part(pool):
    first, second = Worker(pool), Worker(pool)
    first.fill("file:t5", "sha256:t5")
    second.want("file:t5")
    pool.loaded(first, loaded("large", "sha256:t5", "not in the pool"))
    pool.loaded(second, loaded("turbo", "file:t5"))
    (part,) = pool.state().parts
    assert (part.name, part.models, part.workers) == ("sha256:t5", ("large", "turbo"), 2)


def test_a_worker_whose_weights_are_not_in_the_pool_is_told_as_long_as_it_is_so(pool):
    worker = Worker(pool)
    pool.loaded(worker, loaded("large", no_pool="the driver refuses"))
    assert pool.state().problem == "the driver refuses"
    assert "machine's memory: the driver refuses." in pool.problem
    pool.loaded(worker, loaded("large"))
    assert pool.state().problem == ""
    pool.loaded(worker, loaded("large", no_pool="the driver refuses"))
    pool.release(worker)
    assert pool.state().problem == ""


def test_without_a_word_half_of_what_is_available_is_the_budget(make_pool):
    assert make_pool(None, available_bytes=64 * GB).state().budget_bytes == 32 * GB


def test_loras_of_the_workers_count_in_the_budget_and_are_shown(make_pool):
    pool = make_pool(3000)
    one, other = Worker(pool), Worker(pool)
    one.fill("a")
    one.keep("lora", in_use=["lora"])
    other.keep("lora")
    state = pool.state()
    assert state.used_bytes == 3000
    assert [(part.lora, part.models, part.workers) for part in state.parts] == [
        ("", (), 1),
        ("lora", ("m",), 1),
        ("lora", ("m",), 0),
    ]
    one.keep()
    pool.release(other)
    assert pool.state().used_bytes == 1000
    assert not any(isinstance(each, ForgetLoras) for each in (*one.answers, *other.answers))


def test_loras_and_parts_leave_together_what_was_not_used_for_longest_first(make_pool):
    pool = make_pool(3000)
    keeper, worker = Worker(pool), Worker(pool)
    keeper.keep("old", in_use=["old"])
    worker.fill("part")
    worker.drop("part")
    keeper.keep("old")  # used later than the part was
    worker.fill("first")
    worker.fill("second")
    assert "digest of part" not in names(pool)
    assert not any(isinstance(each, ForgetLoras) for each in keeper.answers)
    worker.fill("third", content=b"w" * 500)
    assert keeper.last == ForgetLoras(("old",))
    assert pool.state().used_bytes == 2500


def test_a_lora_that_a_job_draws_with_stays_and_goes_after_it_where_it_is_too_much(make_pool):
    pool = make_pool(2000)
    keeper, worker = Worker(pool), Worker(pool)
    worker.fill("a")
    worker.fill("b")
    keeper.keep("lora", in_use=["lora"])
    assert keeper.last is None
    assert pool.state().used_bytes == 3000
    assert isinstance(worker.want("c"), PartRefused)
    keeper.keep("lora")
    assert keeper.last == ForgetLoras(("lora",))
    assert pool.state().used_bytes == 2000


def test_loras_leave_when_the_machine_s_memory_runs_short(make_pool):
    memory = [HostMemory(100 * GB, 50 * GB)]
    pool = WeightPool(10_000, read_memory=lambda: memory[-1])
    keeper = Worker(pool)
    keeper.keep("lora")
    pool.relieve()
    assert keeper.last is None
    memory.append(HostMemory(100 * GB, GB))
    pool.relieve()
    assert keeper.last == ForgetLoras(("lora",))
    pool.close()


def test_without_a_pool_no_lora_is_kept_after_its_job(make_pool):
    pool = make_pool(0)
    keeper = Worker(pool)
    keeper.keep("lora", in_use=["lora"])
    assert keeper.last is None
    keeper.keep("lora")
    assert keeper.last == ForgetLoras(("lora",))
