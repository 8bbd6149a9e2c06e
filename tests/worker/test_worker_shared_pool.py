"""Real workers on the server's real weight pool."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.worker_host import ASSETS, START_S, Host, float32_bytes, params
from workshop_gpu.host.weight_pool import WeightPool
from workshop_gpu.worker import protocol

OPTIONS = ("--device", "cpu", "--total-bytes", "1000000000", "--threads", "1")


OUTLINE = ASSETS / "loras" / "shapes-outline" / "pytorch_lora_weights.safetensors"


class PartsOnly:
    """Another worker, of which only the pool knows."""

    def __init__(self) -> None:
        self.orders: list[protocol.ToWorker] = []

    def send(self, order: protocol.ToWorker, *descriptors: int) -> None:
        self.orders.append(order)


@pytest.fixture(scope="module")
def pool() -> Iterator[WeightPool]:
    pool = WeightPool(10**9)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def two(pool: WeightPool) -> Iterator[tuple[Host, Host]]:
    """Two workers on one pool."""
    hosts = Host(*OPTIONS, pool=pool), Host(*OPTIONS, pool=pool)
    for host in hosts:
        host.expect(protocol.Ready, START_S)
    yield hosts
    for host in hosts:
        host.close()


def draw(host: Host, **loras: Path) -> bytes:
    wanted = params(steps=2, loras=dict.fromkeys(loras, 1.0))
    files = {name: str(file) for name, file in loras.items()}
    run = protocol.Run("job", "shapes", wanted, lora_files=files)
    return host.ask(run, protocol.Done).images[0]


def loras(pool: WeightPool) -> list[tuple[str, int]]:
    """Those in it, each with how many workers use it."""
    return [(part.lora, part.workers) for part in pool.state().parts if part.lora]


def until_loras(host: Host, expected: list[tuple[str, int]]) -> None:
    """The worker tells of them after its answers."""
    while loras(host.pool) != expected:
        host.receive_any()


def workers(pool: WeightPool) -> set[int]:
    """How many workers use each part."""
    return {part.workers for part in pool.state().parts}


def answers(host: Host) -> set[protocol.PartState]:
    """What the worker was given in answer to PartWanted and PartFilled."""
    given = [order for order in host.user.answers if isinstance(order, protocol.PartGranted)]
    host.user.answers.clear()
    return {order.state for order in given}


def test_weights_are_read_once_shared_by_workers_and_outlive_them(
    pool: WeightPool, two: tuple[Host, Host]
) -> None:
    first, second = two
    loaded = first.load("shapes")
    assert loaded.no_pool == ""
    assert answers(first) == {protocol.PartState.EMPTY, protocol.PartState.COMPLETE}
    assert pool.state().used_bytes == sum(part.device_bytes for part in loaded.parts)
    picture = draw(first)

    before = pool.state()
    assert second.load("shapes").parts == loaded.parts
    assert answers(second) == {protocol.PartState.COMPLETE}
    assert pool.state().used_bytes == before.used_bytes
    assert workers(pool) == {2}
    assert draw(second) == picture

    first.process.kill()
    pool.release(first.user)
    assert workers(pool) == {1}
    assert draw(second) == picture

    second.ask(protocol.Evict("shapes"), protocol.Evicted)
    assert workers(pool) == {1}, "the model stays open, to come back at once"
    second.send(protocol.FreePool(1))
    second.ask(protocol.Evict("nothing"), protocol.Evicted)
    assert workers(pool) == {0}
    assert second.load("shapes").parts == loaded.parts
    assert answers(second) == {protocol.PartState.COMPLETE}
    assert draw(second) == picture


def test_a_pool_without_room_is_said_and_changes_no_picture(two: tuple[Host, Host]) -> None:
    tight = Host(*OPTIONS, pool=WeightPool(1_000_000))
    try:
        tight.expect(protocol.Ready, START_S)
        assert "weight pool" in tight.load("shapes").no_pool
        two[1].load("shapes")
        assert draw(tight) == draw(two[1])
        assert tight.pool.state().used_bytes <= 1_000_000
    finally:
        tight.close()
        tight.pool.close()


def test_loras_are_a_part_of_the_pool_and_make_room_in_it() -> None:
    """They come again for the next job that wants one; with their model they are forgotten."""
    host, other = Host(*OPTIONS, pool=WeightPool(10**9)), PartsOnly()
    try:
        host.expect(protocol.Ready, START_S)
        host.load("shapes")
        weights_bytes = host.pool.state().used_bytes
        picture = draw(host, outline=OUTLINE)
        assert picture != draw(host)
        until_loras(host, [("outline", 0)])
        lora_bytes = host.pool.state().used_bytes - weights_bytes
        assert 0.5 < lora_bytes / OUTLINE.stat().st_size < 2
        host.pool.handle(other, protocol.PartWanted("large", 10**9 - weights_bytes))
        assert isinstance(other.orders.pop(), protocol.PartGranted)
        assert loras(host.pool) == []
        assert host.pool.state().used_bytes == 10**9
        assert draw(host, outline=OUTLINE) == picture, "as long as it draws it is there"
        until_loras(host, [])
        assert host.pool.state().used_bytes == 10**9, "and not longer, for there is no room"
        host.pool.handle(other, protocol.PartDropped("large"))
        assert draw(host, outline=OUTLINE) == picture
        until_loras(host, [("outline", 0)])
        host.ask(protocol.Evict("shapes"), protocol.Evicted)
        assert loras(host.pool) == [("outline", 0)], "it comes back with its model"
        host.send(protocol.FreePool(1))
        until_loras(host, [])
    finally:
        host.close()
        host.pool.close()


def test_equal_components_of_two_folders_are_shared_by_the_next_worker_too(
    pool: WeightPool, two: tuple[Host, Host], tmp_path: Path
) -> None:
    """It reads neither folder, so it learns from the pool that they hold the same."""
    folder = tmp_path / "copy"
    shutil.copytree(ASSETS / "shapes", folder)
    two[1].load("shapes")
    shared_bytes = two[1].load("copy", folder).memory.used_bytes
    assert shared_bytes < 1.1 * float32_bytes("shapes")
    fresh = Host(*OPTIONS, pool=pool)
    try:
        fresh.expect(protocol.Ready, START_S)
        fresh.load("shapes")
        assert fresh.load("copy", folder).memory.used_bytes == shared_bytes
        assert answers(fresh) == {protocol.PartState.COMPLETE}
    finally:
        fresh.close()
