"""The journal by itself: what was settled is on the disk, whatever the file was before."""

import asyncio
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from tests.host.journals import LOG, a_journal, an_entry, an_id, read, written
from workshop_gpu.conductor.accounts import Accounts
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.states import JobState, Priority
from workshop_gpu.host import journal_file
from workshop_gpu.host.journal import Journal
from workshop_gpu.host.journal_file import MIGRATIONS, open_journal


@contextmanager
def full_disk(room_bytes: int) -> Iterator[None]:
    """No file may grow beyond so much: that is what a quota does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_was_put_comes_back_in_the_order_of_acceptance_as_it_was_last(tmp_path):
    path = tmp_path / "journal.sqlite3"
    error = ErrorReport("worker_lost", "It ended.", {"deaths": 2})
    jobs = [an_entry(number, priority=Priority.LOW) for number in (3, 1, 2)]
    ended = replace(
        jobs[0], state=JobState.FAILED, error=error, started_at=2.0, ended_at=3.0, device="cpu:0",
        batch=2, images=1, image_bytes=9, seconds_s=0.5, notebook="a.ipynb", placement="resident",
    )  # fmt: skip

    async def scenario():
        await written(path, *jobs)
        await written(path, ended)
        journal = a_journal(path)
        found = await journal.open()
        await journal.close()
        return found

    assert asyncio.run(scenario()) == ([ended, *jobs[1:]], Accounts(3.0, {"kernel-ada": 4.0}))
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_settled_outlives_the_end_of_the_process(tmp_path):
    async def scenario():
        journal = a_journal(tmp_path / "journal.sqlite3")
        await journal.open()
        for number in range(50):
            journal.put(an_entry(number))
        await journal.settled()
        # What a process that is killed now leaves on the disk.
        shutil.copytree(tmp_path, tmp_path / "copy")
        journal.put(an_entry(99))
        await journal.close()
        return await read(tmp_path / "copy" / "journal.sqlite3")

    assert [entry.id for entry in asyncio.run(scenario())] == [an_id(n) for n in range(50)]


def test_nobody_waits_for_what_is_not_awaited(tmp_path):
    path = tmp_path / "journal.sqlite3"
    begun, let_go = threading.Event(), threading.Event()

    async def scenario():
        journal = a_journal(path)
        await journal.open()
        commit = journal._commit

        def held_up(batch, accounts):
            begun.set()
            let_go.wait()
            commit(batch, accounts)

        journal._commit = held_up
        journal.put(an_entry(1, state=JobState.DONE), awaited=False)
        await asyncio.to_thread(begun.wait)
        await journal.settled()
        journal.put(an_entry(2))
        accepted = asyncio.ensure_future(journal.settled())
        await asyncio.sleep(0)
        waits = not accepted.done()
        let_go.set()
        await accepted
        await journal.close()
        return waits

    assert asyncio.run(scenario())
    assert [entry.id for entry in asyncio.run(read(path))] == [an_id(1), an_id(2)]


def test_a_name_that_is_no_text_keeps_nobody_else_from_the_disk(tmp_path):
    path = tmp_path / "journal.sqlite3"
    asyncio.run(written(path, an_entry(1, notebook="/caf\udce9.ipynb"), an_entry(2)))
    assert [entry.notebook for entry in asyncio.run(read(path))] == ["/caf?.ipynb", ""]


def test_a_fault_of_ours_is_told_to_those_who_wait_and_ends_nothing(tmp_path):
    path = tmp_path / "journal.sqlite3"

    async def scenario():
        journal = a_journal(path)
        await journal.open()
        commit, journal._commit = journal._commit, None
        journal.put(an_entry(1))
        await journal.settled()
        fault = journal.fault_of(an_id(1))
        journal._commit = commit
        journal.put(an_entry(2))
        await journal.close()
        return fault

    assert asyncio.run(scenario())
    assert [entry.id for entry in asyncio.run(read(path))] == [an_id(1), an_id(2)]


def test_a_forgotten_job_is_gone_also_where_it_was_not_written_yet(tmp_path):
    path = tmp_path / "journal.sqlite3"

    async def scenario():
        await written(path, an_entry(1), an_entry(2))
        journal = a_journal(path)
        await journal.open()
        journal.put(an_entry(3))
        journal.forget([an_id(1), an_id(3)])
        await journal.close()
        return await read(path)

    assert [entry.id for entry in asyncio.run(scenario())] == [an_id(2)]


@pytest.mark.parametrize("damage", ["no database", "half", "a hole", "newer", "no tables"])
def test_a_broken_journal_is_set_aside_under_a_name_and_another_begins(tmp_path, damage):
    path = tmp_path / "journal.sqlite3"
    asyncio.run(written(path, *map(an_entry, range(200))))
    content = path.read_bytes()
    if damage == "no tables":
        with sqlite3.connect(path) as connection:
            connection.execute("DROP TABLE jobs")
        connection.close()
    elif damage == "newer":
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
    else:
        path.write_bytes(
            {
                "no database": b"something else altogether" * 1000,
                "half": content[: len(content) // 2],
                "a hole": content[:4096] + bytes(8192) + content[12288:],
            }[damage]
        )

    async def scenario():
        journal = a_journal(path)
        found, _ = await journal.open()
        journal.put(an_entry(7))
        await journal.close()
        return found, journal.problem

    found, problem = asyncio.run(scenario())
    [aside] = tmp_path.glob("journal.broken-*.sqlite3")
    assert found == []
    assert aside.name in problem
    assert [entry.id for entry in asyncio.run(read(path))] == [an_id(7)]


@pytest.mark.parametrize("params", ["'{'", "CAST(X'FFFE' AS TEXT)", "'[]'", "7"])
def test_a_line_that_cannot_be_read_costs_no_other(tmp_path, caplog, params):
    path = tmp_path / "journal.sqlite3"
    asyncio.run(written(path, *map(an_entry, range(3))))
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE jobs SET params = {params} WHERE id = ?", (an_id(1),))
    connection.close()
    assert [entry.id for entry in asyncio.run(read(path))] == [an_id(0), an_id(2)]
    assert "1 of its jobs cannot be read" in caplog.text


def test_a_journal_of_the_first_schema_is_brought_up_to_date(tmp_path):
    path = tmp_path / "journal.sqlite3"
    with sqlite3.connect(path) as connection:
        for statement in MIGRATIONS[0]:
            connection.execute(statement)
        connection.execute("PRAGMA user_version = 1")
        connection.execute(
            "INSERT INTO jobs VALUES (?, 'user:ada', 'ada', NULL, 'shapes', ?, 2, 'queued', 5.0,"
            " NULL, NULL, NULL, 1, 0, 0, NULL, NULL)",
            (
                an_id(1),
                '{"prompt": "a", "seed": 1, "steps": 2, "guidance": 3.0, "width": 64,'
                ' "height": 64}',
            ),
        )
    connection.close()
    expected = an_entry(1, participant="user:ada", kernel=None, submitted_at=5.0)
    assert asyncio.run(read(path)) == [expected]
    connection, problem = open_journal(path, LOG)
    assert (connection.execute("PRAGMA user_version").fetchone()[0], problem) == (
        len(MIGRATIONS),
        "",
    )
    connection.close()


def test_a_life_that_closed_its_journal_ended_well_and_one_that_was_killed_did_not(tmp_path):
    path = tmp_path / "journal.sqlite3"

    async def ended_well():
        journal = a_journal(path)
        await journal.open()
        await journal.close()
        return journal.ended_well

    asyncio.run(written(path, an_entry(1)))
    assert asyncio.run(ended_well())
    code = (
        "import asyncio, os, pathlib, sys\n"
        "from tests.host.journals import a_journal, an_entry\n"
        "async def live():\n"
        "    journal = a_journal(pathlib.Path(sys.argv[1]))\n"
        "    await journal.open()\n"
        "    journal.put(an_entry(2))\n"
        "    await journal.settled()\n"
        "    os._exit(9)\n"
        "asyncio.run(live())\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert not asyncio.run(ended_well())
    assert asyncio.run(ended_well())
    assert len(asyncio.run(read(path))) == 2


def test_a_journal_that_another_server_uses_is_left_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_file, "_LOCK_WAIT_S", 0.0)
    path = tmp_path / "journal.sqlite3"

    async def scenario():
        first, second = a_journal(path), a_journal(path)
        await first.open()
        await second.open()
        second.put(an_entry(2))
        first.put(an_entry(1))
        await second.settled()
        await second.close()
        await first.close()
        return second.problem

    assert "used by another server" in asyncio.run(scenario())
    assert [entry.id for entry in asyncio.run(read(path))] == [an_id(1)]


def test_where_there_can_be_no_journal_the_server_works_and_says_so(tmp_path):
    (tmp_path / "file").write_text("")

    async def scenario():
        journal = a_journal(tmp_path / "file" / "journal.sqlite3")
        await journal.open()
        journal.put(an_entry(1))
        await journal.settled()
        fault = journal.fault_of(an_id(1))
        await journal.close()
        return fault, journal.problem

    fault, problem = asyncio.run(scenario())
    assert fault == ""
    assert "Jobs are lost when this server ends" in problem


def test_on_a_full_disk_nothing_is_promised_and_what_was_is_written_once_there_is_room(tmp_path):
    path = tmp_path / "journal.sqlite3"

    async def scenario():
        await written(path, an_entry(1))
        journal = a_journal(path)
        await journal.open()
        with full_disk(1000):
            journal.put(replace(an_entry(1), state=JobState.DONE))
            journal.put(an_entry(2))
            await journal.settled()
            faults = journal.fault_of(an_id(1)), journal.fault_of(an_id(2))
            journal.forget([an_id(2)])
            journal.retry()
            await journal.settled()
        assert all(faults)
        journal.retry()
        await journal.settled()
        assert journal.fault_of(an_id(1)) == ""
        await journal.close()
        return await read(path)

    [entry] = asyncio.run(scenario())
    assert (entry.id, entry.state) == (an_id(1), JobState.DONE)


def test_a_job_that_is_being_written_again_after_a_failure_is_not_taken_for_written(tmp_path):
    async def scenario():
        journal = a_journal(tmp_path / "journal.sqlite3")
        await journal.open()

        async def fault_after_the_first_attempt():
            await journal.settled()
            return journal.fault_of(an_id(1))

        with full_disk(1000):
            journal.put(an_entry(1))
            told = asyncio.create_task(fault_after_the_first_attempt())
            await asyncio.sleep(0)  # the first attempt is on its way,
            journal.put(an_entry(2))  # and this is why another follows at once
            fault = await told
            await journal.settled()
        await journal.close()
        return fault

    assert asyncio.run(scenario())


def test_what_is_put_into_a_closed_journal_is_not_taken_for_written(tmp_path):
    async def scenario():
        journal = a_journal(tmp_path / "journal.sqlite3")
        await journal.open()
        journal.put(an_entry(1))
        await journal.close()
        journal.put(an_entry(2))
        await journal.settled()
        return journal.fault_of(an_id(1)), journal.fault_of(an_id(2))

    assert asyncio.run(scenario()) == ("", "the journal is closed")
    assert [entry.id for entry in asyncio.run(read(tmp_path / "journal.sqlite3"))] == [an_id(1)]


def test_a_journal_that_breaks_while_it_is_used_is_written_anew_with_all_that_is_known(tmp_path):
    path = tmp_path / "journal.sqlite3"

    async def scenario():
        journal = a_journal(path, an_entry(1), an_entry(2), an_entry(3))
        await journal.open()
        journal.put(an_entry(1))
        await journal.settled()
        commit = journal._commit

        def broken(batch, accounts):
            journal._commit = commit
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error

        journal._commit = broken
        journal.put(an_entry(3))
        await journal.settled()
        fault = journal.fault_of(an_id(3))
        await journal.close()
        return fault, journal.problem, await read(path)

    fault, problem, entries = asyncio.run(scenario())
    assert fault == ""
    assert "malformed" in problem
    assert [entry.id for entry in entries] == [an_id(1), an_id(2), an_id(3)]
    assert len(list(tmp_path.glob("journal.broken-*.sqlite3"))) == 1


def test_a_fault_of_ours_while_the_journal_is_written_is_told_and_the_writing_goes_on(tmp_path):
    faults = [KeyError("ours")]

    def accounts():
        if faults:
            raise faults.pop()
        return Accounts()

    async def scenario():
        journal = Journal(tmp_path / "journal.sqlite3", LOG, accounts, list)
        await journal.open()
        journal.put(an_entry(1))
        await journal.settled()
        told = journal.fault_of(an_id(1))
        journal.retry()
        await journal.settled()
        await journal.close()
        return told, journal.fault_of(an_id(1)), await read(journal.path)

    told, then, entries = asyncio.run(scenario())
    assert (told, then) == ("'ours'", "")
    assert [entry.id for entry in entries] == [an_id(1)]
