"""What people read of room for somebody's own code: who has it, who waits, why it is over."""

import pytest
from msgspec.structs import replace

from tests.conductor.staging import Stage, model, stage
from tests.conductor.test_reservations import asked, ends, granted, in_words, view
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Conductor, Settings
from workshop_gpu.conductor.errors import WorkshopError
from workshop_gpu.conductor.states import Priority


def read(room: Stage, name: str) -> str:
    """What who looks at one that has ended reads first."""
    with pytest.raises(WorkshopError) as caught:
        view(room, name)
    return caught.value.message.split(" Its room")[0]


@pytest.mark.parametrize(("gb", "what"), [(60, "60.0 GB"), (None, "all")])
def test_those_whom_a_waiting_reservation_keeps_out_read_who_waits_and_then_who_has_it(
    gb: float | None, what: str
) -> None:
    room = stage()
    room.load("a", "b")
    room.submit("a", "bob")
    room.tell(asked(gb))
    waiting = room.submit("a", "cleo")
    assert in_words(room.job(waiting).reason) == f"<ada> waits for {what} of gpu0."
    told: list[effects.Effect] = []
    while not granted(room):
        told = room.answer()
    (job,) = [each.job for each in told if isinstance(each, effects.AnnounceJob)]
    assert (job.job, in_words(job.reason)) == (waiting, f"<ada> has {what} of gpu0.")


def test_one_that_waits_is_of_the_class_that_its_participant_is_given_meanwhile() -> None:
    room = stage(gb=40)
    room.tell(asked(None, "zoe", "first"))
    for who in ("ada", "bob"):
        room.tell(asked(20, who, who))

    def places() -> list[int]:
        return [view(room, who).position for who in ("ada", "bob")]

    assert places() == [1, 2]
    policy = room.conductor.snapshot(room.now).policy
    room.tell(events.PolicyChanged(replace(policy, priorities={"ada": Priority.LOW})))
    assert places() == [2, 1]
    room.tell(events.PolicyChanged(policy))
    assert places() == [1, 2]


def test_its_owner_reads_why_it_ended_however_that_came() -> None:
    room = stage(devices=("gpu0", "gpu1"))
    room.tell(asked(name="r1"))
    room.tell(events.ReservationDropped("r1", events.TAKEN_AWAY))
    room.tell(asked(name="r2", ttl_s=30.0))
    room.now += 30.0
    overdue = read(room, "r2")
    room.later(1.0)
    assert read(room, "r2") == overdue
    room.tell(asked(name="r3", device="gpu1"))
    room.tell(events.DeviceGone("gpu1", "no driver"))
    assert [read(room, name) for name in ("r1", "r2", "r3")] == [
        "The reservation has ended: the instructor ended it.",
        "The reservation has ended: its time was over.",
        "The reservation has ended: the GPU is gone (no driver).",
    ]


def test_one_that_waits_reads_that_no_gpu_turned_out_to_have_so_much() -> None:
    room = Stage(Conductor(Settings(), ("gpu0",)))
    room.tell(events.CatalogueChanged((model("a"),)))
    room.tell(asked(60))
    room.ready(gb=40.0)
    assert ends(room) == ["no GPU here has so much memory"]
    assert read(room, "r") == "The reservation has ended: no GPU here has so much memory."
