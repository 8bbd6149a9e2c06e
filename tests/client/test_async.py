"""Waiting while the event loop goes on, and looking at a job step by step."""

import asyncio
import threading
from typing import Any

import pytest

from tests.client.fakes import WAIT_S, FakeServer, a_job, a_png
from workshop_gpu.api import schemas
from workshop_gpu.client import Client
from workshop_gpu.client.errors import JobFailed
from workshop_gpu.client.images import GeneratedImage
from workshop_gpu.conductor.errors import ErrorReport

JOB = "1" * 32


@pytest.fixture(autouse=True)
def _answers(fake: FakeServer) -> None:
    fake.answers["POST jobs"] = a_job()
    fake.answers[f"GET jobs/{JOB}"] = a_job()
    fake.answers[f"GET jobs/{JOB}/images/0"] = a_png()
    fake.answers[f"DELETE jobs/{JOB}"] = a_job("cancelled")


def test_the_event_loop_goes_on_while_a_picture_is_made(client: Client, fake: FakeServer) -> None:
    async def scenario() -> Any:
        task = asyncio.create_task(client.agenerate("a star", "shapes", progress=False))
        # Only a loop that goes on gets here, and lets the job end.
        stream, _ = await asyncio.to_thread(fake.next_stream)
        assert not task.done()
        stream.send(schemas.JobEvent(a_job("running", step=1)))
        stream.send(schemas.JobEvent(a_job("done")))
        return await task

    image = asyncio.run(scenario())
    assert isinstance(image, GeneratedImage)


@pytest.mark.parametrize("submitting", [True, False])
def test_cancelling_the_task_cancels_the_job(
    client: Client, fake: FakeServer, submitting: bool
) -> None:
    posting, accept, cancelled = threading.Event(), threading.Event(), threading.Event()

    def accepted() -> schemas.Job:
        posting.set()
        accept.wait(WAIT_S)
        return a_job()

    def ended() -> schemas.Job:
        cancelled.set()
        return a_job("cancelled")

    fake.answers |= {"POST jobs": accepted, f"DELETE jobs/{JOB}": ended}

    async def scenario() -> None:
        task = asyncio.create_task(client.agenerate("a star", "shapes", progress=False))
        await asyncio.to_thread(posting.wait, WAIT_S)
        if not submitting:
            accept.set()
            stream, _ = await asyncio.to_thread(fake.next_stream)
            loop, looked = asyncio.get_running_loop(), asyncio.Event()
            client.events.subscribe(lambda _: loop.call_soon_threadsafe(looked.set))
            stream.send(schemas.JobEvent(a_job("running", step=1)))
            await looked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as stopped:
            await task
        words = stopped.value._render_traceback_()  # type: ignore[attr-defined]
        assert words == ["Interrupted: the job was cancelled."]
        accept.set()
        assert await asyncio.to_thread(cancelled.wait, WAIT_S)
        client.events.learn_job(a_job("cancelled"))

    asyncio.run(scenario())


def test_a_job_can_be_awaited_and_gone_through(client: Client, fake: FakeServer) -> None:
    async def scenario() -> tuple[list[GeneratedImage], list[str]]:
        handle = client.submit("a star", "shapes")
        stream, _ = fake.next_stream()
        states = []
        async for progress in handle:
            states.append(progress.job.state.value)
            if progress.job.state == "queued":
                stream.send(schemas.JobEvent(a_job("running", step=1)))
            elif progress.job.state == "running":
                stream.send(schemas.JobEvent(a_job("done")))
        return await handle, states

    images, states = asyncio.run(scenario())
    assert [image.seed for image in images] == [7]
    assert list(dict.fromkeys(states)) == ["queued", "running", "done"]


def test_a_failed_job_raises_where_it_is_awaited_and_not_where_it_is_watched(
    client: Client, fake: FakeServer
) -> None:
    failed = a_job("failed", error=ErrorReport("out_of_memory", "Out of GPU memory."))
    fake.answers["POST jobs"] = failed
    handle = client.submit("a star", "shapes")
    assert [progress.job.state.value for progress in handle] == ["failed"]

    async def scenario() -> None:
        await handle

    with pytest.raises(JobFailed, match="Out of GPU memory"):
        asyncio.run(scenario())


def test_a_change_reads_as_a_line(client: Client, fake: FakeServer) -> None:
    fake.answers["POST jobs"] = a_job("done")
    assert [str(progress) for progress in client.submit("a star", "shapes")] == ["Done"]
