"""How long anyone is overtaken, and how far shares may drift apart: in random rooms."""

import hypothesis.strategies as st
import msgspec
from hypothesis import HealthCheck, Phase, given, settings

from workshop_gpu.conductor.settings import Settings
from workshop_gpu.simulation.policies import POLICIES
from workshop_gpu.simulation.room import Gpus, LoadTimes, Models, People, Room, read_room
from workshop_gpu.simulation.simulation import play

HOURS = 0.07
random_rooms = settings(
    max_examples=30,
    deadline=None,
    database=None,
    derandomize=True,
    phases=(Phase.generate,),  # every example is a whole room: too long to look for a smaller one
    suppress_health_check=list(HealthCheck),
)


@st.composite
def rooms(draw: st.DrawFn, gpus: int = 3, *, batches: bool = True) -> Room:
    """GPUs on which some of the models fit at a time, and people who think for a while, ask for
    several images at once, or always have jobs waiting. Where a batch is quicker than its jobs one
    by one, there are batches."""
    image_s = [(1.0,), (5.0,), (8.0,), *([(2.0, 1.2, 1.0), (5.0, 3.0)] if batches else [])]
    load_s = draw(st.sampled_from((0.5, 3.0, 10.0)))
    models = Models(
        names=tuple("abcd"[: draw(st.integers(2, 4))]),
        gb=draw(st.sampled_from((20.0, 34.0, 60.0))),
        image_s=draw(st.sampled_from(image_s)),
        load_s=LoadTimes(rebuild=load_s, disk=load_s, pool=load_s),
    )
    people = [
        People(
            name=f"group{number}",
            count=draw(st.integers(1, 4)),
            think_s=draw(st.sampled_from((1.0, 5.0, 30.0))),
            keep=draw(st.sampled_from((0.0, 0.7, 1.0))),
            images=draw(st.sampled_from((1, 3, 10))),
            backlog=draw(st.sampled_from((0, 0, 1, 3))),
            models=draw(st.sampled_from(((), ("a",), ("b",)))),
        )
        for number in range(draw(st.integers(1, 3)))
    ]
    machines = (Gpus(gb=80.0, count=draw(st.integers(1, gpus))),)
    return Room(title="random", gpus=machines, models=(models,), people=tuple(people), hours=HOURS)


def longest_s(models: Models) -> float:
    """Of a job, or of a batch."""
    return max(map(models.run_s, range(1, Settings().batch_limit + 1)))


@random_rooms
@given(rooms(), st.integers(0, 1000))
def test_nobody_is_overtaken_for_longer_than_patience_a_load_and_a_job(
    room: Room, seed: int
) -> None:
    (models,) = room.models
    record = play(room, POLICIES["conductor"], seed)
    bound_s = Settings().patience_s + models.load_s.pool + longest_s(models)
    assert record.overtaken_max_s <= bound_s + 0.01


def most_got_more_s(room: Room, seed: int) -> float:
    """GPU seconds that somebody got more than one who always has a job waiting, beyond the bound:
    patience, during which others may overtake; a load; and two jobs, because nothing is taken away
    from a job that runs. GPU seconds are those of one's jobs and one's part of the loads that they
    waited for."""
    (models,) = room.models
    record = play(room, POLICIES["conductor"], seed)
    got_s = {
        name: record.gpu_s.get(name, 0.0) + record.load_s.get(name, 0.0)
        for name in room.participants
    }
    least_s = min(
        (got_s[name] for name, habits in room.participants.items() if habits.backlog),
        default=max(got_s.values()),
    )
    bound_s = Settings().patience_s + models.load_s.pool + 2 * longest_s(models)
    return max(got_s.values()) - least_s - bound_s


@random_rooms
@given(rooms(gpus=1), st.integers(0, 1000))
def test_who_always_has_a_job_waiting_gets_as_many_gpu_seconds_as_anybody_up_to_a_bound(
    room: Room, seed: int
) -> None:
    assert most_got_more_s(room, seed) <= 0.01


@random_rooms
@given(rooms(batches=False), st.integers(0, 1000))
def test_so_it_is_on_several_gpus(room: Room, seed: int) -> None:
    """Without batches: where one takes all who wait for a model, nobody waits for it at that
    moment."""
    assert most_got_more_s(room, seed) <= 0.01


def people(count: int, model: str, backlog: int) -> People:
    return People(model, count, think_s=1.0, keep=1.0, models=(model,), backlog=backlog)


def three_gpus(image_s: float, load_s: float, *groups: People) -> Room:
    """Each has room for one model."""
    loads = LoadTimes(load_s, load_s, load_s)
    models = Models(("a", "b"), gb=60.0, image_s=(image_s,), load_s=loads)
    machines = (Gpus(gb=80.0, count=3),)
    return Room("three", gpus=machines, models=(models,), people=groups, hours=HOURS)


def test_who_alone_uses_a_model_gives_its_gpu_to_those_who_share_the_others() -> None:
    """Each of the many waits for a second only: no job's patience is ever over."""
    room = three_gpus(1.0, 3.0, people(1, "a", backlog=1), people(4, "b", backlog=1))
    alone_s, *others_s = play(room, POLICIES["conductor"]).gpu_s.values()
    assert max(others_s) - min(others_s) <= 2.0
    assert abs(alone_s - others_s[0]) <= Settings().patience_s + 3.0 + 2.0


def test_jobs_that_are_due_behind_the_next_one_get_another_gpu() -> None:
    """Two GPUs serve the many, one after the other; the last in their line would be overtaken on
    the third for as long as that takes."""
    room = three_gpus(8.0, 0.5, people(8, "a", backlog=3), people(2, "b", backlog=0))
    record = play(room, POLICIES["conductor"], seed=1)
    assert record.overtaken_max_s <= Settings().patience_s + 0.5 + 8.0


def test_what_prepares_a_due_jobs_model_is_kept_for_it_though_one_more_would_be_worth_it() -> None:
    """With one GPU there is none that could load it too; others began there in between."""
    room = msgspec.structs.replace(read_room("always"), hours=0.45)
    record = play(room, POLICIES["conductor-rebuild"], seed=1)
    assert record.overtaken_max_s <= Settings().patience_s + 10.0 + 5.44
