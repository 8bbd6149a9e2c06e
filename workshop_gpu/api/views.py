"""The conductor's and the host's knowledge as the API's answers, for one viewer.

Everybody sees that somebody's job waits; prompts, seeds and images are for its owner and
for admins, places on the server's disk for admins alone.
"""

from base64 import b64encode
from typing import Literal, get_args

import msgspec

from workshop_gpu import __version__
from workshop_gpu.api import holders, schemas
from workshop_gpu.api import schemas_room as room
from workshop_gpu.api.discretion import discreet, without_paths
from workshop_gpu.api.rules import name_of
from workshop_gpu.catalogue.files import LocalState
from workshop_gpu.catalogue.loras import OfferedLora
from workshop_gpu.catalogue.spec import ModelSpec
from workshop_gpu.conductor import effects
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.people import with_names
from workshop_gpu.conductor.states import JobState, SlotState
from workshop_gpu.host import classroom
from workshop_gpu.host.log_entries import CatalogueRead, LogEntry, Preview, ProblemsChanged
from workshop_gpu.host.news import NewsItem
from workshop_gpu.host.records import JobRecord, Participant
from workshop_gpu.host.runtime import Runtime

ModelState = Literal[
    "absent", "downloading", "loading", "ready", "leaving", "failed", "unavailable"
]
_ENDED_IN_SNAPSHOT = 50
_BEST_FIRST = (SlotState.READY, SlotState.LOADING, SlotState.LEAVING, SlotState.FAILED)
assert {state.value for state in SlotState} < set(get_args(ModelState))


class Viewer(msgspec.Struct, frozen=True):
    """Who looks. `base_url` is the server's, for the addresses of images."""

    participant: Participant
    admin: bool
    base_url: str


class Views:
    """Answers for one viewer, from one runtime, as things are now."""

    def __init__(self, runtime: Runtime, viewer: Viewer) -> None:
        self._runtime = runtime
        self._viewer = viewer

    # jobs

    def job(self, record: JobRecord, view: effects.JobView | None = None) -> schemas.Job:
        """`view` is an earlier moment of the job; None means now."""
        view = view or record.view
        mine = record.participant.id == self._viewer.participant.id
        state = view.state if view else JobState.QUEUED
        steps = record.params.drawn_steps * record.params.images
        job = schemas.Job(
            id=record.id,
            state=state,
            model=record.model,
            participant=record.participant.name,
            mine=mine,
            position=view.position if view else 0,
            expected_wait_s=view.expected_wait_s if view else None,
            waiting_for=view.waiting_for if view else "",
            step=view.step if view else 0,
            steps=(view.steps if view else 0) or steps,
            device=view.device if view else None,
            submitted_at=record.submitted_at,
            started_at=record.started_at,
            ended_at=record.ended_at,
            seconds_s=record.seconds_s,
            error=self._error(view.error) if view else None,
            batch=view.batch if view else 1,
            reason=self._words(view.reason) if view else "",
            went_on=view.went_on if view else "",
            kernel=self._kernel(record.participant.kernel, mine=mine),
            priority=name_of(view.priority if view else record.priority),
        )
        if not (mine or self._viewer.admin):
            return msgspec.structs.replace(job, error=None)
        return msgspec.structs.replace(
            job, params=msgspec.structs.asdict(record.params), images=self._images(record, state)
        )

    def _kernel(self, kernel: str | None, *, mine: bool) -> str | None:
        """A page has to know its own notebooks' kernels, and Jupyter shows it all; a kernel's token
        opens nothing of Jupyter's, and need not know of others."""
        seen = mine or self._viewer.admin or self._viewer.participant.kernel is None
        return kernel if seen else None

    def _words(self, text: str) -> str:
        text = with_names(text, self._runtime.chronicle.name_of)
        return text if self._viewer.admin else without_paths(text)

    def _error(self, error: ErrorReport | None) -> ErrorReport | None:
        return error if error is None or self._viewer.admin else discreet(error)

    def my_jobs(self) -> list[schemas.Job]:
        """The viewer's own jobs, newest first."""
        return [self.job(record) for record in self._runtime.jobs.of(self._viewer.participant.id)]

    def all_jobs(self) -> list[schemas.Job]:
        """Everybody's jobs, newest first."""
        return [self.job(record) for record in reversed(list(self._runtime.jobs))]

    def _images(self, record: JobRecord, state: JobState) -> list[schemas.ImageInfo]:
        if state is not JobState.DONE:
            return []
        root = f"{self._viewer.base_url}workshop-gpu/api/jobs/{record.id}/images/"
        return [
            schemas.ImageInfo(index, record.params.seed + index, f"{root}{index}")
            for index in range(record.saved_images)
        ]

    def pictures(self, job: schemas.Job, most_bytes: int) -> list[schemas.PictureEvent]:
        """The viewer's own job's pictures, if it has just been done and they are small together."""
        if not (job.mine and job.images):
            return []
        fresh = self._runtime.images.fresh(job.id)
        if sum(map(len, fresh)) > most_bytes:
            return []
        return [schemas.PictureEvent(job.id, index, png) for index, png in enumerate(fresh)]

    # models

    def models(self) -> list[schemas.Model]:
        now = self._runtime.snapshot()
        return [self._model(spec, now) for spec in self._runtime.catalogue.specs]

    def model(self, model: str) -> schemas.Model:
        """Raises ModelUnknown."""
        return self._model(self._runtime.catalogue.get(model), self._runtime.snapshot())

    def _slots(self) -> list[schemas.Slot]:
        return [self._slot(view) for view in self._runtime.slots()]

    def _slot(self, view: effects.SlotView) -> schemas.Slot:
        shown = msgspec.structs.replace(view, error=self._error(view.error))
        return msgspec.convert(msgspec.structs.asdict(shown), schemas.Slot)

    def _model(self, spec: ModelSpec, now: effects.Snapshot) -> schemas.Model:
        local, policy = self._runtime.catalogue.local(spec.id), self._runtime.policy
        withdrawn = policy.withdrawn.get(spec.id)
        configured = self._runtime.catalogue.memory(spec).placement
        mine = [self._slot(view) for view in now.slots if view.model == spec.id]
        by_state = {slot.state: slot for slot in reversed(mine)}
        best = next((by_state[state] for state in _BEST_FIRST if state in by_state), None)
        download = self._runtime.downloads.get(spec.id)
        state: ModelState = best.state.value if best else "absent"
        done_bytes, total_bytes = (best.done_bytes, best.total_bytes) if best else (0, 0)
        if local.state is LocalState.UNUSABLE:
            state = "unavailable"
        elif best is None and download is not None:
            state, (done_bytes, total_bytes) = "downloading", download
        return schemas.Model(
            id=spec.id,
            title=spec.title or spec.id,
            description=spec.description,
            kind=spec.kind,
            enabled=spec.enabled and withdrawn is None,
            reason=spec.reason if withdrawn is None else withdrawn,
            state=state,
            problem=self._words(local.problem),
            bytes=(best and best.bytes) or round(spec.vram_gb * 1e9) or local.file_bytes,
            done_bytes=done_bytes,
            total_bytes=total_bytes,
            bytes_per_s=best.bytes_per_s if best else 0.0,
            defaults=msgspec.structs.asdict(spec.defaults),
            limits=msgspec.structs.asdict(spec.limits),
            pinned=policy.pinned.get(spec.id, spec.pin),
            slots=mine,
            keep_warm_s=policy.keep_warm_s.get(spec.id, spec.keep_warm_s),
            placement=policy.placements.get(spec.id, configured),
            accepts=local.accepts,
            expected_wait_s=now.newcomers_s.get(spec.id),
            loras=[self._lora(lora) for lora in self._runtime.catalogue.loras_for(spec.id)],
        )

    def _lora(self, lora: OfferedLora) -> schemas.Lora:
        spec, problem = lora.spec, self._words(lora.problem)
        title = spec.title or spec.id
        return schemas.Lora(spec.id, title, spec.description, spec.scale, lora.file_bytes, problem)

    def problems(self) -> list[str]:
        """What is wrong with the catalogue."""
        return [self._words(problem) for problem in self._runtime.catalogue.problems]

    def all_problems(self) -> list[str]:
        """And with the journal and the machinery."""
        return [*self.problems(), *map(self._words, self._runtime.problems.now)]

    def _news(self, item: NewsItem) -> room.News:
        return room.News(item.at, item.kind, self._words(item.text), item.device, item.model)

    # reservations

    def reservations(self) -> list[schemas.Reservation]:
        """Everybody's, in the order in which they were asked for."""
        return [self.reservation(view) for view in self._runtime.snapshot().reservations]

    def reservation(
        self, view: effects.ReservationView, *, ended: bool = False
    ) -> schemas.Reservation:
        owner = self._runtime.reservations.owner(view.reservation)
        mine = view.participant == self._viewer.participant.id
        return schemas.Reservation(
            id=view.reservation,
            participant=owner.name if owner else view.participant,
            mine=mine,
            device=view.device,
            size_bytes=view.size_bytes,
            whole=view.size_bytes is None,
            state="ended" if ended else view.state.value,
            position=view.position,
            expected_wait_s=view.expected_wait_s,
            expires_in_s=view.expires_in_s,
            reason=self._words(view.reason),
            kernel=self._kernel(view.kernel, mine=mine),
        )

    # the whole

    def me(self) -> schemas.Me:
        person = self._viewer.participant
        return schemas.Me(person.id, person.name, person.kernel, self._viewer.admin)

    def status(self) -> schemas.Status:
        now = self._runtime.snapshot()
        jobs = [(self._runtime.jobs.find(view.job), view) for view in now.jobs]
        shown = [(self.job(record, view), view) for record, view in jobs if record]
        slots = [self._slot(view) for view in now.slots]
        return schemas.Status(
            version=__version__,
            started_at=self._runtime.started_at,
            me=self.me(),
            devices=[self._device(view, slots) for view in now.devices],
            waiting=[job for job, view in shown if view.state is JobState.QUEUED],
            running=[job for job, view in shown if view.state is JobState.RUNNING],
            problems=self.all_problems(),
            reservations=[self.reservation(view) for view in now.reservations],
            paused=self._runtime.policy.paused,
            pool=self._pool(),
            journal=self._journal(),
            news=[self._news(item) for item in self._runtime.chronicle.news.items],
            message=message_of(self._runtime.classroom.message),
            help=self.help_calls(),
        )

    def _journal(self) -> schemas.Journal:
        keeper = self._runtime.keeper
        return schemas.Journal(
            problem=self._words(keeper.problem),
            jobs=len(keeper.records),
            image_bytes=keeper.image_bytes,
            keep_days=keeper.limits.days,
            keep_bytes=keeper.limits.image_bytes,
        )

    def _pool(self) -> schemas.Pool:
        now = self._runtime.pool.state()
        parts = [
            schemas.PoolPart(part.size_bytes, list(part.models), part.workers, part.lora)
            for part in now.parts
        ]
        return schemas.Pool(now.budget_bytes, now.used_bytes, now.problem, parts)

    def snapshot(self) -> schemas.SnapshotEvent:
        """What a reader of the stream begins with, however much it missed: of its own jobs those
        that have not ended and the latest of the others."""
        mine = self._runtime.jobs.recent(self._viewer.participant.id, _ENDED_IN_SNAPSHOT)
        return schemas.SnapshotEvent(
            self.status(), self.models(), [self.job(record) for record in mine]
        )

    def _device(self, view: effects.DeviceView, slots: list[schemas.Slot]) -> schemas.Device:
        processes = self._runtime.watches.processes.get(view.device, ())
        notebooks = {process.name for process in processes if process.kernel is not None}
        return schemas.Device(
            id=view.device,
            name=self._runtime.device_names.get(view.device, view.device),
            state=view.state,
            total_bytes=view.total_bytes,
            free_bytes=view.free_bytes,
            holders=holders.named(view.holders, notebooks, self._owner),
            slots=[slot for slot in slots if slot.device == view.device],
            reason=self._words(view.reason),
            retry_s=view.retry_s,
        )

    def _owner(self, kind: str, name: str) -> str | None:
        """By whose name a job's or reservation's memory goes, instead of its id."""
        if kind == "reservation":
            owner = self._runtime.reservations.owner(name)
        else:
            record = self._runtime.jobs.find(name)
            owner = record.participant if record else None
        return owner.name if owner else None

    def help_calls(self) -> list[room.HelpCall]:
        """Raised hands that this viewer may see."""
        me = self._viewer.participant.id
        calls = self._runtime.classroom.calls
        return [
            help_of(call, me) for call in calls if self._viewer.admin or call.participant.id == me
        ]

    # events

    def event(self, entry: LogEntry) -> schemas.StreamEvent | None:
        """What of an entry of the log this viewer may see; None: nothing."""
        match entry:
            case effects.AnnounceJob(view):
                record = self._runtime.jobs.find(view.job)
                return schemas.JobEvent(self.job(record, view)) if record else None
            case Preview():
                return self._preview(entry)
            case effects.AnnounceSlot(slot, freed_bytes, why):
                return schemas.SlotEvent(self._slot(slot), freed_bytes, self._words(why))
            case effects.AnnounceDevice(device):
                return schemas.DeviceEvent(self._device(device, self._slots()))
            case effects.AnnounceHold(hold, ended):
                mine = hold.participant == self._viewer.participant.id
                return schemas.HoldEvent(hold_of(hold), ended) if mine else None
            case effects.AnnounceReservation(reservation, ended):
                told = self.reservation(reservation, ended=bool(ended))
                return schemas.ReservationEvent(told, self._words(ended))
            case effects.AnnouncePolicy(policy):
                return schemas.PolicyEvent(policy.paused, policy.patience_s, policy.queue_limit)
            case effects.AnnounceWaits(waits_s):
                return schemas.WaitsEvent(waits_s)
            case effects.Notice(text):
                return schemas.NoticeEvent(self._words(text), self._runtime.now())
            case CatalogueRead() | ProblemsChanged():
                return schemas.ModelsEvent(self.models(), self.all_problems())
        return self._room_event(entry)

    def _room_event(self, entry: LogEntry) -> schemas.StreamEvent | None:
        """What of the room's life this viewer may see."""
        match entry:
            case NewsItem():
                return room.NewsEvent(self._news(entry))
            case classroom.MessageChanged(message):
                return room.MessageEvent(message_of(message))
            case classroom.HelpChanged(call, raised):
                mine = call.participant.id == self._viewer.participant.id
                told_of = help_of(call, self._viewer.participant.id)
                return room.HelpEvent(told_of, raised) if mine or self._viewer.admin else None
        return None

    def _preview(self, preview: Preview) -> schemas.PreviewEvent | None:
        record = self._runtime.jobs.find(preview.job)
        if record is None or record.participant.id != self._viewer.participant.id:
            return None
        data = "data:image/jpeg;base64," + b64encode(preview.jpeg).decode("ascii")
        return schemas.PreviewEvent(preview.job, preview.step, preview.steps, preview.image, data)


def hold_of(view: effects.HoldView) -> schemas.Hold:
    """A hold, for its kernel."""
    return schemas.Hold(view.hold, view.model, view.expires_in_s)


def message_of(message: classroom.Message | None) -> room.Message | None:
    """What the instructor says, for everybody to read."""
    return None if message is None else room.Message(message.text, message.who, message.at)


def help_of(call: classroom.HelpCall, viewer: str) -> room.HelpCall:
    """A raised hand, for its owner and instructors."""
    who = call.participant
    mine = who.id == viewer
    return room.HelpCall(who.id, who.name, who.notebook_name, call.text, call.at, mine)
