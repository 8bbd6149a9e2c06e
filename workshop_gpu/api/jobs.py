"""jobs: submit, look, cancel, fetch images."""

import re

import anyio
import msgspec
from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from workshop_gpu.api.errors import ImageUnknown, NotAllowed
from workshop_gpu.api.generation import complete
from workshop_gpu.api.handler import WorkshopHandler
from workshop_gpu.api.inputs import beginning_of
from workshop_gpu.api.schemas import GenerateRequest, JobList
from workshop_gpu.catalogue.spec import ModelSpec
from workshop_gpu.conductor.errors import InvalidRequest, JobUnknown
from workshop_gpu.conductor.states import Priority
from workshop_gpu.host.records import JobRecord
from workshop_gpu.worker.protocol import GenerateParams

_JOB_ID = re.compile(r"[0-9a-f]{32}")


class OwnJobHandler(WorkshopHandler):
    """The base of handlers for one job: somebody else's is as unknown as one that never was."""

    async def own_job(self, job: str) -> JobRecord:
        """Raises JobUnknown."""
        await self.runtime.settled()
        record = self.runtime.jobs.get(job)
        if record.participant.id != self.participant.id and not await self.is_admin():
            raise JobUnknown(job)
        return record


class JobsHandler(WorkshopHandler):
    """All of one's jobs; `?all=1` gives an admin everybody's."""

    @authenticated
    @authorized
    async def get(self) -> None:
        await self.runtime.settled()
        views = await self.views()
        if self.get_query_argument("all", "") not in ("", "0"):
            if not await self.is_admin():
                raise NotAllowed(
                    "Only the instructor sees everybody's jobs. Ask for yours, without ?all."
                )
            self.answer(JobList(views.all_jobs()))
        else:
            self.answer(JobList(views.my_jobs()))

    @authenticated
    @authorized
    async def post(self) -> None:
        request = self.body(GenerateRequest)
        spec = self.runtime.catalogue.get(request.model)
        priority = Priority[request.priority.upper()]
        if priority < Priority.NORMAL and not await self.is_admin():
            raise NotAllowed(
                f'Only the instructor may submit with priority "{request.priority}". Leave it out.'
            )
        if request.placement and not await self.is_admin():
            raise NotAllowed(
                "Only the instructor may say how a model is placed. Leave placement out."
            )
        record = await self._known(request, spec, priority)
        if record is None:
            params = self._complete(request, spec)
            record = await self.runtime.submit(
                self.participant, spec.id, params, priority, request.id, request.placement
            )
            if priority < Priority.NORMAL or request.placement:
                what = {"priority": request.priority, "placement": request.placement}
                await self.note("submitted a job by right", record.id, {**what})
        self.set_header("Location", f"{self.base_url}workshop-gpu/api/jobs/{record.id}")
        self.answer((await self.views()).job(record), status=201)

    def _complete(self, request: GenerateRequest, spec: ModelSpec) -> GenerateParams:
        beginning = beginning_of(self.runtime.inputs, self.participant.id, request)
        catalogue = self.runtime.catalogue
        accepts, loras = catalogue.local(spec.id).accepts, catalogue.loras_for(spec.id)
        return complete(request, spec, beginning, accepts, loras)

    async def _known(
        self, request: GenerateRequest, spec: ModelSpec, priority: Priority
    ) -> JobRecord | None:
        """The job of a request that was sent before. Raises InvalidRequest where the id makes no
        sense, or is that of another request, or of somebody else's."""
        if request.id and not _JOB_ID.fullmatch(request.id):
            raise InvalidRequest("id", "give 32 hexadecimal digits, or none")
        record = self.runtime.jobs.find(request.id)
        if record is None:
            return None
        if request.seed is None:  # it was drawn then
            request = msgspec.structs.replace(request, seed=record.params.seed)
        known = record.model, record.priority, record.placement, record.params
        asked = spec.id, priority, request.placement, self._complete(request, spec)
        if record.participant.id != self.participant.id or known != asked:
            raise InvalidRequest("id", "another job has it already; make a new one")
        await self.runtime.written(record.id)
        return record


class JobHandler(OwnJobHandler):
    """One job; deleting it cancels it."""

    @authenticated
    @authorized
    async def get(self, job: str) -> None:
        record = await self.own_job(job)
        self.answer((await self.views()).job(record))

    @authenticated
    @authorized
    async def delete(self, job: str) -> None:
        record = await self.own_job(job)
        self.runtime.cancel(record.id)
        if record.participant.id != self.participant.id:
            await self.note("cancelled a job", record.id, {"of": record.participant.name})
        await self.runtime.settled()
        self.answer((await self.views()).job(record))


class ImageHandler(OwnJobHandler):
    """One finished image, as the PNG file that the worker made."""

    @authenticated
    @authorized
    async def get(self, job: str, index: str) -> None:
        record = await self.own_job(job)
        number = int(index)
        if number >= record.saved_images or not record.ended:
            raise ImageUnknown(job, number, record.saved_images)
        fresh = self.runtime.images.fresh(job)
        if fresh:
            content = fresh[number]
        else:
            path = self.runtime.images.path(job, number)
            content = await anyio.to_thread.run_sync(path.read_bytes)
        # A job's images never change.
        self.set_header("Cache-Control", "private, max-age=31536000, immutable")
        self.finish(content, set_content_type="image/png")
