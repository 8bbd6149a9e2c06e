"""GPUs that the instructor cleared stay so over a restart of the server."""

import asyncio
import logging
from pathlib import Path

import pytest

from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Conductor
from workshop_gpu.host.clearing import Clearing
from workshop_gpu.host.records import Participant
from workshop_gpu.host.reserving import Reservations

GB = 1_000_000_000
TEACHER = Participant("user:teacher", "Teacher")


class Life:
    """One life of the server, as far as this concerns it."""

    def __init__(self, folder: Path, *devices: str) -> None:
        devices = devices or ("gpu0", "gpu1")
        self.conductor = Conductor(devices=devices)
        self.reservations = Reservations(
            self.tell, lambda name: self.conductor.reservation(name, 0.0), devices
        )
        self.clearing = Clearing(self.reservations, folder, logging.getLogger("test"))
        asyncio.run(self.clearing.restore())
        for device in devices:
            self.tell(events.DeviceReady(device, 80 * GB))

    def tell(self, event: events.Event) -> None:
        for effect in self.conductor.handle(event, 0.0):
            if isinstance(effect, effects.AnnounceReservation) and effect.ended:
                self.reservations.ended(effect.reservation.reservation)

    def clear(self, device: str) -> effects.ReservationView:
        return asyncio.run(self.clearing.clear(TEACHER, device))

    def taken(self) -> list[tuple[str, str | None, str]]:
        """Who has which device, and whether it was granted."""
        views = self.conductor.snapshot(0.0).reservations
        return [(view.participant, view.device, view.state.value) for view in views]


def test_a_cleared_gpu_is_cleared_again_for_the_same_instructor(tmp_path: Path) -> None:
    Life(tmp_path).clear("gpu0")
    assert Life(tmp_path).taken() == [(TEACHER.id, "gpu0", "granted")]
    assert Life(tmp_path).taken() == [(TEACHER.id, "gpu0", "granted")]


def test_it_can_be_opened_in_the_next_life_and_stays_open(tmp_path: Path) -> None:
    Life(tmp_path).clear("gpu0")
    asyncio.run(Life(tmp_path).clearing.open("gpu0"))
    assert Life(tmp_path).taken() == []


def test_one_that_was_given_back_as_a_reservation_stays_open(tmp_path: Path) -> None:
    life = Life(tmp_path)
    view = life.clear("gpu1")
    life.reservations.drop(view.reservation)
    asyncio.run(life.clearing.keep())
    assert Life(tmp_path).taken() == []


def test_a_gpu_that_is_gone_is_named_in_the_log_and_the_others_are_cleared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(tmp_path)
    life.clear("gpu0")
    life.clear("gpu1")
    assert Life(tmp_path, "gpu1").taken() == [(TEACHER.id, "gpu1", "granted")]
    assert "gpu0 is not cleared again" in caplog.text


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"gpu0": 7}', b"\xff\xfe"])
def test_a_broken_file_is_set_aside_and_clears_nothing(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cleared.json").write_bytes(content)
    assert Life(tmp_path).taken() == []
    assert (tmp_path / "cleared.json.broken").read_bytes() == content
    assert "No GPU is cleared" in caplog.text


def test_a_disk_that_fails_is_told_and_the_gpu_is_cleared_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    life = Life(tmp_path / "file")
    life.clear("gpu0")
    assert life.taken() == [(TEACHER.id, "gpu0", "granted")]
    assert "was not written" in caplog.text
