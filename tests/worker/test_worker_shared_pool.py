"""Real workers on the server's real weight pool."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.worker_host import ASSETS, START_S, Host, float32_bytes, params
from workshop_gpu.host.weight_pool import WeightPool
from workshop_gpu.worker import protocol

OPTIONS = ("--device", "cpu", "--total-bytes", "1000000000", "--threads", "1")


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


def draw(host: Host) -> bytes:
    run = protocol.Run("job", "shapes", params(steps=2))
    return host.ask(run, protocol.Done).images[0]


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
