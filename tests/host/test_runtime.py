import asyncio
import threading

from workshop_gpu.conductor import events
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.host.runtime import Runtime, RuntimeSettings


class FakeCatalogue:
    """No models; `load` does what a test wants, in its thread."""

    specs = problems = ()

    def __init__(self, load=lambda: None):
        self.load = load

    def facts(self):
        return ()

    def changed(self):
        return False

    def get(self, model):
        return model


def runtime_with(tmp_path, catalogue):
    return Runtime(RuntimeSettings(devices=(), data_folder=tmp_path), catalogue)


def test_a_catalogue_that_cannot_be_read_does_not_end_the_rest(tmp_path):
    def load():
        raise RecursionError("a models.toml that is an abyss")

    async def scenario():
        runtime = runtime_with(tmp_path, FakeCatalogue(load))
        await runtime._read_catalogue()
        assert runtime.events.position == 0

    asyncio.run(scenario())


def test_two_readings_of_the_catalogue_do_not_meet(tmp_path):
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
        runtime = runtime_with(tmp_path, FakeCatalogue(load))
        await asyncio.gather(*(runtime._read_catalogue() for _ in range(2)))

    asyncio.run(scenario())
    assert met == [False, False]


def test_a_download_that_breaks_tells_those_who_wait(tmp_path):
    async def fetch(spec):
        raise ValueError("a fault nobody thought of")

    async def scenario():
        runtime = runtime_with(tmp_path, FakeCatalogue())
        told = []
        runtime.downloads.fetch = fetch
        runtime._tell = told.append
        await runtime._fetch("shapes")
        return told

    failed, read = asyncio.run(scenario())
    assert isinstance(failed, events.FetchFailed)
    assert isinstance(failed.error, ErrorReport)
    assert failed.error.kind == "model_unavailable"
    assert isinstance(read, events.CatalogueChanged)


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
