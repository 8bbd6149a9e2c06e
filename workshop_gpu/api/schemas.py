"""Bodies of requests and answers. The OpenAPI description is made from these structs.

Times (`…_at`) are seconds since 1970, UTC. Bytes are integers. An unknown key in a request is
an error, so that a mistyped option is never silently ignored.
"""

from typing import Literal, get_args

import msgspec

from workshop_gpu.api.schemas_room import (
    HelpCall,
    HelpEvent,
    Message,
    MessageEvent,
    News,
    NewsEvent,
)
from workshop_gpu.conductor.effects import Holder
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.states import JobState, SlotState

PriorityName = Literal["urgent", "high", "normal", "low", "batch"]
PRIORITIES: tuple[PriorityName, ...] = get_args(PriorityName)

MAX_PROMPT_CHARACTERS = 5000

# requests


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST jobs. What is None takes the model's default; a seed that is None is drawn.

    `batch` and `place`, from a picture's record, repeat one that was drawn together with others;
    `manner`, from there too, one that was drawn with tiles, slices or text encoders on the CPU, or
    without ("exact"), and `compiled` one that was drawn with compiled blocks, or without them.
    `id`, 32 hexadecimal digits, is the job's: a request that is sent again with the same id,
    because its answer was lost, makes no second job. `placement` is the name of a rung on which the
    model has to be (instructor). With `profile` it is measured how each step's time is spent; the
    pictures' metadata tell.

    `start_image` is the id of an input to begin with, of which `strength` (above 0, at most 1;
    null: 0.7, with a mask 1) says how much is drawn anew. `mask` is that of an input of equal size,
    white where the picture is drawn anew. Without width and height the picture is as large as its
    start image, as far as the model can. `loras` are put on, each with a scale from -2 to 2 (null:
    its default).
    """

    model: str
    prompt: str
    negative_prompt: str = ""
    seed: int | None = None
    steps: int | None = None
    guidance: float | None = None
    width: int | None = None
    height: int | None = None
    images: int = 1
    batch: int = 1
    place: int = 0
    manner: str = ""
    compiled: bool | None = None
    priority: PriorityName = "normal"
    id: str = ""
    placement: str = ""
    profile: bool = False
    start_image: str = ""
    mask: str = ""
    strength: float | None = None
    loras: dict[str, float | None] = {}


class HoldRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST holds. `ttl_s` is at most an hour; renew it in time."""

    model: str
    ttl_s: float = 120.0


class RenewRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT holds/ID."""

    ttl_s: float = 120.0


class ReservationRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST reservations. `size_bytes` null asks for a whole GPU; `device` null takes whichever
    is best. `ttl_s` is at most an hour; renew it in time, also while it waits."""

    size_bytes: int | None
    device: str | None = None
    ttl_s: float = 120.0


class NameRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT me: the name that others see for this participant."""

    name: str


# answers


class ImageInfo(msgspec.Struct, frozen=True):
    """One finished image; `url` is relative to the server's base URL."""

    index: int
    seed: int
    url: str


class Job(msgspec.Struct, frozen=True):
    """A job. Prompts, seeds and images are there for its owner and for admins only.

    `seconds_s` is what the worker took for a finished job, without waiting and loading.
    """

    id: str
    state: JobState
    model: str
    participant: str
    mine: bool
    position: int
    expected_wait_s: float | None
    waiting_for: str
    step: int
    steps: int
    device: str | None
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    seconds_s: float | None = None
    params: dict[str, str | int | float | bool | dict[str, float] | None] | None = None
    """prompt, negative_prompt, seed, steps, guidance, width, height, images, batch, place,
    manner, compiled, start_image, mask, strength, loras, profile"""
    images: list[ImageInfo] = []
    error: ErrorReport | None = None
    batch: int = 1
    """How many jobs are drawn together, this one included, while it runs and afterwards."""
    reason: str = ""
    """In words, who keeps it waiting, where that is somebody else's doing."""
    went_on: str = ""
    """In words, how it went on after its GPU had run out of memory over it."""
    kernel: str | None = None
    """The kernel that asked for it, so that a page knows those of its own notebooks."""
    priority: PriorityName = "normal"
    """Its class in the queue: the participant's, or the job's own where that is later."""


class Input(msgspec.Struct, frozen=True):
    """POST inputs: a picture that jobs of this participant may begin with, or use as a mask.

    `id` is the SHA-256 of the file; width and height are pixels, as its EXIF turns it. It is kept
    as long as a job of it is, and for an hour at least.
    """

    id: str
    width: int
    height: int
    size_bytes: int


class JobList(msgspec.Struct, frozen=True):
    """GET jobs."""

    jobs: list[Job]


class Slot(msgspec.Struct, frozen=True):
    """One model's presence on one GPU."""

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
    error: ErrorReport | None = None
    placement: str = ""
    """In words, where its weights are."""
    compiled: bool = False
    """Whether jobs draw with its compiled blocks."""
    loras: tuple[str, ...] = ()
    """The ids of those that are ready for its next jobs."""
    bytes_per_s: float = 0.0
    """How fast its load goes; 0: it does not load, or nobody knows."""


class Lora(msgspec.Struct, frozen=True):
    """A LoRA that can be put on a model; `scale` is its default. `problem` says why it cannot be
    used ("": it can)."""

    id: str
    title: str
    description: str
    scale: float
    bytes: int
    problem: str = ""


class Model(msgspec.Struct, frozen=True):
    """A model of the catalogue. `state` is the best of its slots' states, or "downloading"."""

    id: str
    title: str
    description: str
    kind: str
    enabled: bool
    reason: str
    state: Literal["absent", "downloading", "loading", "ready", "leaving", "failed", "unavailable"]
    problem: str
    bytes: int
    done_bytes: int
    total_bytes: int
    defaults: dict[str, int | float]
    """steps, guidance, width, height"""
    limits: dict[str, int]
    """max_pixels, max_steps, max_images, size_multiple"""
    pinned: bool
    slots: list[Slot]
    keep_warm_s: float = 0.0
    placement: str = "auto"
    """How it is to be placed: a rung's name, or "auto"."""
    accepts: tuple[str, ...] = ("text",)
    """What a picture may be made from: "text", "image" (a start image), "mask"."""
    expected_wait_s: float | None = None
    """Until a job that is submitted now would begin; null where nobody knows."""
    loras: list[Lora] = []
    """Those on offer that fit it."""
    bytes_per_s: float = 0.0
    """How fast its load goes; 0: it does not load, or nobody knows."""


class ModelList(msgspec.Struct, frozen=True):
    """GET models. `problems` are mistakes of models.toml, with line and reason."""

    models: list[Model]
    problems: list[str] = []


class Device(msgspec.Struct, frozen=True):
    """A GPU and who holds its memory: `total_bytes` = `free_bytes` + the sum over `holders`
    (free may be negative where others took what was promised).

    Kinds of holders: weights (of a model, by its name), shared (parts of these models), freeing
    (of a model that leaves), working (of jobs, by whose they are), kept_free (nobody's: it stays
    free beside a model, which the name says), cache (our worker's, beyond the rest), reservation
    (by whose it is), notebook (own code, by the notebook's name), foreign (another program),
    margin.

    `state` is "starting", "ready" or "lost".
    """

    id: str
    name: str
    state: str
    total_bytes: int
    free_bytes: int
    holders: list[Holder]
    slots: list[Slot]
    reason: str = ""
    """Why it does not work: how its worker ended, or why it was given up. "" where it works, and
    while it starts for the first time."""
    retry_s: float | None = None
    """How often one that is lost is tried again; null: never."""


class Reservation(msgspec.Struct, frozen=True):
    """GPU memory set aside for somebody's own code.

    `state` is "waiting" (then `position` and `expected_wait_s` say for how long), "granted", or
    "ended". `size_bytes` is null, and `whole` true, where it is a whole GPU. `expires_in_s` is
    null for the instructor's own, which last until they are given back.
    """

    id: str
    participant: str
    mine: bool
    device: str | None
    size_bytes: int | None
    whole: bool
    state: Literal["waiting", "granted", "ended"]
    position: int
    expected_wait_s: float | None
    expires_in_s: float | None
    reason: str = ""
    """In words, what it waits for."""
    kernel: str | None = None
    """Whose code it is for: for its owner, pages and admins."""


class Me(msgspec.Struct, frozen=True):
    """Who asks: the participant, the kernel (None for a browser), and whether it may administer."""

    participant: str
    name: str
    kernel: str | None
    admin: bool


class PoolPart(msgspec.Struct, frozen=True):
    """One component's weights in the weight pool: the models that it was loaded for, and how many
    workers use it (0: it leaves when room is needed). `lora`: the name of a LoRA that a worker
    keeps for its model's next jobs, which counts as the weights do ("": it is a component)."""

    size_bytes: int
    models: list[str]
    workers: int
    lora: str = ""


class Pool(msgspec.Struct, frozen=True):
    """The weight pool in this machine's memory. `problem` says why there is none, or why weights
    are not in it; "" where all is well."""

    budget_bytes: int = 0
    used_bytes: int = 0
    problem: str = ""
    parts: list[PoolPart] = []


class Journal(msgspec.Struct, frozen=True):
    """What is kept of jobs. `jobs` and `image_bytes` are those that are there; they go after
    `keep_days`, and the oldest when there are more than `keep_bytes` (0: without that limit).
    `problem` says why jobs would not outlive the server, or what was set aside; "" where all is
    well."""

    problem: str = ""
    jobs: int = 0
    image_bytes: int = 0
    keep_days: float = 0.0
    keep_bytes: int = 0


class Status(msgspec.Struct, frozen=True):
    """GET status."""

    version: str
    started_at: float
    me: Me
    devices: list[Device]
    waiting: list[Job]
    running: list[Job]
    problems: list[str]
    reservations: list[Reservation] = []
    paused: str = ""
    """Why no waiting job starts: the instructor's reason. "" while the queue runs."""
    pool: Pool = Pool()
    journal: Journal = Journal()
    news: list[News] = []
    """What happened last, newest first."""
    message: Message | None = None
    """What the instructor tells everybody."""
    help: list[HelpCall] = []
    """Raised hands: all for instructors, one's own for others."""


class Hold(msgspec.Struct, frozen=True):
    """A kernel's reference on a model."""

    id: str
    model: str
    expires_in_s: float


class HoldList(msgspec.Struct, frozen=True):
    """GET holds."""

    holds: list[Hold]


class ReservationList(msgspec.Struct, frozen=True):
    """GET reservations: everybody's, those that wait in their order."""

    reservations: list[Reservation]


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every answer with a status of 400 or more: kind, message, request_id (as in
    the header X-Request-ID and the server's log), then the facts, all in one object."""

    error: dict[str, str | int | float | bool | list[str] | None]


# events of the stream; `event:` is the tag, `data:` the JSON, `id:` where to resume


class SnapshotEvent(msgspec.Struct, frozen=True, tag="snapshot", tag_field="event"):
    """First of every stream that does not resume, and whenever the reader fell behind. `mine` are
    the reader's jobs that have not ended, and the latest of the others."""

    status: Status
    models: list[Model]
    mine: list[Job]


class JobEvent(msgspec.Struct, frozen=True, tag="job", tag_field="event"):
    """A job changed."""

    job: Job


class PreviewEvent(msgspec.Struct, frozen=True, tag="preview", tag_field="event"):
    """The picture as it forms, for its owner only: `data` is a JPEG as a data: URL."""

    job: str
    step: int
    steps: int
    image: int
    data: str


class PictureEvent(msgspec.Struct, frozen=True, tag="picture", tag_field="event"):
    """A finished picture, for its owner only and right before the event of its job's end, where the
    reader asked for small ones (`?pictures=BYTES`). `png` is the file."""

    job: str
    index: int
    png: bytes


class SlotEvent(msgspec.Struct, frozen=True, tag="slot", tag_field="event"):
    """A slot changed; `freed_bytes` came back where it left, `why` says in words why."""

    slot: Slot
    freed_bytes: int
    why: str


class DeviceEvent(msgspec.Struct, frozen=True, tag="device", tag_field="event"):
    """A GPU's account changed."""

    device: Device


class ModelsEvent(msgspec.Struct, frozen=True, tag="models", tag_field="event"):
    """The catalogue changed, or a download went on."""

    models: list[Model]
    problems: list[str]


class HoldEvent(msgspec.Struct, frozen=True, tag="hold", tag_field="event"):
    """A hold of this kernel changed; `ended` says why it ended, "" while it lives."""

    hold: Hold
    ended: str


class ReservationEvent(msgspec.Struct, frozen=True, tag="reservation", tag_field="event"):
    """A reservation changed; `ended` says why it ended, "" while it lives."""

    reservation: Reservation
    ended: str


class PolicyEvent(msgspec.Struct, frozen=True, tag="policy", tag_field="event"):
    """The rules for the room changed. Changes of models are told as models."""

    paused: str
    patience_s: float
    queue_limit: int


class WaitsEvent(msgspec.Struct, frozen=True, tag="waits", tag_field="event"):
    """The models' `expected_wait_s` changed, by their ids."""

    waits_s: dict[str, float | None]


class NoticeEvent(msgspec.Struct, frozen=True, tag="notice", tag_field="event"):
    """Something that people should read."""

    text: str
    at: float


StreamEvent = (
    SnapshotEvent
    | JobEvent
    | PreviewEvent
    | PictureEvent
    | SlotEvent
    | DeviceEvent
    | ModelsEvent
    | HoldEvent
    | ReservationEvent
    | PolicyEvent
    | WaitsEvent
    | NoticeEvent
    | NewsEvent
    | MessageEvent
    | HelpEvent
)
