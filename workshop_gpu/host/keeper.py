"""Jobs outlive the server: their records, the journal and the pictures on disk belong together."""

import errno
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import anyio
import msgspec

from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.accounts import Accounts
from workshop_gpu.conductor.changes import MOST_DEATHS
from workshop_gpu.conductor.errors import DiskFull, ErrorReport, ServerLost
from workshop_gpu.conductor.states import JobState
from workshop_gpu.host.image_store import ImageStore, Stored
from workshop_gpu.host.input_store import InputStore
from workshop_gpu.host.journal import Journal
from workshop_gpu.host.journal_records import entry_of, record_of, request_of
from workshop_gpu.host.journal_rows import Entry
from workshop_gpu.host.records import JobRecord, JobRecords, Participant
from workshop_gpu.host.retention import Kept, Limits, expired
from workshop_gpu.host.stopping import ServerStops
from workshop_gpu.worker import protocol

_LOOK_S = 30.0
"""How often it is looked whether something is to be forgotten."""
LoraBytes = Callable[[Iterable[str]], int]
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Keeper:
    """On the event loop's thread. `accounts` gives everybody's account of GPU seconds."""

    def __init__(
        self,
        path: Path,
        records: JobRecords,
        images: ImageStore,
        inputs: InputStore,
        limits: Limits,
        accounts: Callable[[], Accounts],
        log: logging.Logger,
    ) -> None:
        self.records = records
        self.limits = limits
        self.journal = Journal(path, log, accounts, lambda: map(entry_of, self.records))
        self._images = images
        self._inputs = inputs
        self._log = log
        self._orphans: dict[str, Stored] = {}
        """Pictures of jobs that nobody knows any more."""
        self._looked_at = float("-inf")
        self.image_bytes = 0
        """Of all pictures that are kept, those that jobs began with included."""

    @property
    def problem(self) -> str:
        """Why jobs would not outlive the server, or what was set aside; "" while all is well."""
        return self.journal.problem

    # the server's lives

    async def restore(self, lora_bytes: LoraBytes = lambda _: 0) -> events.JobsRestored:
        """Takes in what earlier lives left; gives the jobs that have not ended. `lora_bytes` says
        what the LoRAs of these names take now."""
        entries, accounts = await self.journal.open()
        await anyio.to_thread.run_sync(self._images.sweep)
        stored = await anyio.to_thread.run_sync(self._images.look)
        restored: list[events.RestoredJob] = []
        for left in entries:
            entry = self._counted(await self._with_pictures(left, stored.pop(left.id, None)))
            record = record_of(entry)
            self.records.add(record)
            if not record.ended:
                record.lora_bytes = lora_bytes(record.params.loras)
                waited_s = max(0.0, time.time() - entry.submitted_at)
                ran = entry.started_at is not None
                request = request_of(record)
                restored.append(events.RestoredJob(request, waited_s, ran, entry.deaths))
        self._orphans = stored
        self.image_bytes = sum(kept.image_bytes for kept in self._kept())
        return events.JobsRestored(tuple(restored), accounts)

    async def _with_pictures(self, entry: Entry, pictures: Stored | None) -> Entry:
        """The job as the disk has it, which is ahead of the journal where the server died
        between the pictures and their line in it."""
        if entry.state.ended:
            return msgspec.structs.replace(entry, images=pictures.images if pictures else 0)
        if pictures is None:
            return entry
        if pictures.images != entry.params.images:
            await anyio.to_thread.run_sync(self._images.forget, entry.id)
            return entry
        done = msgspec.structs.replace(
            entry,
            state=JobState.DONE,
            ended_at=pictures.at,
            images=pictures.images,
            image_bytes=pictures.bytes,
        )
        self.journal.put(done)
        return done

    def _counted(self, entry: Entry) -> Entry:
        """A job that ran waits again. It may be why the server ended, where that was without
        warning: the second time it is not tried again, else it would end the server for ever."""
        if entry.state is not JobState.RUNNING:
            return entry
        deaths = entry.deaths + (not self.journal.ended_well)
        counted = msgspec.structs.replace(entry, state=JobState.QUEUED, deaths=deaths)
        if deaths >= MOST_DEATHS:
            error = ServerLost(entry.model, deaths).report()
            self._log.error("Job %s: %s", entry.id, error.message)
            counted = msgspec.structs.replace(
                counted, state=JobState.FAILED, ended_at=time.time(), error=error
            )
        self.journal.put(counted)
        return counted

    def inherit(self, heir: Participant, running: Collection[str]) -> list[str]:
        """A notebook's new kernel owns the jobs of those of its kernels that do not run. Says
        whose they were."""
        owners: list[str] = []
        for record in list(self.records):
            owner = record.participant
            if heir.notebook and owner.notebook == heir.notebook and owner.kernel not in running:
                owners.append(owner.id)
                self.records.give(record, heir)
                self.journal.put(entry_of(record))
        return owners

    # a job's way

    async def accepted(self, record: JobRecord) -> None:
        """Returns once the job is in the journal. Raises DiskFull or ServerStops where it cannot
        be written."""
        self.journal.put(entry_of(record))
        await self.written(record.id)

    async def written(self, job: str) -> None:
        """Returns once all that is known of the job by now is in the journal. Raises DiskFull or
        ServerStops."""
        await self.journal.settled()
        fault = self.journal.fault_of(job)
        if fault and self.journal.closed:
            raise ServerStops
        if fault:
            raise DiskFull("The job could not be noted", fault)

    def update(self, view: effects.JobView) -> None:
        """Takes over the conductor's view of a job; the journal hears of another state."""
        known = self.records.find(view.job)
        state = known.view.state if known and known.view else JobState.QUEUED
        record = self.records.update(view)
        if record is not None and view.state is not state:
            # The pictures on the disk tell the server's next life that the job is done; one that
            # only seems to wait still is drawn again, as a running one is.
            found_without = view.state in (JobState.RUNNING, JobState.DONE)
            self.journal.put(entry_of(record), awaited=not found_without)

    async def save(self, done: protocol.Done) -> events.Event:
        """The images are on disk before the job is done; without them it has failed."""
        try:
            size_bytes = await anyio.to_thread.run_sync(self._images.save, done.job, done.images)
        except OSError as error:
            return events.JobFailed(done.job, _not_saved(error))
        self.image_bytes += size_bytes
        record = self.records.find(done.job)
        if record is not None:
            record.saved_images, record.saved_bytes = len(done.images), size_bytes
            record.seconds_s = done.drawn.seconds_s
        return events.JobFinished(done.job)

    # retention

    async def look_after(self) -> None:
        """Now and then: forgets what is kept no longer, writes what could not be written."""
        self.journal.retry()
        now = time.monotonic()
        if now < self._looked_at + _LOOK_S:
            return
        self._looked_at = now
        gone = expired(self._kept(), self.limits, time.time())
        for job in gone:
            self.records.remove(job)
            self._orphans.pop(job, None)
        if gone:
            self.journal.forget(gone)
            await self.journal.settled()
        for job in gone:
            await anyio.to_thread.run_sync(self._images.forget, job)
        self.image_bytes = sum(kept.image_bytes for kept in self._kept())

    def _kept(self) -> Iterator[Kept]:
        """Newest first. A picture that several jobs began with counts once, for the newest: only
        with that one it goes."""
        counted: set[str] = set()
        for record in sorted(filter(_has_ended, self.records), key=_ended_at, reverse=True):
            began_with = self._inputs.sizes(record.params)
            size_bytes = record.saved_bytes if record.saved_images else 0
            size_bytes += sum(began_with[each] for each in began_with.keys() - counted)
            counted |= began_with.keys()
            yield Kept(record.id, _ended_at(record), size_bytes)
        for job, pictures in self._orphans.items():
            yield Kept(job, pictures.at, pictures.bytes)


def _has_ended(record: JobRecord) -> bool:
    return record.ended


def _ended_at(record: JobRecord) -> float:
    return record.ended_at or record.submitted_at


def _not_saved(error: OSError) -> ErrorReport:
    if error.errno in _NO_ROOM:
        return DiskFull("The images were made but could not be kept", str(error.strerror)).report()
    return ErrorReport(
        "images_not_saved",
        f"The images were made but could not be written to disk: {error.strerror}. "
        "Tell the instructor.",
    )
