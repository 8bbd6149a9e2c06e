"""Which waiting jobs are drawn together, and for whom they are not."""

import msgspec
import pytest

from tests.conductor.staging import GB, Stage, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Settings
from workshop_gpu.conductor.states import Priority


def alike(made: Stage, *names: str) -> list[str]:
    """Each of these asks for a picture of "a" that may be drawn with the others'."""
    jobs = []
    for name in names:
        asked = msgspec.structs.replace(made.job_submitted("a", name), group="alike")
        made.tell(asked)
        jobs.append(asked.job)
    return jobs


def sizes(made: Stage) -> list[int]:
    """How many jobs each run drew."""
    return [1 + len(each.others) for each in made.said if isinstance(each, effects.RunJob)]


def drawing(gb: float = 80, *models: events.ModelFacts) -> Stage:
    """A stage whose GPU draws with "a"."""
    made = stage(*models, gb=gb, settings=Settings(queue_limit=30))
    made.load("a")
    alike(made, "ada")
    return made


def test_a_better_class_that_could_come_next_forbids_a_batch() -> None:
    made = drawing(40)
    made.submit("b", "dan", priority=Priority.HIGH)
    made.answer()
    assert made.order() == "evict a"


@pytest.mark.parametrize("by", ["class", "patience"])
@pytest.mark.parametrize("keeper", ["pin", "hold", "foreign", "reservation", "download"])
def test_a_job_that_cannot_come_now_forbids_no_batch(keeper: str, by: str) -> None:
    """Neither by its class nor by its patience: it would not begin any sooner."""
    far = model("b", 60, on_disk=keeper != "download")
    made = drawing(80, model("a"), far)
    if keeper == "pin":
        made.tell(events.CatalogueChanged((model("a", pinned=True), far)))
    elif keeper == "hold":
        made.hold("a", "eve", ttl_s=1000.0)
    elif keeper == "foreign":
        made.foreign(35)
    elif keeper == "reservation":
        made.tell(events.ReservationAsked("r", "eve", "kernel-eve", 35 * GB, None, 1000.0))
    priority = Priority.HIGH if by == "class" else Priority.NORMAL
    stuck = made.submit("b", "dan", priority=priority)
    for _ in range(8 if by == "patience" else 1):
        alike(made, "bob")
        made.now += 5.0
        made.answer(which="run")
    alike(made, "bob", "cleo", "eve")
    made.now += 5.0
    made.answer(which="run")
    assert sizes(made)[-1] > 1
    assert made.state(stuck) == "queued"


def test_a_larger_picture_that_has_no_room_forbids_no_batch_of_smaller_ones() -> None:
    made = drawing(40)
    large = made.job_submitted("a", "dan", 3 * 1024 * 1024, Priority.HIGH)
    made.foreign(4.5)
    made.tell(large)
    alike(made, "bob", "cleo")
    made.answer()
    assert sizes(made)[-1] == 2
    assert made.state(large.job) == "queued"
