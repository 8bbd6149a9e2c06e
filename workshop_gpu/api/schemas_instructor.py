"""Bodies of requests and answers that only instructors use.

An unknown key in a request is an error. Where a key may be null, null means: as configured.
"""

import msgspec

from workshop_gpu.api.schemas import PriorityName

# requests


class PolicyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """PATCH policy: the rules for the whole room. What is left out stays; null goes back to the
    server's configuration."""

    patience_s: float | msgspec.UnsetType | None = msgspec.UNSET
    queue_limit: int | msgspec.UnsetType | None = msgspec.UNSET
    min_residency_s: float | msgspec.UnsetType | None = msgspec.UNSET


class PauseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST queue/pause. The reason is shown to everybody who waits."""

    reason: str = "the instructor paused it"


class ModelPolicyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """PATCH models/ID. What is left out stays; null goes back to models.toml.

    `offered` false greys the model out, with the `reason`. `placement` is a rung's name or "auto";
    it counts from the model's next load on.
    """

    offered: bool | msgspec.UnsetType = msgspec.UNSET
    reason: str = ""
    pinned: bool | msgspec.UnsetType | None = msgspec.UNSET
    keep_warm_s: float | msgspec.UnsetType | None = msgspec.UNSET
    placement: str | msgspec.UnsetType | None = msgspec.UNSET


class ParticipantRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """PATCH participants/ID. What is left out stays; null goes back to what all have."""

    queue_limit: int | msgspec.UnsetType | None = msgspec.UNSET
    priority: PriorityName | msgspec.UnsetType | None = msgspec.UNSET


# answers


class ModelPolicy(msgspec.Struct, frozen=True):
    """What the instructor changed of a model at run time; null: as in models.toml.

    `withdrawn` is the reason why it is not offered.
    """

    withdrawn: str | None = None
    pinned: bool | None = None
    keep_warm_s: float | None = None
    placement: str | None = None


class ParticipantPolicy(msgspec.Struct, frozen=True):
    """What the instructor changed for a participant; null: as for all."""

    queue_limit: int | None = None
    priority: PriorityName | None = None


class Policy(msgspec.Struct, frozen=True):
    """The rules as they are now. `paused` is the reason, "" while the queue runs."""

    patience_s: float
    queue_limit: int
    min_residency_s: float
    paused: str
    models: dict[str, ModelPolicy]
    participants: dict[str, ParticipantPolicy]


class Participant(msgspec.Struct, frozen=True):
    """Somebody who has jobs or reservations, runs a kernel, or has rules of their own.

    `queue_limit` and `priority` are those that count for them now. `gpu_s` are the GPU seconds of
    their jobs that are still kept, `models` the models that their waiting and running jobs ask for,
    `holds` those that they hold, `reserved_bytes` what is
    set aside for them, `own_bytes` what their code has on GPUs by itself.
    """

    id: str
    name: str
    kernel: str | None
    waiting: int
    running: int
    queue_limit: int
    priority: PriorityName
    notebook: str = ""
    jobs: int = 0
    gpu_s: float = 0.0
    holds: list[str] = []
    reserved_bytes: int = 0
    own_bytes: int = 0
    models: list[str] = []
    help: str | None = None
    """What they ask help about ("": they do not say); null: their hand is down."""


class ParticipantList(msgspec.Struct, frozen=True):
    """GET participants (instructor)."""

    participants: list[Participant]


class Kernel(msgspec.Struct, frozen=True):
    """A kernel of this server, and what it has. `state` is Jupyter's word (idle, busy …);
    `own_bytes` is what its code has on GPUs by itself; `restart_loses` says in words what a
    restart takes away."""

    id: str
    name: str
    notebook: str
    state: str
    own_bytes: int
    reserved_bytes: int
    holds: list[str]
    reservations: int
    waiting: int
    restart_loses: list[str]


class KernelList(msgspec.Struct, frozen=True):
    """GET kernels (instructor)."""

    kernels: list[Kernel]


class AuditEntry(msgspec.Struct, frozen=True):
    """One thing that an instructor did: who, when, what, and to which model, job, device or
    participant."""

    at: float
    who: str
    participant: str
    action: str
    subject: str
    details: dict[str, str | int | float | bool | None]


class AuditList(msgspec.Struct, frozen=True):
    """GET audit (instructor), newest first."""

    entries: list[AuditEntry]
