"""Whole rooms, in short: the same dice give the same numbers, and the policies differ as they
should."""

import json
from importlib import resources
from pathlib import Path

import msgspec
import pytest

from workshop_gpu.conductor import effects, events
from workshop_gpu.simulation.__main__ import main
from workshop_gpu.simulation.machines import Impossible
from workshop_gpu.simulation.measures import Measures
from workshop_gpu.simulation.policies import POLICIES, Policy
from workshop_gpu.simulation.room import Room, parse_room, read_room
from workshop_gpu.simulation.simulation import play, simulate

KEYS = [
    "images_per_hour",
    "wait_p50_s",
    "wait_p95_s",
    "wait_max_s",
    "jain",
    "swaps_per_hour",
    "overtaken_max_s",
]


def short(name: str, hours: float = 0.5) -> Room:
    return msgspec.structs.replace(read_room(name), hours=hours)


def run(name: str, policy: str, seed: int = 0, hours: float = 0.5) -> Measures:
    return simulate(short(name, hours), POLICIES[policy], seed)


@pytest.mark.parametrize("policy", list(POLICIES))
def test_the_same_seed_gives_the_same_numbers_and_another_one_others(policy: str) -> None:
    first = run("workshop", policy, hours=0.2)
    assert run("workshop", policy, hours=0.2) == first
    assert run("workshop", policy, seed=1, hours=0.2) != first


def test_everybody_comes_in_every_room_under_every_policy() -> None:
    for name in ("grids", "two-gpus", "always"):
        for policy in ("lru", "grouped", "conductor"):
            assert run(name, policy, hours=0.1).images_per_hour > 0


def test_the_baselines_are_as_good_as_a_sketch_of_them_said() -> None:
    assert 280 < run("workshop", "fifo", hours=4).images_per_hour < 320
    assert 450 < run("workshop", "lru", hours=4).images_per_hour < 490


def test_first_in_first_out_overtakes_nobody_and_grouping_without_a_bound_does_for_long() -> None:
    assert run("workshop", "lru", hours=2).overtaken_max_s == 0.0
    assert run("workshop", "grouped", hours=2).overtaken_max_s > 40.0


def test_fair_shares_hold_greedy_people_to_what_modest_ones_get() -> None:
    assert run("always", "conductor").jain > 0.95
    assert run("always", "lru").jain < 0.8


def test_a_policy_that_forgets_a_job_is_found_out() -> None:
    class Forgetful:
        def handle(self, event: events.Event, now: float) -> list[effects.Effect]:
            return []

        def waiting(self, now: float) -> list[str]:
            return []

    policy = Policy("", lambda room: Forgetful(), lambda times: times.pool)
    with pytest.raises(Impossible, match="waits for ever"):
        simulate(short("workshop", 0.01), policy)


def test_jobs_of_one_group_are_offered_for_batches_where_the_room_knows_their_times() -> None:
    class Curious:
        def __init__(self) -> None:
            self.groups: set[str] = set()

        def handle(self, event: events.Event, now: float) -> list[effects.Effect]:
            if isinstance(event, events.JobSubmitted):
                self.groups.add(event.group)
                raise StopIteration
            return []

        def waiting(self, now: float) -> list[str]:
            return []

    def groups_in(name: str) -> set[str]:
        curious = Curious()
        with pytest.raises(StopIteration):
            simulate(short(name), Policy("", lambda room: curious, lambda times: times.pool))
        return curious.groups

    assert groups_in("workshop") == {""}
    assert groups_in("small-images") == {"as usual"}


def test_the_command_prints_the_measures_of_each_policy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "room.toml"
    shipped = resources.files("workshop_gpu.simulation").joinpath("rooms", "workshop.toml")
    path.write_text("hours = 0.1\n" + shipped.read_text())
    assert main([str(path), "--policy", "lru", "--policy", "grouped", "--json", "--seed", "3"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed) == ["lru", "grouped"]
    assert list(printed["lru"]) == KEYS
    assert main([str(path), "--policy", "lru", "--seed", "3"]) == 0
    table = capsys.readouterr().out
    assert f"{printed['lru']['images_per_hour']:g}" in table
    assert POLICIES["lru"].title in table


def test_the_command_refuses_a_room_and_a_policy_that_do_not_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["workshop", "--policy", "luck"])
    assert "luck" in capsys.readouterr().err


def test_thousands_of_people_are_played_and_everybody_gets_a_picture() -> None:
    crowd = """
title = "Two thousand people"
hours = 0.05

[[gpus]]
gb = 80.0
count = 64

[[models]]
names = ["a", "b", "c"]
gb = 27.6
image_s = [5.44]
load_s = { rebuild = 10.0, disk = 6.8, pool = 0.55 }

[[people]]
name = "person"
count = 2000
think_s = 300.0
keep = 0.7
"""
    room = parse_room(crowd.encode())
    record = play(room, POLICIES["conductor"], seed=1)
    assert len(record.waits_s) > 500
    assert not record.waits
