"""What the conductor remembers: mutable records, changed by `conductor.py` alone."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.estimates import Estimates
from workshop_gpu.conductor.events import JobSubmitted, ModelFacts
from workshop_gpu.conductor.fairness import Shares, Turn, rank
from workshop_gpu.conductor.ledger import Ledger
from workshop_gpu.conductor.queue import Queue
from workshop_gpu.conductor.settings import Settings
from workshop_gpu.conductor.states import DeviceState, JobState, Priority, SlotState


class Activity(Enum):
    """What a device does. It does one thing at a time, and gets an order only when idle."""

    IDLE = "idle"
    LOADING = "loading"
    EVICTING = "evicting"
    RUNNING = "running"


@dataclass(slots=True)
class Job:
    """One accepted request to generate."""

    request: JobSubmitted
    sequence: int
    submitted_s: float
    state: JobState = JobState.QUEUED
    device: str | None = None
    step: int = 0
    started_s: float = -1.0
    ended_s: float = -1.0
    error: ErrorReport | None = None
    deaths: int = 0
    """How many workers ended while they ran it."""
    cancel_asked: bool = False
    kernel_gone: bool = False
    overtaken_s: float | None = None
    """Since when others ran although it was ahead of them, because its model was not ready."""
    next_up: bool = False
    """Its model was loaded just now, and it is the one to use it first."""
    lacks_room: bool = False
    charged_s: float = 0.0
    working_bytes: int = 0
    weights_bytes: int = 0

    @property
    def id(self) -> str:
        return self.request.job

    @property
    def model(self) -> str:
        return self.request.model

    @property
    def participant(self) -> str:
        return self.request.participant

    @property
    def priority(self) -> Priority:
        return self.request.priority


@dataclass(slots=True)
class Slot:
    """One model's presence on one GPU, unless it is absent."""

    device: str
    model: str
    state: SlotState
    since_s: float
    """When it entered its state."""
    used_s: float
    """The end of its last use; of its load, while it was not used."""
    done_bytes: int = 0
    total_bytes: int = 0
    running: str | None = None
    uses: int = 0
    users: set[str] = field(default_factory=set)
    """The participants whose jobs ran on it."""
    leaves_because: str = ""
    """Why it leaves, or will as soon as its device is idle."""
    error: ErrorReport | None = None


@dataclass(slots=True)
class Device:
    """A GPU: its account, its slots, and what it does now (`subject`: a model or a job)."""

    name: str
    ledger: Ledger
    state: DeviceState = DeviceState.STARTING
    reason: str = ""
    activity: Activity = Activity.IDLE
    subject: str = ""
    room_for: str = ""
    """The model for which it makes room, while it evicts for one."""
    since_s: float = 0.0
    slots: dict[str, Slot] = field(default_factory=dict)

    def does(self, activity: Activity, subject: str) -> bool:
        return self.activity is activity and self.subject == subject

    def begin(self, activity: Activity, subject: str, now: float) -> None:
        self.activity, self.subject, self.since_s = activity, subject, now

    def rest(self) -> None:
        self.activity, self.subject, self.room_for = Activity.IDLE, "", ""

    @property
    def prepares(self) -> str:
        """The model that it is loading or making room for; "" where it does neither."""
        return self.subject if self.activity is Activity.LOADING else self.room_for

    @property
    def idle(self) -> bool:
        return self.state is DeviceState.READY and self.activity is Activity.IDLE

    def has(self, model: str, *states: SlotState) -> bool:
        slot = self.slots.get(model)
        return slot is not None and slot.state in states


@dataclass(slots=True)
class Model:
    """One model of the catalogue."""

    facts: ModelFacts
    listed: bool = True
    """False once the catalogue has it no longer, while slots of it are still there."""
    pin_paused: bool = False
    """The instructor had it evicted: the pin holds again once somebody asks for the model."""
    wanted_s: float | None = None
    """Since when the instructor waits for it to be loaded."""
    pushed_out_s: float | None = None
    """When it last had to leave for another model."""
    load_deaths: int = 0
    """How many workers ended, one after the other, while they loaded it."""

    fetching: bool = False
    """Its download is under way."""
    fetch_failed: bool = False
    """Its download failed, and nobody has asked for the model since."""

    @property
    def pinned(self) -> bool:
        usable = self.listed and self.facts.enabled and not self.facts.problem
        return self.facts.pinned and usable and not self.pin_paused


@dataclass(slots=True)
class Hold:
    """A kernel's reference on a model."""

    id: str
    participant: str
    kernel: str | None
    model: str
    taken_s: float
    expires_s: float


@dataclass(slots=True)
class State:
    """Everything that the conductor knows. Its methods only look."""

    settings: Settings
    devices: dict[str, Device]
    models: dict[str, Model] = field(default_factory=dict)
    queue: "Queue[Job]" = field(default_factory=Queue)
    running: dict[str, Job] = field(default_factory=dict)
    ended: "OrderedDict[str, Job]" = field(default_factory=OrderedDict)
    holds: dict[str, Hold] = field(default_factory=dict)
    ended_holds: "OrderedDict[str, Hold]" = field(default_factory=OrderedDict)
    shares: Shares = field(default_factory=Shares)
    estimates: Estimates = field(default_factory=Estimates)

    def job(self, job: str) -> Job | None:
        """A waiting, running or remembered job."""
        return self.queue.get(job) or self.running.get(job) or self.ended.get(job)

    def slots(self, model: str, *states: SlotState) -> Iterator[Slot]:
        """The model's slots in one of the states, in the order of the devices."""
        for device in self.devices.values():
            slot = device.slots.get(model)
            if slot is not None and slot.state in states:
                yield slot

    def has_slot(self, model: str, *states: SlotState) -> bool:
        return next(self.slots(model, *states), None) is not None

    def holds_on(self, model: str) -> list[Hold]:
        return [hold for hold in self.holds.values() if hold.model == model]

    def weights_bytes(self, model: str) -> int:
        """Bytes of a model's weights on whichever device: measured or estimated."""
        return self.estimates.weights_bytes(self.models[model].facts)

    def working_bytes(self, job: Job) -> int:
        """Bytes that the job needs beside its model's weights."""
        request = job.request
        weights_bytes = self.weights_bytes(request.model)
        return self.estimates.working_bytes(
            request.model, weights_bytes, request.pixels, request.batch
        )

    def working_bytes_of(self, model: str) -> int:
        """Bytes that some job of the model would need, where none is at hand."""
        return self.estimates.working_bytes(
            model, self.weights_bytes(model), TYPICAL_PIXELS, batch=1
        )

    def cost_s(self, job: Job) -> float:
        """GPU seconds that the job is expected to use."""
        request = job.request
        return self.estimates.run_guess_s(request.model, request.pixels, request.steps)

    def rank(self, job: Job, now: float) -> int:
        return rank(job, now, self.settings.rise_s)

    def order(self, now: float) -> list[Job]:
        """The waiting jobs in their order."""
        return self.shares.order(
            self.queue,
            lambda job: self.rank(job, now),
            self.cost_s,
            lambda job: self.turn(job, now),
        )

    def is_due(self, job: Job, now: float) -> bool:
        """Whether others have overtaken the job for as long as the patience lasts."""
        return job.overtaken_s is not None and now - job.overtaken_s >= self.settings.patience_s

    def turn(self, job: Job, now: float) -> Turn:
        """Whether the job goes before the shares."""
        if job.deaths:
            return Turn(0)
        if job.next_up:
            return Turn(1)
        if job.overtaken_s is not None and self.is_due(job, now):
            return Turn(2, job.overtaken_s)
        return Turn()


TYPICAL_PIXELS = 512 * 512
