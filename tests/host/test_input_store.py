"""Pictures that jobs begin with, on disk: whose they are, and how long they stay."""

import asyncio
import errno
import io
import threading
import time

import msgspec
import pytest
from PIL import Image

from tests.host.journals import PARAMS, an_id
from workshop_gpu.conductor.errors import DiskFull, InputUnknown
from workshop_gpu.host import input_store
from workshop_gpu.host.input_store import InputStore
from workshop_gpu.host.picture_header import Header
from workshop_gpu.host.records import JobRecord, JobRecords, Participant

ADA, BOB = Participant("ada", "Ada"), Participant("bob", "Bob")


def a_picture(number=0):
    file = io.BytesIO()
    Image.new("RGB", (16, 24), (number % 256, number // 256, 7)).save(file, "PNG")
    return file.getvalue()


def a_job(number, participant, start_image):
    params = msgspec.structs.replace(PARAMS, start_image=start_image)
    return JobRecord(an_id(number), participant, "shapes", params, time.time())


@pytest.fixture
def jobs():
    return JobRecords()


@pytest.fixture
def store(tmp_path, jobs):
    return InputStore(tmp_path / "inputs", jobs)


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]

    class Clock:
        monotonic = staticmethod(lambda: now[0])
        monotonic_ns = time.monotonic_ns

    monkeypatch.setattr(input_store, "time", Clock)
    return now


def test_a_picture_is_on_disk_once_whoever_sends_it(store, tmp_path):
    first = asyncio.run(store.take("ada", a_picture()))
    second = asyncio.run(store.take("bob", a_picture()))
    assert first == second
    assert (first.width, first.height) == (16, 24)
    assert [path.name for path in (tmp_path / "inputs").iterdir()] == [first.id]
    assert store.path(first.id).read_bytes() == a_picture()


def test_it_is_for_its_sender_and_for_who_has_a_job_with_it(store, jobs):
    known = asyncio.run(store.take("ada", a_picture()))
    assert store.get("ada", known.id, "start_image") == known
    with pytest.raises(InputUnknown, match="start_image"):
        store.get("bob", known.id, "start_image")
    jobs.add(a_job(1, BOB, known.id))
    assert store.get("bob", known.id, "start_image") == known
    assert store.sizes(jobs.get(an_id(1)).params) == {known.id: known.size_bytes}


def test_the_next_life_has_what_jobs_refer_to_and_nothing_that_is_cut(store, jobs, tmp_path):
    kept = asyncio.run(store.take("ada", a_picture(1)))
    cut = asyncio.run(store.take("ada", a_picture(2)))
    store.path(cut.id).write_bytes(b"")
    (tmp_path / "inputs" / "something.part").write_bytes(b"half")
    jobs.add(a_job(1, ADA, kept.id))
    following = InputStore(tmp_path / "inputs", jobs)
    asyncio.run(following.restore())
    assert following.get("ada", kept.id, "start_image") == kept
    with pytest.raises(InputUnknown):
        following.get("ada", cut.id, "start_image")
    assert [path.name for path in (tmp_path / "inputs").iterdir()] == [kept.id]


def test_what_no_job_uses_goes_after_an_hour_and_the_rest_with_its_job(store, jobs, clock):
    used, unused = (asyncio.run(store.take("ada", a_picture(number))) for number in (1, 2))
    jobs.add(a_job(1, ADA, used.id))
    clock[0] += 3599
    asyncio.run(store.look_after())
    assert store.path(unused.id).exists()
    clock[0] += 61
    asyncio.run(store.look_after())
    assert not store.path(unused.id).exists()
    with pytest.raises(InputUnknown):
        store.get("ada", unused.id, "start_image")
    assert store.get("ada", used.id, "start_image") == used
    jobs.remove(an_id(1))
    clock[0] += 61
    asyncio.run(store.look_after())
    assert not store.path(used.id).exists()


def test_who_sends_many_keeps_the_latest(store, clock):
    known = [asyncio.run(store.take("ada", a_picture(number))) for number in range(40)]
    others = asyncio.run(store.take("bob", a_picture(1)))
    clock[0] += 61
    asyncio.run(store.look_after())
    there = [store.path(each.id).exists() for each in known]
    assert there == [each == others for each in known[:8]] + [True] * 32


def test_who_sends_very_many_within_a_minute_does_not_fill_the_disk_with_them(
    store, clock, tmp_path
):
    for number in range(100):
        asyncio.run(store.take("ada", a_picture(number)))
        assert len(list((tmp_path / "inputs").iterdir())) <= 32 + 64
    last = asyncio.run(store.take("ada", a_picture(100)))
    assert store.get("ada", last.id, "start_image") == last


def test_what_cannot_be_deleted_stops_nothing(store, clock, tmp_path):
    (tmp_path / "inputs" / "somebody's folder").mkdir(parents=True)
    asyncio.run(store.restore())
    unused = asyncio.run(store.take("ada", a_picture()))
    store.path(unused.id).unlink()
    store.path(unused.id).mkdir()
    clock[0] += 3661
    asyncio.run(store.look_after())
    with pytest.raises(InputUnknown):
        store.get("ada", unused.id, "start_image")


def test_a_file_of_millions_of_parts_does_not_stop_the_server_while_it_is_looked_at(
    store, monkeypatch
):
    threads = []

    def looked_at(content, field):
        threads.append(threading.get_ident())
        return Header(16, 24)

    monkeypatch.setattr(input_store, "read_header", looked_at)
    asyncio.run(store.take("ada", a_picture()))
    asyncio.run(store.transparent(a_picture(), "mask"))
    assert len(threads) == 2
    assert threading.get_ident() not in threads


def test_only_one_picture_at_a_time_is_decoded(store, monkeypatch):
    decoded = []

    async def now(function, *given):
        return function(*given)

    async def scenario():
        async with store._looking:
            waits = asyncio.create_task(store.transparent(b"2", "mask"))
            await asyncio.sleep(0)
            assert decoded == []
        await waits

    monkeypatch.setattr(input_store.anyio.to_thread, "run_sync", now)
    monkeypatch.setattr(input_store, "read_header", lambda *given: None)
    monkeypatch.setattr(input_store, "transparent_as_white", lambda *given: decoded.append(given))
    asyncio.run(scenario())
    assert decoded == [(b"2", "mask")]


def test_a_full_disk_is_told_and_leaves_nothing(store, tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(input_store.os, "fsync", full)
    with pytest.raises(DiskFull, match="could not be kept"):
        asyncio.run(store.take("ada", a_picture()))
    assert list((tmp_path / "inputs").iterdir()) == []


@pytest.mark.parametrize("name", ["../secret", "", "A" * 64, "0" * 63])
def test_an_id_never_names_a_path_elsewhere(store, name):
    with pytest.raises(InputUnknown):
        store.path(name)
