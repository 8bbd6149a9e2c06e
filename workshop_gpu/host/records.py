"""What the host knows of a job beyond the conductor's numbers: the prompt, who, times, images."""

import time
from collections.abc import Iterator
from pathlib import PurePosixPath

import msgspec

from workshop_gpu.conductor.effects import JobView
from workshop_gpu.conductor.errors import JobUnknown
from workshop_gpu.conductor.states import Priority
from workshop_gpu.worker.protocol import GenerateParams


class Participant(msgspec.Struct, frozen=True):
    """Against whose share a job counts: a kernel of this server, or a person.

    `id` never changes while the kernel or the login lives; `name` is what others see. `notebook`
    is the path of a kernel's notebook, "" where it has none.
    """

    id: str
    name: str
    kernel: str | None = None
    notebook: str = ""

    @property
    def notebook_name(self) -> str:
        """The notebook's file name, without the folders that it lies in."""
        return PurePosixPath(self.notebook).name


class JobRecord(msgspec.Struct):
    """A job with all that belongs to it. `…_at` are seconds since 1970."""

    id: str
    participant: Participant
    model: str
    params: GenerateParams
    submitted_at: float
    view: JobView | None = None
    started_at: float | None = None
    ended_at: float | None = None
    saved_images: int = 0
    saved_bytes: int = 0
    priority: Priority = Priority.NORMAL
    seconds_s: float | None = None
    """What the worker took for it, without waiting and loading."""
    placement: str = ""
    """The rung that an instructor asked for ("": the planner decides)."""
    lora_bytes: int = 0
    """What its LoRAs take on the device; they come with it and leave with it."""
    deaths: int = 0
    """How many of the server's lives ended without warning while it ran."""

    @property
    def group(self) -> str:
        """Jobs of one model and one group may be drawn together; "" for one that stays alone.

        Every job gets the model's own scheduler, so that it need not be named.
        """
        made = self.params
        # A repeated picture is drawn as it was: by itself, or in a batch of its own likes. One that
        # is measured step by step is, so that its seconds are its own.
        repeats = made.batch > 1 or made.manner or made.compiled is not None
        if made.images > 1 or repeats or made.start_image or made.profile:
            return ""
        # Some pipelines take "no negative prompt" for something else than an empty one.
        negative = "negative" if made.negative_prompt else ""
        loras = " ".join(f"{name}:{scale!r}" for name, scale in made.loras.items())
        return f"{made.width}x{made.height} {made.steps} {made.guidance!r} {negative} {loras}"

    @property
    def ended(self) -> bool:
        return self.view is not None and self.view.state.ended


class JobRecords:
    """All jobs that are still remembered, oldest first."""

    def __init__(self) -> None:
        self._records: dict[str, JobRecord] = {}
        self._of: dict[str, dict[str, JobRecord]] = {}

    def __iter__(self) -> Iterator[JobRecord]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: JobRecord) -> None:
        self._records[record.id] = record
        self._of.setdefault(record.participant.id, {})[record.id] = record

    def remove(self, job: str) -> None:
        record = self._records.pop(job, None)
        if record is not None:
            self._disown(record)

    def give(self, record: JobRecord, heir: Participant) -> None:
        """The job is somebody else's from now on."""
        self._disown(record)
        record.participant = heir
        self._of.setdefault(heir.id, {})[record.id] = record

    def _disown(self, record: JobRecord) -> None:
        own = self._of[record.participant.id]
        del own[record.id]
        if not own:
            del self._of[record.participant.id]

    def get(self, job: str) -> JobRecord:
        """Raises JobUnknown."""
        try:
            return self._records[job]
        except KeyError:
            raise JobUnknown(job) from None

    def find(self, job: str) -> JobRecord | None:
        """None for a job that is not, or no longer, remembered."""
        return self._records.get(job)

    def of(self, participant: str) -> list[JobRecord]:
        """A participant's jobs, newest first."""
        return list(reversed(self._of.get(participant, {}).values()))

    def latest_of(self, participant: str) -> JobRecord | None:
        """A participant's newest job."""
        return next(reversed(self._of.get(participant, {}).values()), None)

    def recent(self, participant: str, ended: int) -> list[JobRecord]:
        """Those of a participant's jobs that have not ended, and so many of the others; newest
        first."""
        found: list[JobRecord] = []
        for record in self.of(participant):
            if record.ended:
                ended -= 1
            if not record.ended or ended >= 0:
                found.append(record)
        return found

    def update(self, view: JobView) -> JobRecord | None:
        """Takes over the conductor's view of a job and notes when it started and ended."""
        record = self._records.get(view.job)
        if record is None:
            return None
        record.view = view
        if view.started_s >= 0 and record.started_at is None:
            record.started_at = time.time()
        if view.state.ended and record.ended_at is None:
            record.ended_at = time.time()
        return record
