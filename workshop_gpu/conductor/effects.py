"""Orders that the conductor gives to the shell, and the views that it announces.

Views are what the conductor knows of a thing at this moment; the API adds what only the host
knows (prompts, names, image addresses).
"""

import msgspec

from workshop_gpu.conductor.errors import ErrorReport, Fact
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.rungs import RESIDENT, Placement
from workshop_gpu.conductor.states import JobState, Priority, ReservationState, SlotState


class JobView(msgspec.Struct, frozen=True):
    """A job as the conductor sees it.

    `position` counts from 1 among the waiting jobs (0 once it runs or has ended);
    `expected_wait_s` are seconds until it starts, None while nothing is known.
    `waiting_for` says in a word what a queued job waits for: "" (its turn), "download", "load",
    "device", "pause" (the instructor paused the queue), or room: "reservation" (somebody has it
    for their own code), "foreign" (other programs), "pin", "room" (those who use the GPU now).
    Times are of the conductor's clock; -1.0 means not yet.
    """

    job: str
    participant: str
    kernel: str | None
    model: str
    priority: Priority
    state: JobState
    device: str | None
    position: int
    expected_wait_s: float | None
    waiting_for: str
    step: int
    steps: int
    submitted_s: float
    started_s: float
    ended_s: float
    error: ErrorReport | None
    batch: int = 1
    """How many jobs are drawn together with it, itself included, once it runs."""
    reason: str = ""
    """In words, who keeps it waiting, where that is somebody else's doing."""
    went_on: str = ""
    """In words, how it went on after its device had run out of memory over it."""


class SlotView(msgspec.Struct, frozen=True):
    """One model on one GPU. `bytes` are measured weights once ready, estimated before. `idle_s`
    is how long it has not been used, or had not been when it was told to leave."""

    device: str
    model: str
    state: SlotState
    bytes: int
    done_bytes: int
    total_bytes: int
    running_jobs: int
    holds: int
    pinned: bool
    idle_s: float
    error: ErrorReport | None
    placement: str = ""
    """In words, where its weights are."""
    compiled: bool = False
    """Whether its blocks are compiled."""
    loras: tuple[str, ...] = ()
    """Those that are ready for its next jobs."""
    bytes_per_s: float = 0.0
    """How fast its load goes; 0: it does not load, or nobody knows."""


class Holder(msgspec.Struct, frozen=True):
    """A named part of a GPU's memory.

    `kind`: weights (of a model, or "shared by a, b"), freeing, working (of a job),
    kept_free (beside a model, whose settings say so), cache (our worker's, beyond the rest),
    reservation (its id), foreign (a process by its name), margin.
    """

    kind: str
    name: str
    bytes: int


class DeviceView(msgspec.Struct, frozen=True):
    """A GPU's account: `total_bytes` = `free_bytes` + the sum over `holders`
    (free may be negative where others took what we had promised)."""

    device: str
    state: str
    """starting, ready or lost"""
    total_bytes: int
    free_bytes: int
    holders: tuple[Holder, ...]
    reason: str = ""
    """Why it does not work, where its worker ended or it was given up."""
    retry_s: float | None = None
    """How often it is tried again once it is lost; None: never."""


class HoldView(msgspec.Struct, frozen=True):
    """A kernel's reference on a model."""

    hold: str
    participant: str
    kernel: str | None
    model: str
    expires_in_s: float


class ReservationView(msgspec.Struct, frozen=True):
    """Room on a GPU for somebody's own code.

    `size_bytes` None is the whole GPU. While it waits, `device` is the one that was asked for
    (None: any), `position` counts from 1 among all who wait, `expected_wait_s` is None where
    nobody knows, and `reason` says in words what it waits for. `expires_in_s` None: it has no
    time of its own.
    """

    reservation: str
    participant: str
    kernel: str | None
    device: str | None
    size_bytes: int | None
    state: ReservationState
    position: int
    expected_wait_s: float | None
    expires_in_s: float | None
    reason: str = ""


class Snapshot(msgspec.Struct, frozen=True):
    """Everything that the conductor knows, at one moment."""

    devices: tuple[DeviceView, ...]
    slots: tuple[SlotView, ...]
    jobs: tuple[JobView, ...]
    """Waiting in their order, then running; ended jobs are not in it."""
    holds: tuple[HoldView, ...]
    reservations: tuple[ReservationView, ...] = ()
    """In the order in which they were asked for."""
    policy: Policy = Policy()
    newcomers_s: dict[str, float | None] = {}
    """As in `AnnounceWaits`."""


class Effect(msgspec.Struct, frozen=True):
    """The base of all effects."""


class LoadModel(Effect, frozen=True):
    """Bring the model into this placement on the device, from wherever it is.

    Its weights may take `most_bytes` (0: no limit). Answered by SlotLoaded or LoadFailed (or
    WorkerDied).
    """

    device: str
    model: str
    placement: Placement = RESIDENT
    most_bytes: int = 0


class EvictModel(Effect, frozen=True):
    """Drop the model from the device; answered by SlotEvicted. `room_for` names the model whose
    load will follow, if that is why."""

    device: str
    model: str
    room_for: str = ""


class FetchModel(Effect, frozen=True):
    """Download the model; answered by CatalogueChanged with it on disk, or by FetchFailed."""

    model: str


class StopFetch(Effect, frozen=True):
    """The download takes too long: end it. Nothing more is expected of it."""

    model: str


class StopWorker(Effect, frozen=True):
    """The device's worker takes too long over a load or a job: kill it; answered by WorkerDied."""

    device: str
    reason: str


class RunJob(Effect, frozen=True):
    """Run the job; answered by JobStarted, JobProgressed, then JobDrawn and JobFinished, JobFailed
    or JobStopped. `others` are further jobs that are drawn together with it; each of them is
    answered by itself."""

    device: str
    job: str
    model: str
    others: tuple[str, ...] = ()
    placement: str = ""
    """The name of the model's placement, unless all of it is on the device."""
    compiles: bool = False
    """Compiled blocks may be used, and made for the next job."""


class CompileModel(Effect, frozen=True):
    """Compile the model's blocks beside all else; answered by SlotCompiled, maybe minutes later."""

    device: str
    model: str


class CancelJob(Effect, frozen=True):
    """Stop the running job between two steps; answered by JobStopped (or JobDrawn if late)."""

    device: str
    job: str


class AnnounceJob(Effect, frozen=True):
    """The job changed (state, position, expected wait, progress)."""

    job: JobView


class AnnounceSlot(Effect, frozen=True):
    """The slot changed; `freed_bytes` is set where it just left, `why` says in words why, and
    `participant` is whose job needs the room, where one does."""

    slot: SlotView
    freed_bytes: int = 0
    why: str = ""
    participant: str = ""


class AnnounceDevice(Effect, frozen=True):
    """The device's account or state changed."""

    device: DeviceView


class AnnounceHold(Effect, frozen=True):
    """A hold was taken, renewed, or ended (`ended` says why, "" while it lives)."""

    hold: HoldView
    ended: str = ""


class AnnounceReservation(Effect, frozen=True):
    """A reservation waits, was granted or renewed, or ended (`ended` says why, "" before)."""

    reservation: ReservationView
    ended: str = ""


class AnnouncePolicy(Effect, frozen=True):
    """The instructor's policy changed."""

    policy: Policy


class AnnounceWaits(Effect, frozen=True):
    """Seconds until a job of each model would start if it were submitted now; None where nobody
    knows. Told with ticks, in coarse steps."""

    newcomers_s: dict[str, float | None]


class Notice(Effect, frozen=True):
    """Something people should read ("weights of X measured: 28 GB, not 8 GB")."""

    text: str
    facts: dict[str, Fact] = {}
