"""A notebook's next kernel has what those before it left."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from tests.host.fake_catalogue import FakeCatalogue
from tests.host.journals import PARAMS
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.errors import QueueFull
from workshop_gpu.conductor.states import JobState, Priority
from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.records import Participant
from workshop_gpu.host.runtime import Runtime, RuntimeSettings

NOTEBOOK = "/faces.ipynb"
LOW, HIGH = Priority.LOW, Priority.HIGH


def a_kernel(name, notebook=NOTEBOOK):
    return Participant(name, "faces", name, notebook)


@asynccontextmanager
async def a_life(folder):
    """A server on whose GPU nothing is drawn, for want of a worker."""
    device = DeviceConfig("cpu:0", "cpu", "", 2_000_000_000)
    runtime = Runtime(RuntimeSettings(devices=(device,), data_folder=folder), FakeCatalogue())
    await runtime._restore()
    runtime._tell(events.CatalogueChanged((events.ModelFacts("shapes"),)))
    runtime._tell(await runtime.keeper.restore())
    yield runtime
    await runtime.keeper.journal.close()


async def rule(runtime, limits=None, priorities=None, **notebooks):
    """The instructor's rules for these kernels, whose notebooks these are."""
    rules = {"limits": limits or {}, "priorities": priorities or {}}
    await runtime.change_policy(replace(runtime.policy, **rules, notebooks=notebooks))


def test_what_waits_is_the_new_kernels_with_its_class_its_limit_and_its_announcements(tmp_path):
    old, new = a_kernel("old"), a_kernel("new")

    async def first_life():
        async with a_life(tmp_path) as runtime:
            await rule(runtime, {"old": 1}, {"old": LOW}, old=NOTEBOOK)
            return (await runtime.submit(old, "shapes", PARAMS)).id

    async def second_life():
        async with a_life(tmp_path) as runtime:
            other = await runtime.submit(Participant("bob", "Bob"), "shapes", PARAMS)
            position = runtime.events.position
            assert runtime.heirs.inherit(new, {"new"})
            await runtime.keep_policy()
            news = [entry for _, entry in runtime.events.after(position)]
            with pytest.raises(QueueFull):
                await runtime.submit(new, "shapes", PARAMS)
            return [view.job for view in runtime.snapshot().jobs], news, other.id

    async def third_life():
        async with a_life(tmp_path) as runtime:
            return runtime.snapshot().jobs, runtime.policy

    job = asyncio.run(first_life())
    order, news, other = asyncio.run(second_life())
    assert order == [other, job]
    views = [each.job for each in news if isinstance(each, effects.AnnounceJob)]
    assert [(view.job, view.participant, view.kernel) for view in views] == [(job, "new", "new")]
    (_, view), policy = asyncio.run(third_life())
    assert (view.job, view.participant, view.kernel) == (job, "new", "new")
    assert (view.state, view.priority) == (JobState.QUEUED, LOW)
    assert (policy.limits, policy.notebooks) == ({"new": 1}, {"new": NOTEBOOK})


@pytest.mark.parametrize(
    ("heir", "running"),
    [
        (a_kernel("new", "/hearts.ipynb"), {"new"}),
        (a_kernel("new", ""), {"new"}),
        (a_kernel("new"), {"old", "new"}),
    ],
    ids=["of another notebook", "of no notebook", "while the other runs"],
)
def test_a_kernel_that_is_no_heir_gets_nothing(tmp_path, heir, running):
    async def scenario():
        async with a_life(tmp_path) as runtime:
            await rule(runtime, {"old": 1, "nameless": 2}, old=NOTEBOOK, nameless="")
            for owner in (a_kernel("old"), a_kernel("nameless", "")):
                await runtime.submit(owner, "shapes", PARAMS)
            before = runtime.policy
            assert not runtime.heirs.inherit(heir, running)
            assert runtime.policy == before
            return runtime.snapshot().jobs

    assert [view.participant for view in asyncio.run(scenario())] == ["old", "nameless"]


def test_of_several_kernels_the_later_rule_counts_and_the_new_ones_own_before_all(tmp_path):
    async def scenario(**own):
        async with a_life(tmp_path / str(len(own))) as runtime:
            limits, priorities = {"first": 1} | own, {"first": LOW, "second": HIGH}
            await rule(runtime, limits, priorities, first=NOTEBOOK, second=NOTEBOOK)
            await runtime.submit(a_kernel("first"), "shapes", PARAMS)
            assert runtime.heirs.inherit(a_kernel("new"), {"new"})
            [view] = runtime.snapshot().jobs
            return runtime.policy, view

    for own, limit in (({}, 1), ({"new": 2}, 2)):
        policy, view = asyncio.run(scenario(**own))
        assert (policy.limits, policy.priorities) == ({"new": limit}, {"new": HIGH})
        assert policy.notebooks == {"new": NOTEBOOK}
        assert (view.participant, view.priority) == ("new", HIGH)


def test_a_kernel_that_left_no_job_leaves_its_rules(tmp_path):
    async def scenario():
        async with a_life(tmp_path) as runtime:
            await rule(runtime, None, {"old": LOW}, old=NOTEBOOK)
            assert runtime.heirs.inherit(a_kernel("new"), {"new"})
            assert not runtime.heirs.inherit(a_kernel("new"), {"new"})
            return runtime.policy.priorities

    assert asyncio.run(scenario()) == {"new": LOW}
