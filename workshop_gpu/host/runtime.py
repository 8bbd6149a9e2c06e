"""The shell around the conductor: turns the outside into events and carries out its effects."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import msgspec
from anyio.abc import TaskGroup

from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Conductor, Settings
from workshop_gpu.conductor.errors import JobEnded, WorkshopError
from workshop_gpu.conductor.explaining import PlanView
from workshop_gpu.conductor.learned import Learned
from workshop_gpu.conductor.planning import Size
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.states import Priority
from workshop_gpu.host.catalogue_reader import CatalogueReader
from workshop_gpu.host.chronicle import Chronicle
from workshop_gpu.host.classroom import Classroom
from workshop_gpu.host.clearing import Clearing
from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.downloads import Downloads
from workshop_gpu.host.driver import Driver
from workshop_gpu.host.driver_watches import DriverWatches
from workshop_gpu.host.enduring import endure
from workshop_gpu.host.event_log import EventLog
from workshop_gpu.host.foreign import ForeignProcesses
from workshop_gpu.host.heirs import Heirs
from workshop_gpu.host.image_store import ImageStore
from workshop_gpu.host.input_store import InputStore
from workshop_gpu.host.journal_records import request_of
from workshop_gpu.host.keeper import Keeper
from workshop_gpu.host.kept import Kept
from workshop_gpu.host.leases import LOOK_S, Leases
from workshop_gpu.host.likely import likely_sources
from workshop_gpu.host.log_entries import CatalogueRead, LogEntry, Preview, ProblemsChanged
from workshop_gpu.host.neighbours import beside
from workshop_gpu.host.orders import ORDERS, Orders
from workshop_gpu.host.problems import Problems
from workshop_gpu.host.records import JobRecord, JobRecords, Participant
from workshop_gpu.host.reserving import Reservations
from workshop_gpu.host.retention import Limits
from workshop_gpu.host.spare import SpareWorker
from workshop_gpu.host.stopping import ServerStops
from workshop_gpu.host.supervisor import Supervisor, WorkerEnd
from workshop_gpu.host.weight_pool import WeightPool
from workshop_gpu.host.worker_facts import facts
from workshop_gpu.host.worker_process import Compilation
from workshop_gpu.host.xids import Reach, Xid
from workshop_gpu.worker import protocol
from workshop_gpu.worker.protocol import GenerateParams

_TICK_S = 1.0
_LOST_DEVICE_RETRY_S = 60.0
_END_S = 8.0
"""So long the end waits for what is stuck: six for a worker; ten is what all of it may take."""
_LEARNED_S = 5.0
"""How often what was measured is written to disk, if it changed."""


class RuntimeSettings(msgspec.Struct, frozen=True):
    """How a runtime is set up. `threads` is the number of CPU threads per worker (0: its own
    choice), `keep` says what is kept of ended jobs, `journal` where they are noted (None: in the
    data folder). `pool_bytes` is the weight pool's budget (None: half of the memory that is
    available at the start; 0: no pool), `spare_worker` whether a process stands by for a worker
    that dies. A worker that gives no sign of life for `silence_limit_s` is ended (0: never).
    `compiler` makes models' blocks faster ("auto": on cards; "off"); it is ended when it gets no
    further within `compile_limit_s` (0: never)."""

    devices: tuple[DeviceConfig, ...]
    data_folder: Path
    threads: int = 0
    keep: Limits = Limits()
    journal: Path | None = None
    pool_bytes: int | None = None
    spare_worker: bool = False
    silence_limit_s: float = 60.0
    compiler: str = "auto"
    compile_limit_s: float = 1200.0
    conductor: Settings = Settings()


class Runtime:
    """Owns the conductor, the workers, the jobs' records and images.

    All methods run on the event loop's thread. Methods that ask for something raise a
    `WorkshopError` when it is refused, and then nothing has changed. `foreign` knows the kernels
    among the processes that hold GPU memory, `is_busy` says whether a kernel executes something.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        catalogue: Catalogue,
        log: logging.Logger | None = None,
        foreign: ForeignProcesses | None = None,
        is_busy: Callable[[str], bool] = lambda kernel: False,
    ) -> None:
        self.settings = settings
        self.catalogue = catalogue
        self._log = log or logging.getLogger("workshop_gpu")
        self.events: EventLog[LogEntry] = EventLog()
        self.life = uuid.uuid4().hex[:12]
        self.started_at = time.time()
        self.images = ImageStore(settings.data_folder / "images")
        self.device_names = {device.id: device.name for device in settings.devices}
        self.downloads = Downloads(lambda: self.events.append(CatalogueRead()))
        self._reader = CatalogueReader(
            catalogue, self.downloads, self._tell, self.events.append, self._log
        )
        self.worker_versions: dict[str, dict[str, str]] = {}
        devices = tuple(device.id for device in settings.devices)
        self.configured_policy = self.policy = Policy.of(settings.conductor)
        names = tuple(self.device_names.values())
        self.kept = Kept(settings.data_folder, self.policy, names, self._log)
        self._conductor = Conductor(settings.conductor, devices, self.kept.read_learned())
        journal = settings.journal or settings.data_folder / "journal.sqlite3"
        accounts = self._conductor.accounts
        self.jobs = JobRecords()
        self.inputs = InputStore(settings.data_folder / "inputs", self.jobs)
        stores = (self.images, self.inputs)
        self.keeper = Keeper(journal, self.jobs, *stores, settings.keep, accounts, self._log)
        self._driver = Driver(self._conductor, self._carry_out, self._log)
        self.reservations = Reservations(self._ask, self._reservation, devices)
        self._leases = Leases(self._ask, is_busy)
        self.heirs = Heirs(self.keeper, self._tell, lambda: self.policy)
        self.clearing = Clearing(self.reservations, settings.data_folder, self._log)
        self.chronicle = Chronicle(self.policy, self.jobs, self.reservations)
        self.classroom = Classroom(self.events.append)
        self.foreign = foreign or ForeignProcesses()
        cards = {each.gpu_uuid: each.id for each in settings.devices if each.gpu_uuid}
        self.watches = DriverWatches(cards, self.foreign, self._on_xid, self._inform, self._log)
        self.pool = WeightPool(settings.pool_bytes, log=self._log)
        logs = settings.data_folder / "logs"
        compilation = Compilation(
            settings.compiler, settings.data_folder / "compiled", settings.compile_limit_s
        )
        self.spare = SpareWorker(
            logs,
            settings.threads,
            settings.devices,
            self._log,
            prepare=self._prepare if cards else None,
            compilation=compilation,
            holds=self.foreign.spare_holds,
            tell=self._inform,
        )
        parts = (self.keeper, self.pool, self.spare, self.watches)
        self.problems = Problems(parts, lambda: self.events.append(ProblemsChanged()))
        take_spare = beside(settings.devices, catalogue, self.spare.take)
        self._supervisors = {
            device.id: Supervisor(
                device,
                logs,
                settings.threads,
                self.pool,
                on_report=self._on_report,
                on_end=self._on_worker_end,
                start=beside(settings.devices, catalogue, self.spare.start),
                start_fresh=beside(settings.devices, catalogue, self.spare.start_fresh),
                take_spare=take_spare if settings.spare_worker else None,
                log=self._log,
                silence_limit_s=settings.silence_limit_s,
                retry_s=_LOST_DEVICE_RETRY_S,
            )
            for device in settings.devices
        }
        self._orders = Orders(
            catalogue,
            self.jobs,
            self.inputs,
            self._supervisors,
            self._tell,
            self._fetch,
            self.downloads.stop,
        )
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._group: TaskGroup | None = None
        self._first_reading = asyncio.Event()

    # life

    def start(self) -> None:
        """Starts the workers and timers in the background; a second call does nothing."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ends the workers and all readers of events."""
        self._stopping.set()
        self.events.close()
        if self._task is not None:
            ended, _ = await asyncio.wait({self._task}, timeout=_END_S)
            if not ended:
                self._log.warning("The server ends, although a part of it is stuck.")
            await self.kept.keep_learned(self._conductor.learned())
        await self.keeper.journal.close()
        self.pool.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Runtime"]:
        """For use without a Jupyter server: `async with runtime.running(): …`."""
        self.start()
        try:
            yield self
        finally:
            await self.stop()

    async def catalogue_read(self) -> None:
        """Waits until the catalogue has been looked at once, milliseconds after the start."""
        await self._first_reading.wait()

    async def _run(self) -> None:
        try:
            await self._work()
        except Exception:  # of ours, before anything ran; what was begun is still to be ended
            self._log.exception("Nothing is drawn until this server is started again")

    async def _work(self) -> None:
        self._make_folder()
        async with anyio.create_task_group() as group:
            self._group = group
            await self._reader.read()
            await self._restore()
            await self.inputs.restore()
            self._tell(await self.keeper.restore(self.catalogue.lora_bytes))
            self._first_reading.set()
            for name, task in self._tasks():
                group.start_soon(endure, name, task, self._log)
            await self._stopping.wait()
            group.cancel_scope.cancel()

    def _tasks(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        for device, supervisor in self._supervisors.items():
            yield f"The supervisor of {device}", supervisor.run
        if self.settings.spare_worker:
            yield "The keeper of the spare worker", self.spare.run
        yield "The server's clock", self._keep_time
        yield "The renewal of leases", self._renew_leases
        yield from self.watches.tasks()

    def _make_folder(self) -> None:
        """Pictures and logs tell what people asked for: they are for the server's account only."""
        try:
            self.settings.data_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            # The workers and the jobs that need the folder will fail with this reason too.
            self._log.error("%s: %s", self.settings.data_folder, error.strerror)

    async def _restore(self) -> None:
        """The rules of the server's last life hold again; models that are gone lose theirs.
        GPUs that were cleared are cleared."""
        await self.clearing.restore()
        models = {spec.id for spec in self.catalogue.specs}
        policy = await anyio.to_thread.run_sync(self.kept.read, models)
        if policy == self.policy:
            return
        try:
            self._ask(events.PolicyChanged(policy))
        except WorkshopError as error:
            await anyio.to_thread.run_sync(self.kept.refuse_policy, error.message)

    def _fetch(self, model: str) -> None:
        if self._group is not None:
            self._group.start_soon(self._reader.fetch, model)

    async def _renew_leases(self) -> None:
        while True:
            await anyio.sleep(LOOK_S)
            snapshot = self.snapshot()
            self._leases.renew(snapshot)
            self.spare.look(snapshot)

    async def _keep_time(self) -> None:
        learned_at = time.monotonic()
        while True:
            await anyio.sleep(_TICK_S)
            if await anyio.to_thread.run_sync(self.catalogue.changed):
                await self._reader.read()
            self._tell(events.Tick())
            self.pool.relieve()
            self.chronicle.keep_time(self.snapshot)
            self.problems.look()
            if time.monotonic() >= learned_at + _LEARNED_S:
                learned_at = time.monotonic()
                await self.kept.keep_learned(self._conductor.learned())
            await self.keeper.look_after()
            await self.inputs.look_after()

    # requests

    async def submit(
        self,
        participant: Participant,
        model: str,
        params: GenerateParams,
        priority: Priority = Priority.NORMAL,
        job: str = "",
        placement: str = "",
    ) -> JobRecord:
        """Accepts a checked request as a job; it is in the journal when this returns. `job` is its
        id (32 hexadecimal digits), unless one is to be made, `placement` a rung's name.
        Raises DiskFull and ServerStops too."""
        self._check_goes_on()
        job = job or uuid.uuid4().hex
        record = JobRecord(job, participant, model, params, time.time(), priority=priority)
        record.placement = placement
        record.lora_bytes = self.catalogue.lora_bytes(params.loras)
        self.jobs.add(record)
        try:
            self._ask(request_of(record))
        except WorkshopError:
            self.jobs.remove(job)
            raise
        try:
            await self.keeper.accepted(record)
        except WorkshopError:
            with suppress(WorkshopError):
                self.cancel(job)
            raise
        return record

    def cancel(self, job: str) -> None:
        """Raises JobUnknown, JobEnded or ServerStops."""
        record = self.jobs.get(job)
        if record.view is not None and record.view.state.ended:
            raise JobEnded(job, record.view.state.value)
        self._check_goes_on()
        self._ask(events.JobCancelled(job))

    def _check_goes_on(self) -> None:
        """Whether the journal will hear of it: Jupyter serves on while it ends its kernels."""
        if self._stopping.is_set():
            raise ServerStops

    def load(self, model: str) -> None:
        self._ask(events.ModelWanted(model))

    def evict(self, model: str) -> None:
        self._ask(events.EvictionAsked(model))

    def take_hold(self, participant: Participant, model: str, ttl_s: float) -> effects.HoldView:
        hold = uuid.uuid4().hex
        self._ask(events.HoldTaken(hold, participant.id, participant.kernel, model, ttl_s))
        return self.hold(hold)

    def renew_hold(self, hold: str, participant: Participant, ttl_s: float) -> effects.HoldView:
        self._ask(events.HoldRenewed(hold, participant.kernel, ttl_s))
        return self.hold(hold)

    def drop_hold(self, hold: str) -> None:
        self._ask(events.HoldDropped(hold))

    async def change_policy(self, policy: Policy) -> None:
        """The rules from now on, on disk too. Raises InvalidPolicy or ModelUnknown."""
        self._ask(events.PolicyChanged(policy))
        await self.keep_policy()

    async def keep_policy(self) -> None:
        """Returns once the rules are on disk as they are now; people hear where they cannot be."""
        if not await self.kept.keep_policy(self.policy):
            self._inform("The rules could not be written to disk: a restart forgets them.")

    # looking

    async def settled(self) -> None:
        """Returns once what is known now is in the journal: then it may be told."""
        await self.keeper.journal.settled()

    async def written(self, job: str) -> None:
        """Returns once the job is in the journal as it is now. Raises DiskFull."""
        await self.keeper.written(job)

    def hold(self, hold: str) -> effects.HoldView:
        """A living hold. Raises HoldUnknown or HoldEnded."""
        return self._conductor.hold(hold, time.monotonic())

    def learned(self) -> Learned:
        """What was measured so far."""
        return self._conductor.learned()

    def plan(self, model: str, size: Size, device: str | None) -> PlanView:
        """How the model would be placed for such a job. Raises what `explain` does."""
        return self._conductor.plan(model, size, time.monotonic(), device)

    def _reservation(self, reservation: str) -> effects.ReservationView:
        return self._conductor.reservation(reservation, time.monotonic())

    def snapshot(self) -> effects.Snapshot:
        return self._conductor.snapshot(time.monotonic())

    def slots(self) -> tuple[effects.SlotView, ...]:
        """What `snapshot` has of slots, without a look at the queue."""
        return self._conductor.slots(time.monotonic())

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    async def finished(self, job: str) -> JobRecord:
        """Waits until a job has ended, however it ended. Raises JobUnknown."""
        record = self.jobs.get(job)
        position = self.events.position
        while not record.ended and not self.events.closed:
            await self.events.grown(position)
            position = self.events.position
        return record

    # the conductor

    def _ask(self, event: events.Event) -> None:
        """Hands a request to the conductor; its refusal goes to the caller."""
        self._driver.ask(event)

    def _tell(self, event: events.Event) -> None:
        """Hands a fact to the conductor, after those that are being handled."""
        self._driver.tell(event)

    def _carry_out(self, effect: effects.Effect) -> None:
        if isinstance(effect, ORDERS):
            self._orders.give(effect)
        else:
            self._announce(effect)

    def _announce(self, effect: effects.Effect) -> None:
        news = self.chronicle.see(effect)
        self.events.append(effect)
        match effect:
            case effects.AnnounceJob(view):
                self.keeper.update(view)
            case effects.AnnounceReservation(reservation, ended) if ended:
                self.reservations.ended(reservation.reservation)
            case effects.AnnouncePolicy(policy):
                self.policy = policy
                self.events.append(CatalogueRead())
            case effects.Notice(text):
                self._log.info("%s", text)
        for item in news:
            self.events.append(item)

    def _inform(self, text: str) -> None:
        self._announce(effects.Notice(text))
        self.problems.look()

    # the workers

    def _prepare(self) -> protocol.Prepare:
        """What a card's worker should build ahead. On a CPU weights do not come faster for it."""
        there = (slot.model for slot in self.slots())
        return protocol.Prepare("cuda", likely_sources(self.catalogue, there))

    async def _on_report(self, device: DeviceConfig, report: protocol.FromWorker) -> None:
        match report:
            case protocol.Ready():
                self.device_names[device.id] = report.device_name
                self.worker_versions[device.id] = report.versions
                self.spare.worker_is_ready(device, report)
                if device.gpu_uuid:
                    self._supervisors[device.id].send(self._prepare())
            case protocol.Progress() if report.preview:
                self.events.append(
                    Preview(report.job, report.step, report.steps, report.image, report.preview)
                )
            case protocol.Done():
                self._tell(await self.keeper.save(report))
        processes = self.watches.processes.get(device.id)
        for fact in facts(device.id, report, processes, device.most_bytes):
            self._tell(fact)

    def _on_worker_end(self, device: DeviceConfig, end: WorkerEnd) -> None:
        if self._stopping.is_set():
            return
        self._tell(events.WorkerDied(device.id, end.reason, "\n".join(end.log)))
        if end.given_up:
            self._tell(events.DeviceGone(device.id, end.reason, _LOST_DEVICE_RETRY_S))

    def _on_xid(self, device: str, xid: Xid) -> None:
        """People are told of what is not a program's own fault; the log has everything."""
        supervisor, said = self._supervisors[device], f"the driver reported {xid}"
        match xid.reach:
            case Reach.CARD:
                self._announce(effects.Notice(f"{device} is taken out: {said}."))
                supervisor.take_out(said)
            case Reach.PROCESS:
                self._announce(effects.Notice(f"The worker of {device} starts anew: {said}."))
                supervisor.stop_worker(said)
            case Reach.CALL | Reach.NOTHING:
                self._log.warning("%s: %s", device, said)
                supervisor.note(said)
