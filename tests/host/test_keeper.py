"""Records, journal and pictures together: the next life of the server, a full disk, retention."""

import asyncio
import errno
import time

import msgspec
import pytest

from tests.host.journals import PARAMS, PNG, a_keeper, an_entry, an_id, crashed, read, written
from tests.host.test_input_store import a_picture
from tests.host.test_records import view
from workshop_gpu.conductor import events
from workshop_gpu.conductor.errors import DiskFull
from workshop_gpu.conductor.events import JobFailed, JobFinished
from workshop_gpu.conductor.states import JobState, Priority
from workshop_gpu.host.image_store import ImageStore
from workshop_gpu.host.journal_records import entry_of, record_of, request_of
from workshop_gpu.host.records import JobRecord, Participant
from workshop_gpu.host.retention import Kept, Limits, expired
from workshop_gpu.worker import protocol

DAY_S = 86400.0


def a_record(number: int) -> JobRecord:
    return JobRecord(an_id(number), Participant("ann", "Ann"), "shapes", PARAMS, time.time())


def done(number: int, *images: bytes) -> protocol.Done:
    drawn = protocol.Drawn(an_id(number), 0.5, 0, protocol.Memory(0, 0))
    return protocol.Done(an_id(number), list(images or (PNG,)), drawn)


def test_jobs_that_had_not_ended_come_back_as_requests_and_the_others_as_they_were(tmp_path):
    ended = an_entry(1, state=JobState.DONE, ended_at=5.0, images=1, image_bytes=len(PNG))
    ran, waits = an_entry(2, state=JobState.RUNNING, started_at=4.0), an_entry(3)
    ImageStore(tmp_path / "images").save(ended.id, [PNG])

    async def scenario():
        await written(tmp_path / "journal.sqlite3", ended, ran, waits)
        keeper = a_keeper(tmp_path)
        restored = await keeper.restore()
        await keeper.journal.close()
        return keeper, restored

    keeper, restored = asyncio.run(scenario())
    assert [(job.request.job, job.ran) for job in restored.jobs] == [
        (an_id(2), True),
        (an_id(3), False),
    ]
    assert restored.accounts.used_s == {"kernel-ada": 4.0}
    assert restored.jobs[0].waited_s > 1e6
    record = keeper.records.get(an_id(1))
    assert (record.ended, record.saved_images, record.ended_at) == (True, 1, 5.0)
    assert keeper.records.get(an_id(2)).started_at is None
    assert keeper.image_bytes == len(PNG)


def test_a_job_that_comes_back_needs_room_for_its_loras_again(tmp_path):
    worn = msgspec.structs.replace(an_entry(1).params, loras={"ink": 1.0})
    plain, ended = an_entry(2), an_entry(3, state=JobState.DONE, ended_at=5.0, params=worn)
    sizes = {"ink": 70}

    async def scenario():
        await written(tmp_path / "journal.sqlite3", an_entry(1, params=worn), plain, ended)
        keeper = a_keeper(tmp_path)
        restored = await keeper.restore(lambda loras: sum(sizes[name] for name in loras))
        await keeper.journal.close()
        return restored

    restored = asyncio.run(scenario())
    assert [job.request.beside_bytes for job in restored.jobs] == [70, 0]


def lives(tmp_path, *, crashes: int) -> list[tuple[events.RestoredJob, ...]]:
    """What each life finds, where the one before it ended without warning while job 1 ran."""
    path = tmp_path / "journal.sqlite3"

    async def life():
        keeper = a_keeper(tmp_path)
        restored = await keeper.restore()
        (record,) = keeper.records
        if not record.ended:
            keeper.update(view(record.id, JobState.RUNNING, started_s=5.0))
        await keeper.journal.close()
        return restored.jobs

    ran = an_entry(1, state=JobState.RUNNING, started_at=4.0)
    asyncio.run(written(path, ran))
    found = []
    for _ in range(crashes):
        crashed(path)
        found.append(asyncio.run(life()))
    return found


def test_a_job_that_ran_when_the_server_died_is_tried_once_more_and_then_failed_and_named(
    tmp_path,
):
    first, second = lives(tmp_path, crashes=2)
    assert [(job.deaths, job.ran) for job in first] == [(1, True)]
    assert second == ()
    (entry,) = asyncio.run(read(tmp_path / "journal.sqlite3"))
    assert entry.state is JobState.FAILED
    assert entry.error is not None
    assert entry.error.kind == "server_lost"
    assert "ended the server twice" in entry.error.message
    assert entry.ended_at is not None


def test_a_server_that_ended_in_good_order_blames_no_job(tmp_path):
    path = tmp_path / "journal.sqlite3"

    async def life():
        keeper = a_keeper(tmp_path)
        restored = await keeper.restore()
        keeper.update(view(an_id(1), JobState.RUNNING, started_s=5.0))
        await keeper.journal.close()
        return [(job.deaths, job.ran) for job in restored.jobs]

    asyncio.run(written(path, an_entry(1, state=JobState.RUNNING, started_at=4.0)))
    assert [asyncio.run(life()) for _ in range(3)] == [[(0, True)]] * 3


def test_a_job_that_only_waited_when_the_server_died_is_not_blamed(tmp_path):
    path = tmp_path / "journal.sqlite3"

    async def life():
        keeper = a_keeper(tmp_path)
        restored = await keeper.restore()
        await keeper.journal.close()
        return [(job.deaths, job.ran) for job in restored.jobs]

    asyncio.run(written(path, an_entry(1, state=JobState.RUNNING, started_at=4.0)))
    found = []
    for _ in range(3):
        crashed(path)
        found.append(asyncio.run(life()))
    assert found == [[(1, True)]] * 3


def test_a_request_comes_back_as_it_was_made(tmp_path):
    measured = msgspec.structs.replace(PARAMS, profile=True)
    record = JobRecord(
        an_id(1), Participant("k", "ada", "k", "/a.ipynb"), "shapes", measured, 1.0,
        priority=Priority.LOW, placement="resident",
    )  # fmt: skip
    again = record_of(entry_of(record))
    assert request_of(again) == request_of(record)
    assert again == record


def test_pictures_that_are_whole_are_not_drawn_again(tmp_path):
    store = ImageStore(tmp_path / "images")
    store.save(an_id(1), [PNG])
    store.save(an_id(2), [PNG[:-1]])
    (tmp_path / "images" / f".{an_id(3)}.part").mkdir()

    async def scenario():
        path = tmp_path / "journal.sqlite3"
        await written(path, *(an_entry(number, state=JobState.RUNNING) for number in (1, 2)))
        keeper = a_keeper(tmp_path)
        restored = await keeper.restore()
        await keeper.journal.close()
        return [job.request.job for job in restored.jobs], await read(path)

    again, (first, _) = asyncio.run(scenario())
    assert again == [an_id(2)]
    assert (first.state, first.images, first.image_bytes) == (JobState.DONE, 1, len(PNG))
    assert [folder.name for folder in (tmp_path / "images").iterdir()] == [an_id(1)]


def test_a_job_whose_pictures_somebody_deleted_has_none(tmp_path):
    async def scenario():
        await written(tmp_path / "journal.sqlite3", an_entry(1, state=JobState.DONE, images=1))
        keeper = a_keeper(tmp_path)
        await keeper.restore()
        await keeper.journal.close()
        return keeper.records.get(an_id(1)).saved_images

    assert asyncio.run(scenario()) == 0


def test_each_state_of_a_job_is_in_the_journal_with_what_came_of_it(tmp_path):
    async def scenario():
        keeper = a_keeper(tmp_path)
        await keeper.restore()
        record = a_record(1)
        keeper.records.add(record)
        await keeper.accepted(record)
        keeper.update(view(an_id(1), JobState.RUNNING, started_s=1.0))
        fact = await keeper.save(done(1))
        keeper.update(view(an_id(1), JobState.DONE, started_s=1.0))
        await keeper.journal.close()
        return fact, await read(tmp_path / "journal.sqlite3")

    fact, [entry] = asyncio.run(scenario())
    assert fact == JobFinished(an_id(1))
    assert (entry.state, entry.images, entry.image_bytes) == (JobState.DONE, 1, len(PNG))
    assert (entry.name, entry.seconds_s) == ("Ann", 0.5)
    assert entry.submitted_at <= entry.started_at <= entry.ended_at


def test_a_job_that_cannot_be_noted_is_refused_with_that_reason(tmp_path):
    async def scenario():
        keeper = a_keeper(tmp_path)
        await keeper.restore()

        def full(batch, accounts):
            raise OSError(errno.ENOSPC, "No space left on device")

        keeper.journal._commit = full
        keeper.records.add(a_record(1))
        with pytest.raises(DiskFull, match="No space left"):
            await keeper.accepted(a_record(1))
        await keeper.journal.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("problem", "kind"),
    [(errno.ENOSPC, "disk_full"), (errno.EDQUOT, "disk_full"), (errno.EIO, "images_not_saved")],
)
def test_pictures_that_cannot_be_written_fail_their_job_with_the_reason(
    tmp_path, monkeypatch, problem, kind
):
    def save(self, job, images):
        raise OSError(problem, "it did not work")

    monkeypatch.setattr(ImageStore, "save", save)
    fact = asyncio.run(a_keeper(tmp_path).save(done(1)))
    assert isinstance(fact, JobFailed)
    assert fact.error.kind == kind


def test_a_notebooks_new_kernel_owns_what_its_dead_ones_asked_for_and_nothing_else(tmp_path):
    def owned(number: int, kernel: str | None, notebook: str = "/a.ipynb") -> JobRecord:
        owner = Participant(kernel or "user:x", "a", kernel, notebook)
        return JobRecord(an_id(number), owner, "shapes", PARAMS, 1.0)

    async def scenario():
        keeper = a_keeper(tmp_path)
        await keeper.restore()
        for record in (
            owned(1, "dead"), owned(2, "alive"), owned(3, "dead", "/b.ipynb"), owned(4, None, ""),
        ):  # fmt: skip
            keeper.records.add(record)
        heir, nameless = Participant("new", "a", "new", "/a.ipynb"), Participant("n", "n", "n")
        assert keeper.inherit(heir, {"alive", "new"}) == ["dead"]
        assert keeper.inherit(nameless, {"alive", "n"}) == []
        await keeper.journal.close()
        owners = {record.id: record.participant.id for record in keeper.records}
        return keeper.records, owners, await read(tmp_path / "journal.sqlite3")

    records, owners, [entry] = asyncio.run(scenario())
    assert list(owners.values()) == ["new", "alive", "dead", "user:x"]
    assert [record.id for record in records.of("new")] == [an_id(1)]
    assert (entry.id, entry.participant, entry.notebook) == (an_id(1), "new", "/a.ipynb")


def test_the_oldest_go_first_when_there_are_too_many_or_too_much():
    kept = [Kept(name, at, 10) for name, at in (("new", 300.0), ("old", 100.0), ("mid", 200.0))]
    assert expired(kept, Limits(days=0, image_bytes=0, jobs=2), 400.0) == ["old"]
    assert expired(kept, Limits(days=0, image_bytes=15), 400.0) == ["mid", "old"]
    assert expired(kept, Limits(days=0, image_bytes=30), 400.0) == []
    assert expired(kept, Limits(days=1, image_bytes=0), 250.0 + DAY_S) == ["mid", "old"]
    assert expired(kept, Limits(days=0, image_bytes=0), 1e12) == []


def test_what_expires_goes_from_the_records_the_journal_and_the_disk_and_what_waits_stays(tmp_path):
    store = ImageStore(tmp_path / "images")
    for number in (1, 2, 7):
        store.save(an_id(number), [PNG])
    now = time.time()

    async def scenario():
        path = tmp_path / "journal.sqlite3"
        await written(
            path,
            an_entry(1, state=JobState.DONE, ended_at=now - 3 * DAY_S, images=1),
            an_entry(2, state=JobState.DONE, ended_at=now, images=1),
            an_entry(3, state=JobState.CANCELLED, ended_at=now - 3 * DAY_S),
            an_entry(4, submitted_at=0.0),
        )
        keeper = a_keeper(tmp_path, Limits(days=2.0))
        await keeper.restore()
        await keeper.look_after()
        await keeper.journal.close()
        return [record.id for record in keeper.records], await read(path)

    records, entries = asyncio.run(scenario())
    assert records == [entry.id for entry in entries] == [an_id(2), an_id(4)]
    # The pictures that no journal knows are as young as their files.
    folders = {folder.name for folder in (tmp_path / "images").iterdir()}
    assert folders == {an_id(2), an_id(7)}


def test_pictures_that_no_journal_knows_count_and_go_with_the_rest(tmp_path):
    ImageStore(tmp_path / "images").save(an_id(7), [PNG])

    async def scenario():
        keeper = a_keeper(tmp_path, Limits(image_bytes=1))
        await keeper.restore()
        before = keeper.image_bytes
        await keeper.look_after()
        await keeper.journal.close()
        return before, keeper.image_bytes

    assert asyncio.run(scenario()) == (len(PNG), 0)
    assert list((tmp_path / "images").iterdir()) == []


def test_a_picture_that_many_jobs_began_with_counts_once_and_goes_with_the_newest(tmp_path):
    async def scenario():
        keeper = a_keeper(tmp_path)
        known = await keeper._inputs.take("ann", a_picture())
        for number in range(3):
            record = a_record(number)
            record.params = msgspec.structs.replace(PARAMS, start_image=known.id)
            keeper.records.add(record)
            keeper.records.update(view(record.id, JobState.DONE))
            record.ended_at = 100.0 + number
        return known, list(keeper._kept())

    known, kept = asyncio.run(scenario())
    assert {each.job: each.image_bytes for each in kept} == {
        an_id(0): 0,
        an_id(1): 0,
        an_id(2): known.size_bytes,
    }
