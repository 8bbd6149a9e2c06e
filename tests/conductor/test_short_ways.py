"""What looks keep, and where they need not look, changes no decision."""

from contextlib import suppress
from random import Random
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conductor import crowd
from tests.conductor.laddered import laddered, loaded
from tests.conductor.staging import Stage
from tests.conductor.thorough import Twins
from workshop_gpu.conductor import events
from workshop_gpu.conductor.errors import WorkshopError
from workshop_gpu.conductor.settings import Settings
from workshop_gpu.simulation.policies import POLICIES, Ours
from workshop_gpu.simulation.room import Room, parse_room
from workshop_gpu.simulation.simulation import simulate


class Compared(crowd.Crowd):
    """A crowd whose conductor has a twin."""


@pytest.mark.timeout(300)
def test_whatever_happens_a_thorough_conductor_decides_the_same() -> None:
    with patch.object(crowd, "Conductor", Twins):
        run_state_machine_as_test(
            seed(1)(Compared),
            settings=settings(
                max_examples=25,
                stateful_step_count=60,
                deadline=None,
                database=None,
                phases=(Phase.generate,),
                suppress_health_check=list(HealthCheck),
            ),
        )


@pytest.mark.parametrize("dice", range(4))
def test_with_models_on_a_ladder_a_thorough_conductor_decides_the_same(dice: int) -> None:
    """Three models on two small cards, and programs of others that come and go."""
    random = Random(dice)
    made = Stage(Twins(Settings(queue_limit=4), ("gpu0", "gpu1")))
    names = ("large", "middle", "small")
    made.tell(events.CatalogueChanged(tuple(map(laddered, names))))
    made.ready("gpu0", gb=random.choice((12, 16, 24)))
    made.ready("gpu1", gb=random.choice((24, 32, 48)))
    drawn = 0
    for _ in range(150):
        what = random.random()
        if what < 0.4:
            side = random.choice((512, 1024, 1536))
            name = random.choice(names)
            request = made.job_submitted(name, f"p{random.randrange(5)}", side * side)
            with suppress(WorkshopError):
                made.tell(request)
        elif what < 0.85 and made.orders:
            made.now += random.choice((0.5, 2.0, 6.0))
            drawn += work(made, random.choice(list(made.orders)))
        elif what < 0.93:
            made.foreign(random.choice((0, 3, 9)), random.choice(("gpu0", "gpu1")))
        else:
            made.later(random.choice((1.0, 10.0, 30.0)))
    assert drawn > 15


def work(made: Stage, device: str) -> int:
    """The device's worker does what it was told; says whether it drew."""
    if made.orders_of(device)[0].startswith("load"):
        loaded(made, device)
        return 0
    draws = made.orders_of(device)[0].startswith("run")
    made.answer(device)
    return int(draws)


ROOM = """
title = "Many people and models, more GPUs than are looked at with each event"
hours = 0.02

[[gpus]]
gb = 80.0
count = {gpus}

[[models]]
names = ["a", "b", "c", "d", "e", "f"]
gb = 27.6
image_s = [5.44]
load_s = {{ rebuild = 10.0, disk = 6.8, pool = 0.55 }}

[[people]]
name = "person"
count = {people}
think_s = 10.0
keep = 0.5

[[people]]
name = "grid"
think_s = 30.0
keep = 0.7
images = 40
"""


class OursWithTwin(Ours):
    """As `Ours`, and every decision is compared."""

    def __init__(self, room: Room) -> None:
        twins = Twins(Settings(patience_s=8.0), tuple(room.devices))
        self._conductor = twins
        self.handle = twins.handle


@pytest.mark.parametrize(("gpus", "people"), [(1, 20), (3, 40), (10, 70)])
def test_in_a_full_room_a_thorough_conductor_decides_the_same(gpus: int, people: int) -> None:
    room = parse_room(ROOM.format(gpus=gpus, people=people).encode())
    policy = msgspec.structs.replace(POLICIES["conductor-rebuild"], make=OursWithTwin)
    assert simulate(room, policy, seed=1).images_per_hour > 0
