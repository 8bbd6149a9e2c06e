import asyncio
import errno

import pytest
from msgspec.structs import replace

from tests.host.fake_catalogue import FakeCatalogue
from tests.host.journals import PARAMS, an_entry, an_id, read, written
from workshop_gpu.conductor import events
from workshop_gpu.conductor.errors import DiskFull, InvalidPolicy, JobEnded
from workshop_gpu.conductor.learned import Learned
from workshop_gpu.conductor.states import JobState
from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.records import Participant
from workshop_gpu.host.runtime import Runtime, RuntimeSettings
from workshop_gpu.host.stopping import ServerStops


def runtime_with(tmp_path, catalogue):
    return Runtime(RuntimeSettings(devices=(), data_folder=tmp_path), catalogue)


def test_nobody_is_answered_before_the_first_look_at_the_catalogue(tmp_path):
    loaded = []

    async def scenario():
        runtime = runtime_with(tmp_path / "new", FakeCatalogue(lambda: loaded.append(True)))
        async with runtime.running():
            await runtime.catalogue_read()
            assert loaded == [True]

    asyncio.run(scenario())
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_a_data_folder_that_cannot_be_made_does_not_end_the_rest(tmp_path):
    (tmp_path / "file").write_text("")

    async def scenario():
        async with runtime_with(tmp_path / "file" / "data", FakeCatalogue()).running() as runtime:
            await runtime.catalogue_read()

    asyncio.run(scenario())


def test_what_was_measured_is_written_when_the_server_stops_and_known_when_it_starts(tmp_path):
    measured = Learned(loads_s={"shapes": 1.5})

    async def life(learned=None):
        runtime = runtime_with(tmp_path, FakeCatalogue())
        known = runtime._conductor.learned()
        if learned is not None:
            runtime._conductor.learned = lambda: learned
        async with runtime.running():
            await runtime.catalogue_read()
        return known

    assert asyncio.run(life(measured)) == Learned()
    assert asyncio.run(life()) == measured


def test_the_rules_of_the_last_life_hold_before_anybody_is_answered(tmp_path):
    async def change():
        async with runtime_with(tmp_path, FakeCatalogue()).running() as runtime:
            await runtime.catalogue_read()
            await runtime.change_policy(replace(runtime.policy, queue_limit=7))

    async def look():
        async with runtime_with(tmp_path, FakeCatalogue()).running() as runtime:
            await runtime.catalogue_read()
            return runtime.policy.queue_limit

    asyncio.run(change())
    assert asyncio.run(look()) == 7


def test_rules_on_disk_that_make_no_sense_are_set_aside(tmp_path):
    (tmp_path / "policy.json").write_text('{"queue_limit": -7}')

    async def look():
        async with runtime_with(tmp_path, FakeCatalogue()).running() as runtime:
            await runtime.catalogue_read()
            return runtime.policy

    assert asyncio.run(look()).queue_limit == 3
    assert (tmp_path / "policy.json.broken").exists()


def test_refused_rules_are_not_written(tmp_path):
    async def scenario():
        runtime = runtime_with(tmp_path, FakeCatalogue())
        with pytest.raises(InvalidPolicy):
            await runtime.change_policy(replace(runtime.policy, patience_s=-1.0))
        assert runtime.policy.patience_s == 20.0

    asyncio.run(scenario())
    assert not (tmp_path / "policy.json").exists()


def test_on_a_full_disk_a_job_is_refused_with_that_reason_and_the_next_is_accepted(tmp_path):
    device = DeviceConfig("cpu:0", "cpu", "", 2_000_000_000)
    settings = RuntimeSettings(devices=(device,), data_folder=tmp_path)

    async def scenario():
        runtime = Runtime(settings, FakeCatalogue())
        runtime._tell(events.CatalogueChanged((events.ModelFacts("shapes"),)))
        await runtime.keeper.restore()
        journal = runtime.keeper.journal
        commit = journal._commit

        def full(batch, accounts):
            raise OSError(errno.ENOSPC, "No space left on device")

        journal._commit = full
        with pytest.raises(DiskFull):
            await runtime.submit(Participant("ann", "Ann"), "shapes", PARAMS, job=an_id(1))
        journal._commit = commit
        accepted = await runtime.submit(Participant("ann", "Ann"), "shapes", PARAMS)
        waiting = [view.job for view in runtime.snapshot().jobs]
        await journal.close()
        return accepted, waiting, runtime.jobs.get(an_id(1)).view.state

    accepted, waiting, refused = asyncio.run(scenario())
    assert (waiting, refused) == ([accepted.id], JobState.CANCELLED)
    states = {entry.id: entry.state for entry in asyncio.run(read(tmp_path / "journal.sqlite3"))}
    assert states == {an_id(1): JobState.CANCELLED, accepted.id: JobState.QUEUED}


def test_a_job_that_ended_in_an_earlier_life_cannot_be_cancelled(tmp_path):
    asyncio.run(written(tmp_path / "journal.sqlite3", an_entry(1, state=JobState.DONE)))

    async def scenario():
        async with runtime_with(tmp_path, FakeCatalogue()).running() as runtime:
            await runtime.catalogue_read()
            with pytest.raises(JobEnded):
                runtime.cancel(an_id(1))
            assert (await runtime.finished(an_id(1))).ended

    asyncio.run(scenario())


def test_a_job_whose_model_left_the_catalogue_while_the_server_was_gone_fails(tmp_path):
    asyncio.run(written(tmp_path / "journal.sqlite3", an_entry(1)))

    async def scenario():
        async with runtime_with(tmp_path, FakeCatalogue()).running() as runtime:
            await runtime.catalogue_read()
            return runtime.jobs.get(an_id(1)).view

    view = asyncio.run(scenario())
    assert (view.state, view.error.kind) == (JobState.FAILED, "model_unknown")
    [entry] = asyncio.run(read(tmp_path / "journal.sqlite3"))
    assert (entry.state, entry.error.kind) == (JobState.FAILED, "model_unknown")


def test_a_server_that_stops_takes_no_job_and_no_cancellation_that_nobody_would_note(tmp_path):
    device = DeviceConfig("cpu:0", "cpu", "", 2_000_000_000)
    ann = Participant("ann", "Ann")

    async def scenario():
        settings = RuntimeSettings(devices=(device,), data_folder=tmp_path)
        runtime = Runtime(settings, FakeCatalogue())
        runtime._tell(events.CatalogueChanged((events.ModelFacts("shapes"),)))
        await runtime.keeper.restore()
        await runtime.submit(ann, "shapes", PARAMS, job=an_id(1))
        await runtime.stop()
        # Jupyter still answers while it ends its kernels.
        with pytest.raises(ServerStops):
            await runtime.submit(ann, "shapes", PARAMS, job=an_id(2))
        with pytest.raises(ServerStops):
            runtime.cancel(an_id(1))
        return [record.id for record in runtime.jobs]

    assert asyncio.run(scenario()) == [an_id(1)]
    [entry] = asyncio.run(read(tmp_path / "journal.sqlite3"))
    assert (entry.id, entry.state) == (an_id(1), JobState.QUEUED)
