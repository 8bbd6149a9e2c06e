import asyncio
import logging
import threading
from types import SimpleNamespace

from tests.host.fake_catalogue import FakeCatalogue
from workshop_gpu.conductor import events
from workshop_gpu.host.catalogue_reader import CatalogueReader
from workshop_gpu.host.log_entries import CatalogueRead

LOG = logging.getLogger("tests")


def reader_of(catalogue, told, announced=None, fetch=None):
    shown = [] if announced is None else announced
    downloads = SimpleNamespace(fetch=fetch)
    return CatalogueReader(catalogue, downloads, told.append, shown.append, LOG)


def test_what_is_on_disk_is_told_and_shown():
    told, announced = [], []
    asyncio.run(reader_of(FakeCatalogue(), told, announced).read())
    assert told == [events.CatalogueChanged(())]
    assert announced == [CatalogueRead()]


def test_a_catalogue_that_cannot_be_read_ends_nothing_and_is_told_once(caplog):
    def load():
        raise RecursionError("a models.toml that is an abyss")

    async def scenario():
        reader = reader_of(FakeCatalogue(load), told)
        await reader.read()
        await reader.read()

    told = []
    asyncio.run(scenario())
    assert told == []
    assert [record.message for record in caplog.records] == [
        "The catalogue could not be read; it stays as it was"
    ]


def test_two_readings_of_the_catalogue_do_not_meet():
    lock = threading.Lock()
    met = []

    def load():
        met.append(not lock.acquire(blocking=False))
        # The other would begin now, if it could.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop[0]).result()
        if not met[-1]:
            lock.release()

    loop = []

    async def scenario():
        loop.append(asyncio.get_running_loop())
        reader = reader_of(FakeCatalogue(load), [])
        await asyncio.gather(reader.read(), reader.read())

    asyncio.run(scenario())
    assert met == [False, False]


def test_a_download_that_breaks_tells_those_who_wait():
    async def fetch(spec):
        raise ValueError("a fault nobody thought of")

    told = []
    asyncio.run(reader_of(FakeCatalogue(), told, fetch=fetch).fetch("shapes"))
    failed, read = told
    assert isinstance(failed, events.FetchFailed)
    assert failed.error.kind == "model_unavailable"
    assert isinstance(read, events.CatalogueChanged)
