"""What looks keep, and where they need not look, changes no decision."""

from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conductor import crowd
from tests.conductor.thorough import Twins
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
