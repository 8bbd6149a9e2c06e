"""Pictures become files beside the drawing."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from workshop_gpu.worker import protocol

MEMORY = protocol.Memory(0, 0)


class _Link:
    """Keeps what is told, and says when."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.more = threading.Condition()

    def send(self, report: Any) -> None:
        with self.more:
            self.told.append(report)
            self.more.notify_all()

    def wait_for(self, count: int) -> list[Any]:
        with self.more:
            assert self.more.wait_for(lambda: len(self.told) >= count, timeout=60)
            return list(self.told)


@pytest.fixture
def bench() -> tuple[Any, _Link]:
    from workshop_gpu.worker.writing import Writer

    link = _Link()
    return Writer(link), link  # type: ignore[arg-type]


def drawn(job: str) -> protocol.Drawn:
    return protocol.Drawn(job, 1.0, 0, MEMORY)


def after(event: threading.Event) -> Callable[[], bytes]:
    def make() -> bytes:
        assert event.wait(60)
        return b"late"

    return make


def test_who_draws_does_not_wait_and_jobs_are_told_in_their_order(bench: Any) -> None:
    writer, link = bench
    may_end = threading.Event()
    writer.tell("m", drawn("first"), [writer.begin(after(may_end)), writer.begin(lambda: b"two")])
    writer.tell("m", drawn("second"), [second := writer.begin(lambda: b"three")])
    assert second.result(60) == b"three", "several files are made beside each other"
    assert link.told == []
    may_end.set()
    assert link.wait_for(2) == [
        protocol.Done("first", [b"late", b"two"], drawn("first")),
        protocol.Done("second", [b"three"], drawn("second")),
    ]


def test_a_file_that_cannot_be_made_fails_its_job_alone(bench: Any) -> None:
    writer, link = bench

    def broken() -> bytes:
        raise OSError("no memory for it")

    writer.tell("m", drawn("first"), [writer.begin(lambda: b"one"), writer.begin(broken)])
    writer.tell("m", drawn("second"), [writer.begin(lambda: b"two")])
    failed, done = link.wait_for(2)
    assert isinstance(failed, protocol.Failed)
    assert (failed.job, failed.error.kind) == ("first", "generation_failed")
    assert "no memory for it" in failed.error.message
    assert done == protocol.Done("second", [b"two"], drawn("second"))
