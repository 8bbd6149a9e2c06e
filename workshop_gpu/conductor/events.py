"""Facts that the conductor is told. Requests among them are refused by raising a `WorkshopError`.

All are frozen structs. Ids are made by the shell (the conductor has no randomness), times are
seconds of one monotonic clock, passed to `Conductor.handle` as `now`.
"""

import msgspec

from workshop_gpu.conductor.accounts import Accounts
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.memory_settings import AUTOMATIC, MemorySettings
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.rungs import RESIDENT, Placement, RoleBytes
from workshop_gpu.conductor.states import Priority


class Event(msgspec.Struct, frozen=True):
    """The base of all events."""


class ModelFacts(msgspec.Struct, frozen=True):
    """What the conductor knows of a model: numbers, never its kind.

    `explicit_bytes` is the instructor's own figure for the weights, `file_bytes` the size of the
    weight files times the format's factor; 0 where unknown. `problem` is set where the files
    cannot be used (missing, half a folder, pickle): such a model is never loaded. One that is
    not `on_disk` yet is downloaded when somebody wants it. Models that name the same `denoiser`
    (the shape of its network, "": nobody else's) need equal working memory. `roles` say what its
    parts take, () where nobody knows: then it is placed as a whole or not at all. `memory` is
    what the instructor says of its placement, `compiles` whether its blocks may be compiled.
    `lacks`: what of "tiled" and "sliced" it is known not to be able to do.
    """

    model: str
    enabled: bool = True
    disabled_reason: str = ""
    problem: str = ""
    pinned: bool = False
    keep_warm_s: float = 900.0
    explicit_bytes: int = 0
    file_bytes: int = 0
    on_disk: bool = True
    denoiser: str = ""
    roles: tuple[RoleBytes, ...] = ()
    memory: MemorySettings = AUTOMATIC
    lacks: tuple[str, ...] = ()
    compiles: bool = True


class CatalogueChanged(Event, frozen=True):
    """The whole catalogue as it is now; models that are no longer in it leave when idle."""

    models: tuple[ModelFacts, ...]


class DeviceReady(Event, frozen=True):
    """A worker stands ready with an empty device; also after a restart. `bus_bytes_per_s` is how
    fast weights come to it from host memory (0: not measured). `compiles`: it can compile
    blocks. `neighbours`: other devices whose memory it can use."""

    device: str
    total_bytes: int
    foreign_bytes: int = 0
    bus_bytes_per_s: float = 0.0
    compiles: bool = False
    neighbours: tuple[str, ...] = ()


class WorkerDied(Event, frozen=True):
    """The device's worker process ended; all that it had on the device is gone. `log` are the
    last lines that it wrote."""

    device: str
    reason: str
    log: str = ""


class WorkerDrifted(Event, frozen=True):
    """The device's worker does not give back all memory after its jobs: so many bytes are missing
    on the device and on the host."""

    device: str
    device_bytes: int
    host_bytes: int


class DeviceGone(Event, frozen=True):
    """The device was given up: it is gone, or its worker does not start. Jobs wait for it where it
    is tried again every `retry_s` seconds; None: it never is."""

    device: str
    reason: str
    retry_s: float | None = None


class ForeignProcess(msgspec.Struct, frozen=True):
    """A process that is not ours and holds memory of a GPU.

    `name` is what people know it by (the notebook's, or the program's); `kernel` is the kernel
    that it belongs to, None where it belongs to none of this server. `is_spare`: it is the worker
    that stands by, of which nobody has reserved anything.
    """

    name: str
    pid: int
    kernel: str | None
    bytes: int
    is_spare: bool = False


class MemoryRead(Event, frozen=True):
    """The driver's reading: all bytes in use, and those in use by our worker (context included).

    `processes` are those others that the driver names; None: it was not asked, and they are as
    they were. `taken_s` is when the reading was taken, on the conductor's clock; None: after all
    that was told before. `elsewhere` is what the worker holds of other devices, by name.
    """

    device: str
    used_bytes: int
    ours_bytes: int
    processes: tuple[ForeignProcess, ...] | None = None
    taken_s: float | None = None
    elsewhere: dict[str, int] = {}


class FetchFailed(Event, frozen=True):
    """The model could not be downloaded. (One that was is told by CatalogueChanged.)"""

    model: str
    error: ErrorReport


class JobSubmitted(Event, frozen=True):
    """A checked request. Refused with ModelUnknown, ModelDisabled, ModelUnavailable,
    ModelTooLarge, InvalidPlacement, NotRepeatable, QueueFull or NoDevice.

    `steps` are those of all its `images`, which are drawn one after the other.
    `batch`: how many images of its own it makes at once. `group`: waiting jobs of the same model
    and the same group (not "") may run as one batch, whoever asked for them; the shell names it
    by all that must be equal for that (size, steps, guidance, scheduler). `placement` is a rung's
    name, where an instructor asked for one ("": the planner decides). `manner` is that of the
    placement in which the picture was drawn that it repeats ("": whichever), `compiled` whether it
    was drawn with compiled blocks (None: it repeats none). `beside_bytes` come to the device with
    it and leave with it (LoRAs).
    """

    job: str
    participant: str
    kernel: str | None
    model: str
    steps: int
    pixels: int
    batch: int = 1
    priority: Priority = Priority.NORMAL
    group: str = ""
    placement: str = ""
    manner: str = ""
    beside_bytes: int = 0
    compiled: bool | None = None
    images: int = 1


class RestoredJob(msgspec.Struct, frozen=True):
    """A job that an earlier life of the server accepted `waited_s` seconds ago, and never ended;
    `ran`: a worker had it when that life ended. `deaths`: how many lives ended without warning
    while it ran."""

    request: JobSubmitted
    waited_s: float
    ran: bool = False
    deaths: int = 0


class JobsRestored(Event, frozen=True):
    """The server has started again; once, before all requests. The jobs are in the order in which
    they were accepted."""

    jobs: tuple[RestoredJob, ...]
    accounts: Accounts = Accounts()


class JobCancelled(Event, frozen=True):
    """Somebody with the right to it cancels a job. Refused with JobUnknown or JobEnded."""

    job: str


class JobStarted(Event, frozen=True):
    """The worker began with the job."""

    job: str


class JobProgressed(Event, frozen=True):
    """`step` of `steps` denoising steps are done (of the whole job, all its images)."""

    job: str
    step: int
    steps: int


class JobDrawn(Event, frozen=True):
    """The device has done its part of the job, whose pictures are made into files now.

    `peak_bytes` is working memory above the weights; 0: not measured. `batch` jobs were drawn
    together; then `seconds_s`, `steps_s` and `peak_bytes` are those of all of them. Their steps
    took `steps_s` of the seconds (0: not measured). `compiled`: with compiled blocks; `to_compile`:
    some blocks of the model could be. `loras` are those that its worker has ready for the model
    now. `encoded`: the text encoders read the prompt for each picture, which they need not where
    they did so before.
    """

    job: str
    seconds_s: float
    peak_bytes: int = 0
    batch: int = 1
    compiled: bool = False
    to_compile: bool = False
    loras: tuple[str, ...] = ()
    steps_s: float = 0.0
    encoded: bool = True


class JobFinished(Event, frozen=True):
    """The images are on disk."""

    job: str


class JobFailed(Event, frozen=True):
    """The worker reported an error for this job."""

    job: str
    error: ErrorReport


class JobStopped(Event, frozen=True):
    """The worker stopped the job because it had been told to cancel it."""

    job: str


class SlotProgressed(Event, frozen=True):
    """A load goes on; bytes are of weights, `bytes_per_s` is its speed (0: not known yet)."""

    device: str
    model: str
    done_bytes: int
    total_bytes: int
    bytes_per_s: float = 0.0


class PartBytes(msgspec.Struct, frozen=True):
    """One component's weights on a device; `part` is the digest of its content."""

    part: str
    bytes: int


class SlotLoaded(Event, frozen=True):
    """The model is on the device; `weights_bytes` is measured: what stays there between jobs.

    `parts` name its components, so that one which several models of a device share counts once;
    without them the model's weights count as its own. `placement` is what was done, `roles` what
    each role's weights take in all, and `transient_bytes` the most that weights which come for a
    while bring in addition at any moment of a job. `lacks`: what of "tiled" and "sliced" the model
    cannot do. `encoders` name the components that encode text, wherever they are.
    """

    device: str
    model: str
    weights_bytes: int
    seconds_s: float
    parts: tuple[PartBytes, ...] = ()
    placement: Placement = RESIDENT
    roles: tuple[RoleBytes, ...] = ()
    transient_bytes: int = 0
    lacks: tuple[str, ...] = ()
    encoders: tuple[PartBytes, ...] = ()


class SlotCompiled(Event, frozen=True):
    """Whether the model's jobs are drawn with compiled blocks from now on. `problem` says why they
    are not, where they were to be compiled."""

    device: str
    model: str
    ready: bool
    problem: str = ""


class LoadFailed(Event, frozen=True):
    """The load ended with an error and left nothing behind."""

    device: str
    model: str
    error: ErrorReport


class SlotEvicted(Event, frozen=True):
    """The model left and `freed_bytes` came back."""

    device: str
    model: str
    freed_bytes: int


class ModelWanted(Event, frozen=True):
    """The instructor asks to have a model ready (preload)."""

    model: str


class EvictionAsked(Event, frozen=True):
    """The instructor asks that a model leaves every GPU. Refused with ModelUnknown,
    ModelNotLoaded or ModelInUse."""

    model: str


class HoldTaken(Event, frozen=True):
    """A kernel takes a reference on a model for `ttl_s` seconds; the model is loaded if absent."""

    hold: str
    participant: str
    kernel: str | None
    model: str
    ttl_s: float


class HoldRenewed(Event, frozen=True):
    """By the kernel that took it. Refused with InvalidRequest, HoldUnknown (also where it is
    another kernel's, be it the same participant's) or HoldEnded."""

    hold: str
    kernel: str | None
    ttl_s: float


class HoldDropped(Event, frozen=True):
    """Refused with HoldUnknown or HoldEnded."""

    hold: str


class ReservationAsked(Event, frozen=True):
    """Room on a GPU for somebody's own code. It waits its turn among the jobs.

    `size_bytes` None is the whole GPU: what runs there finishes and nothing new begins. `device`
    None is whichever GPU has room first. It ends with its kernel, and `ttl_s` seconds after it
    was asked for or renewed last (None: never). Without kernel and time it is the instructor's
    own, and pinned models leave for it too. Refused with InvalidRequest, DeviceUnknown, NoDevice,
    ReservationTooLarge or TooManyReservations.
    """

    reservation: str
    participant: str
    kernel: str | None
    size_bytes: int | None
    device: str | None = None
    ttl_s: float | None = None


class ReservationRenewed(Event, frozen=True):
    """By the kernel that asked for it. Refused with InvalidRequest, ReservationUnknown (also
    where it is another kernel's) or ReservationEnded."""

    reservation: str
    kernel: str | None
    ttl_s: float


GIVEN_BACK = "given back"
TAKEN_AWAY = "the instructor ended it"


class ReservationDropped(Event, frozen=True):
    """By its owner (`why` is GIVEN_BACK), or by the instructor (TAKEN_AWAY). Refused with
    ReservationUnknown or ReservationEnded."""

    reservation: str
    why: str = GIVEN_BACK


class PolicyChanged(Event, frozen=True):
    """The instructor's whole policy as it is from now on. Refused with InvalidPolicy or
    ModelUnknown."""

    policy: Policy


class KernelGone(Event, frozen=True):
    """A kernel ended or restarts: its holds and reservations go, its waiting jobs are
    cancelled."""

    kernel: str


class ParticipantReplaced(Event, frozen=True):
    """The heir takes the participant's place, as a notebook's next kernel does: all that waits or
    runs for it, its account and the instructor's rules for it are the heir's, whose jobs belong to
    `kernel`. Holds and reservations stay behind: they end with their own kernel."""

    participant: str
    heir: str
    kernel: str | None


class Tick(Event, frozen=True):
    """Time passed (about once a second): timers are looked at."""
