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


def test_a_cancel_during_the_load_of_another_model_reaches_its_job(loaded: Host) -> None:
    loaded.send(
        protocol.Run("drawn", "shapes", FOREVER),
        protocol.Load(source_of("shapes-dit")),
        protocol.Cancel("drawn"),
    )
    stopped, before = loaded.collect(protocol.Stopped, protocol.Loaded)
    assert stopped.job == "drawn"
    if not any(isinstance(report, protocol.Loaded) for report in before):
        loaded.until(protocol.Loaded)
    plain_job(loaded, "as ever")


def test_a_model_loads_while_another_draws(loaded: Host) -> None:
    loaded.ask(protocol.Evict("shapes-dit"), protocol.Evicted)
    expected = plain_job(loaded, "alone")
    loaded.send(protocol.Run("long", "shapes", FOREVER))
    loaded.expect(protocol.Started)
    loaded.expect(protocol.Progress)
    loaded.ask(protocol.Load(source_of("shapes-dit")), protocol.Loaded)
    loaded.expect(protocol.Progress)
    loaded.send(protocol.Cancel("long"))
    loaded.until(protocol.Stopped)
    assert plain_job(loaded, "after") == expected


def test_a_model_leaves_only_after_the_job_that_draws_with_it(loaded: Host) -> None:
    loaded.send(protocol.Run("one", "shapes", params(steps=20)))
    loaded.expect(protocol.Started)
    loaded.send(protocol.Evict("shapes"))
    assert loaded.until(protocol.Drawn).job == "one"
    _, before = loaded.collect(protocol.Evicted, protocol.Done)
    if not before:  # its file is made beside that
        loaded.until(protocol.Done)
    failed = loaded.ask(protocol.Run("two", "shapes", params(steps=1)), protocol.Failed)
    assert failed.error.kind == "generation_failed"
    loaded.load("shapes")
    plain_job(loaded, "three")
