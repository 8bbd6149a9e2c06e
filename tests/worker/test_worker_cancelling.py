"""Cancelling through a real worker: the job that was meant, between two steps, and no other."""

from collections.abc import Iterator

import pytest

from tests.worker.worker_host import Host, params, source_of
from workshop_gpu.worker import protocol

FOREVER = params(steps=900, images=8)


@pytest.fixture(scope="module")
def loaded(worker: Host) -> Iterator[Host]:
    worker.load("shapes")
    yield worker
    for model in ("shapes", "shapes-dit"):
        worker.ask(protocol.Evict(model), protocol.Evicted)


def plain_job(host: Host, job: str) -> list[bytes]:
    return host.ask(protocol.Run(job, "shapes", params()), protocol.Done).images


def test_a_running_job_stops_between_two_steps_and_the_next_draws_as_ever(loaded: Host) -> None:
    expected = plain_job(loaded, "before")
    loaded.send(protocol.Run("long", "shapes", FOREVER))
    loaded.expect(protocol.Started)
    loaded.expect(protocol.Progress)
    loaded.send(protocol.Cancel("long"))
    stopped, before = loaded.collect(protocol.Stopped)
    assert stopped.job == "long"
    assert len(before) < 100
    assert plain_job(loaded, "after") == expected


def test_a_job_cancelled_in_the_inbox_never_starts(loaded: Host) -> None:
    loaded.send(
        protocol.Run("first", "shapes", FOREVER),
        protocol.Run("second", "shapes", params()),
        protocol.Cancel("second"),
        protocol.Cancel("first"),
    )
    # The first may be cancelled before or after it started; the second never starts.
    first, _ = loaded.collect(protocol.Stopped)
    second = loaded.expect(protocol.Stopped)
    assert (first.job, second.job) == ("first", "second")


def test_a_cancel_for_one_job_leaves_the_running_one_alone(loaded: Host) -> None:
    loaded.send(protocol.Run("mine", "shapes", params(steps=10)), protocol.Cancel("yours"))
    assert loaded.until(protocol.Done).job == "mine"


def test_a_stale_cancel_does_not_hit_a_later_job_of_that_name(loaded: Host) -> None:
    plain_job(loaded, "twice")
    loaded.send(protocol.Cancel("twice"), protocol.Cancel("twice"))
    plain_job(loaded, "twice")


def test_two_cancels_stop_a_job_once(loaded: Host) -> None:
    loaded.send(protocol.Run("once", "shapes", FOREVER))
    loaded.expect(protocol.Started)
    loaded.send(protocol.Cancel("once"), protocol.Cancel("once"))
    assert loaded.until(protocol.Stopped).job == "once"
    plain_job(loaded, "next")


def test_a_cancel_behind_a_load_reaches_its_job(loaded: Host) -> None:
    loaded.send(
        protocol.Load(source_of("shapes-dit")),
        protocol.Run("behind", "shapes-dit", params()),
        protocol.Cancel("behind"),
    )
    loaded.until(protocol.Loaded)
    assert loaded.expect(protocol.Stopped).job == "behind"


def test_orders_are_carried_out_in_the_order_of_arrival(loaded: Host) -> None:
    loaded.send(
        protocol.Run("one", "shapes", params(steps=1)),
        protocol.Evict("shapes"),
        protocol.Run("two", "shapes", params(steps=1)),
        protocol.Load(source_of("shapes")),
        protocol.Run("three", "shapes", params(steps=1)),
    )
    assert loaded.until(protocol.Done).job == "one"
    loaded.expect(protocol.Evicted)
    assert loaded.until(protocol.Failed).job == "two"
    loaded.until(protocol.Loaded)
    assert loaded.until(protocol.Done).job == "three"
