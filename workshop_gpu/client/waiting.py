"""Waiting for a job behind a bar; who stops waiting cancels the job."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from anyio import CancelScope, get_cancelled_exc_class, to_thread

from workshop_gpu.client.errors import ClientError, Interrupted
from workshop_gpu.client.images import GeneratedImage
from workshop_gpu.client.job_handle import JobHandle
from workshop_gpu.client.progress import progress_bar


def wait_with_bar(handle: JobHandle, *, show: bool) -> list[GeneratedImage]:
    """Wait for a job behind a bar; an interrupt cancels the job on the server."""
    with progress_bar(show=show) as watch:
        try:
            return handle.wait(watch=watch)
        except KeyboardInterrupt:
            try:
                handle.cancel()
            except ClientError as problem:
                raise Interrupted(
                    f"the job {handle.id} may go on, for it could not be cancelled "
                    f"({problem.message}). Try %cancel."
                ) from None
            raise Interrupted("the job was cancelled.") from None


async def await_submission(submit: Callable[[], JobHandle]) -> JobHandle:
    """Submit while the event loop goes on. A job that was on its way when the task was cancelled
    is cancelled as soon as there is one."""
    pool = ThreadPoolExecutor(1, "workshop-gpu-submit")
    asked = pool.submit(submit)
    pool.shutdown(wait=False)
    try:
        return await to_thread.run_sync(asked.result, abandon_on_cancel=True)
    except (get_cancelled_exc_class(), KeyboardInterrupt) as stopped:
        asked.add_done_callback(_unwanted)
        _say_so(stopped)
        raise


def _unwanted(asked: "Future[JobHandle]") -> None:
    with suppress(ClientError):
        asked.result().cancel()


async def await_with_bar(handle: JobHandle, *, show: bool) -> list[GeneratedImage]:
    """As `wait_with_bar`, while the event loop goes on; cancelling the task cancels the job."""
    with progress_bar(show=show) as watch:
        try:
            async for progress in handle:
                watch(progress)
            return await handle
        except (get_cancelled_exc_class(), KeyboardInterrupt) as stopped:
            with CancelScope(shield=True), suppress(ClientError):
                await to_thread.run_sync(handle.cancel)
            _say_so(stopped)
            raise


def _say_so(stopped: BaseException) -> None:
    """IPython shows a line in place of a traceback. It has to stay the very same exception, for
    who cancelled."""
    said = Interrupted("the job was cancelled.")
    stopped._render_traceback_ = said._render_traceback_  # type: ignore[attr-defined]
