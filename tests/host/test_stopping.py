"""Orders to stop what takes too long."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from workshop_gpu.host.downloads import Downloads


def test_a_stopped_download_returns_and_its_thread_ends_at_the_next_report():
    started, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

    def run(spec, progress):
        progress(1, 100)
        started.set()
        goes_on.wait(20)
        try:
            progress(2, 100)
        except Exception:
            ended.set()
            raise

    async def scenario():
        downloads = Downloads(lambda: None, run)
        fetching = asyncio.create_task(downloads.fetch(SimpleNamespace(id="shapes")))
        await asyncio.to_thread(started.wait, 20)
        assert downloads.get("shapes") is not None
        downloads.stop("shapes")
        downloads.stop("another one")
        await fetching
        assert downloads.get("shapes") is None
        goes_on.set()
        assert await asyncio.to_thread(ended.wait, 20)

    asyncio.run(scenario())


def test_a_download_that_ends_by_itself_is_not_stopped():
    def run(spec, progress):
        progress(100, 100)
        raise OSError("disk full")

    async def scenario():
        downloads = Downloads(lambda: None, run)
        with pytest.raises(OSError, match="disk full"):
            await downloads.fetch(SimpleNamespace(id="shapes"))
        assert downloads.get("shapes") is None

    asyncio.run(scenario())
