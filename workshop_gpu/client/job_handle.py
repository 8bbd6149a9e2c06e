"""A job of mine: wait for it, watch it, cancel it, take its pictures."""

import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any, TypeVar

from anyio import to_thread

from workshop_gpu.api import schemas
from workshop_gpu.client.errors import (
    ConnectionLost,
    JobCancelled,
    JobEnded,
    JobFailed,
    TimedOut,
    refusal,
)
from workshop_gpu.client.events import EventStream, pause_s
from workshop_gpu.client.http import Http
from workshop_gpu.client.images import GeneratedImage
from workshop_gpu.client.words import Progress

ASK_ANYWAY_S = 10.0
"""How often to ask while the stream is open: it should never be needed."""
ASK_S = 0.3
"""How often to ask while the stream is closed."""
GIVE_UP_S = 600.0
"""How long a silent server is waited for: long enough to start it again."""

T = TypeVar("T")
Watcher = Callable[[Progress], None]


class JobHandle:
    """A job that the server has accepted.

    `job.wait()` waits for its pictures, `await job` does so in asynchronous code; `for progress in
    job` (or `async for`) shows what happens with it; `job.cancel()` ends it.
    """

    def __init__(self, http: Http, stream: EventStream, job: schemas.Job) -> None:
        self._http = http
        self._stream = stream
        self._last = job
        self._images: list[GeneratedImage] | None = None
        self._restarts = stream.restarts
        self._failures = 0
        stream.learn_job(job)

    @property
    def id(self) -> str:
        return self._last.id

    @property
    def job(self) -> schemas.Job:
        """What is known now, without asking."""
        self._last = self._stream.look(self.id).job or self._last
        return self._last

    def __repr__(self) -> str:
        job = self.job
        return f"<Job {job.id} {job.state.value} model={job.model!r} step {job.step}/{job.steps}>"

    def refresh(self) -> schemas.Job:
        """Ask the server how the job stands."""
        self._stream.learn_job(self._http.get(f"jobs/{self.id}", schemas.Job))
        return self.job

    def wait(
        self, timeout_s: float | None = None, watch: Watcher | None = None
    ) -> list[GeneratedImage]:
        """Wait for the pictures. `watch` is called in this thread on each change.

        Raises JobFailed and its kin, JobCancelled, TimedOut, or ConnectionLost when the
        server has been silent for ten minutes. A server that is restarted meanwhile goes on with
        the job; `client.job(id)` finds it later too.
        """
        for progress in self._follow(timeout_s):
            if watch is not None:
                watch(progress)
        return self._result()

    def __iter__(self) -> Iterator[Progress]:
        """What happens with the job, at each change until it has ended, however it ends."""
        return self._follow(None)

    async def __aiter__(self) -> AsyncIterator[Progress]:
        """As `for`, while the event loop goes on."""
        steps = iter(self)
        # Who stops listening does not wait for the next change.
        while step := await to_thread.run_sync(next, steps, None, abandon_on_cancel=True):
            yield step

    def __await__(self) -> Generator[Any, None, list[GeneratedImage]]:
        """As `wait`, while the event loop goes on: `images = await job`."""
        return self._awaited().__await__()

    async def _awaited(self) -> list[GeneratedImage]:
        async for _ in self:
            pass
        return await to_thread.run_sync(self._result, abandon_on_cancel=True)

    def _result(self) -> list[GeneratedImage]:
        """The pictures of a job that has ended, or its error."""
        job = self.job
        if job.state == "cancelled":
            why = f" {job.error.message}" if job.error else ""
            raise JobCancelled(f'the job "{job.id}" was cancelled.{why}')
        if job.state == "failed":
            error = job.error
            if error is None:
                raise JobFailed(
                    "failed", "the server gave no reason. Try again, or tell the instructor."
                )
            raise refusal(error.kind, error.message, error.facts, JobFailed)
        return self._patiently(self.images)

    def images(self) -> list[GeneratedImage]:
        """The finished pictures (none before the job is done)."""
        if self._images is None:
            job = self.job
            if job.state != "done":
                return []
            infos = sorted(job.images, key=lambda info: info.index)
            files = self._stream.take_pictures(self.id)
            if len(files) != len(infos):
                files = [self._http.download(info.url) for info in infos]
            self._images = [GeneratedImage(file) for file in files]
        return list(self._images)

    def cancel(self) -> None:
        """Cancel the job; nothing happens where it is over already."""
        try:
            self._http.delete(f"jobs/{self.id}")
        except JobEnded:
            self.refresh()

    def _follow(self, timeout_s: float | None) -> Iterator[Progress]:
        """Each change until the job has ended. The stream brings changes; while it is closed, or
        does not know the job, we ask."""
        stream = self._stream
        stream.start()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        told: Progress | None = None
        seen, asked_at, silent_since = -1, time.monotonic(), None
        announced, announced_at = self._last, asked_at
        while True:
            view = stream.look(self.id)
            job = view.job or self._last
            now = time.monotonic()
            rest = self._pause_s(silent=silent_since is not None)
            if not job.state.ended and (view.doubtful or now - asked_at >= rest):
                asked_at = now
                silent_since = self._ask(silent_since, now)
                view = stream.look(self.id)
                job = view.job or self._last
            if job != announced:
                announced, announced_at = job, now
            counts_down = job.state == "queued" and job.expected_wait_s is not None
            passed_s = int(now - announced_at) if counts_down else 0
            progress = Progress(
                job,
                view.model,
                view.preview,
                reachable=silent_since is None,
                passed_s=passed_s,
                restarted=stream.restarts != self._restarts,
            )
            if progress != told:
                told = progress
                yield progress
            if job.state.ended:
                return
            rest_s = max(0.0, asked_at + rest - now)
            if counts_down:
                rest_s = min(rest_s, announced_at + passed_s + 1 - now)
            if deadline is not None:
                if now >= deadline:
                    raise TimedOut(
                        f"the job {self.id} is still {job.state.value}. It goes on: wait for it "
                        "again, or cancel it with job.cancel()."
                    )
                rest_s = min(rest_s, deadline - now)
            seen = stream.wait(seen, rest_s)

    def _pause_s(self, *, silent: bool) -> float:
        """How long after the last question comes the next one."""
        if self._stream.live:
            return 0.0 if silent else ASK_ANYWAY_S
        return max(ASK_S, pause_s(self._failures)) if silent else ASK_S

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Asks again while the server does not answer. Raises ConnectionLost as `wait` does."""
        deadline, failures = time.monotonic() + GIVE_UP_S, 0
        while True:
            try:
                return ask()
            except ConnectionLost:
                if time.monotonic() >= deadline:
                    raise
                failures += 1
                time.sleep(pause_s(failures))

    def _ask(self, silent_since: float | None, now: float) -> float | None:
        """Ask the server; returns since when it has been silent, None if it answered."""
        try:
            self.refresh()
            if not self._stream.live:
                self._stream.learn_models(self._http.get("models", schemas.ModelList).models)
        except ConnectionLost:
            if silent_since is not None and now - silent_since > GIVE_UP_S:
                raise
            self._failures += 1
            return silent_since or now
        self._failures = 0
        return None
