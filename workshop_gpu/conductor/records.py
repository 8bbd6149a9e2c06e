"""What the conductor remembers: mutable records, changed by `conductor.py` alone."""

import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.estimates import Estimates
from workshop_gpu.conductor.events import JobSubmitted, ModelFacts
from workshop_gpu.conductor.fairness import Reason, Shares, Tolls
from workshop_gpu.conductor.holds import Hold, Holds
from workshop_gpu.conductor.lanes import Lanes
from workshop_gpu.conductor.ledger import Ledger
from workshop_gpu.conductor.looked import Looked
from workshop_gpu.conductor.memory_settings import AUTOMATIC, MemorySettings
from workshop_gpu.conductor.planner import Step
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.queue import Key, Queue
from workshop_gpu.conductor.rungs import RESIDENT, Placement
from workshop_gpu.conductor.settings import Settings
from workshop_gpu.conductor.shortages import Shortages
from workshop_gpu.conductor.states import (
    DeviceState,
    JobState,
    Priority,
    ReservationState,
    SlotState,
)
from workshop_gpu.conductor.timers import Timers
from workshop_gpu.conductor.waiting_times import WaitingTimes


class Activity(Enum):
    """What a device's transfer lane does: one thing at a time."""

    IDLE = "idle"
    LOADING = "loading"
    EVICTING = "evicting"


NOT_IN_LINE = 1 << 60
"""Later than all numbers of those in line."""


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
    moved_s: float = -1.0
    """When its run last made a step."""
    ended_s: float = -1.0
    error: ErrorReport | None = None
    deaths: int = 0
    """How many workers ended while they ran it, and not by us for another's sake."""
    saw_death: bool = False
    """Whether a worker ended while it ran it, for whosever sake."""
    stuck: bool = False
    """Its worker is being ended because it made no step."""
    server_deaths: int = 0
    """How many of the server's lives did."""
    cancel_asked: bool = False
    kernel_gone: bool = False

    priority: Priority = Priority.NORMAL
    """Its class; the instructor may have given it another than was asked for."""
    rank: int = 0
    """The class that it counts as now."""
    reason: Reason = Reason.SHARE
    start_s: float = 0.0
    """Its participant's account when those before it will have been paid."""
    in_line: int = NOT_IN_LINE
    """When it became the first of its participant, who had none running, as a number that
    grows."""
    cost_s: float = 0.0
    """GPU seconds that it is expected to use."""
    overtaken_s: float | None = None
    """Since when jobs behind it ran although it waited."""
    due: bool = False
    """Whether it was overtaken for as long as it may be."""
    toll_s: float = 0.0
    """What loads of its model had cost when it came."""

    batch: int = 1
    """How many jobs it is or was drawn together with, itself included."""
    charged_s: float = 0.0
    drawn: bool = False
    """Its device has done its part, and its pictures are made into files."""
    working_bytes: int = 0
    weights_bytes: int = 0
    steps: tuple[Step, ...] = ()
    """Where the device ran out of memory over it; each rung is tried once."""
    went_on: str = ""
    """In words, the rung on which it went on after that."""

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
    def is_suspect(self) -> bool:
        """Something ended while it ran: it runs alone, so that the next time it is known whether
        it was to blame, and nobody beside it is."""
        return bool(self.saw_death or self.server_deaths)

    @property
    def key(self) -> Key:
        """Its place in the order (see `queue.py`)."""
        return self.rank, self.reason, self.start_s, self.in_line, self.sequence


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
    bytes_per_s: float = 0.0  # of its load; 0: not known
    running: set[str] = field(default_factory=set)
    """The jobs that it draws now."""
    uses: int = 0
    users: set[str] = field(default_factory=set)
    """The participants whose jobs ran on it."""
    leaves_because: str = ""
    """Why it leaves, or will as soon as its device is idle."""
    leaves_for: str = ""
    """The participant whose job needs its room, where one does."""
    error: ErrorReport | None = None
    placement: Placement = RESIDENT
    """Where its weights are, or will be once it is loaded."""
    asked: Placement = RESIDENT
    """The one that was ordered last: a worker leaves out what the model cannot do."""
    memory: MemorySettings = AUTOMATIC
    """The settings under which that was ordered."""
    moves: int = 0
    """How often it was placed otherwise since it drew last."""
    drawn: tuple[int, int, int] | None = None
    """Pixels, pictures at once and steps of what it drew last."""
    compiled: bool = False
    """Whether its blocks are compiled, for the sizes that were drawn."""
    to_compile: bool = False
    """Whether some could be."""
    loras: tuple[str, ...] = ()
    """Those that its worker has ready for it, as it told with the last picture."""


@dataclass(slots=True)
class Device:
    """A GPU: its account, its slots, and its two lanes: one loads and evicts (`activity`, with
    the model in `subject`), the other computes one job or batch (`running`)."""

    name: str
    ledger: Ledger
    state: DeviceState = DeviceState.STARTING
    reason: str = ""
    """Why it is not ready: how its last worker ended."""
    retry_s: float | None = None
    """How often it is tried again once it is lost; None: never."""
    activity: Activity = Activity.IDLE
    subject: str = ""
    room_for: str = ""
    """The model for which it makes room, while it evicts for one."""
    since_s: float = 0.0
    """When the transfer lane began what it does."""
    loads_suspect: bool = False
    """Whether a worker ended over the last load of what it loads."""
    stopping: bool = False
    """Its worker took too long and is being ended: it gets no more orders."""
    retires: str = ""
    """Why its worker is to be replaced as soon as both lanes rest: until then it gets no more
    orders."""
    running: dict[str, Job] = field(default_factory=dict)
    deaths: int = 0
    """How many of its workers ended, one after the other, without a picture between them."""
    writing: dict[str, Job] = field(default_factory=dict)
    """Those that it has drawn, and whose pictures its worker makes into files."""
    until_s: float | None = None
    """When its running jobs should have ended; None where nobody knows."""
    slots: dict[str, Slot] = field(default_factory=dict)
    bus_bytes_per_s: float = 0.0
    """How fast weights come to it; 0: not measured."""
    compiles: bool = False
    """Whether blocks can be compiled for it."""
    compiling: str = ""
    """The model whose blocks are being compiled."""
    neighbours: tuple[str, ...] = ()
    """Other devices whose memory its worker can use."""
    to_see: frozenset[str] = frozenset()
    """Those for which its worker was replaced, so that the next one sees them."""

    @property
    def is_gone(self) -> bool:
        """Nobody need wait for it."""
        return self.state is DeviceState.LOST and self.retry_s is None

    def does(self, activity: Activity, subject: str) -> bool:
        return self.activity is activity and self.subject == subject

    def begin(self, activity: Activity, subject: str, now: float) -> None:
        self.activity, self.subject, self.since_s = activity, subject, now

    def rest(self) -> None:
        """The transfer lane has nothing to do."""
        self.activity, self.subject, self.room_for = Activity.IDLE, "", ""
        self.loads_suspect = False

    @property
    def in_safe_mode(self) -> bool:
        """Two workers in a row ended: until a picture was made, models are placed as low as they
        can be, and there is one load or one job at a time."""
        return self.deaths >= 2

    @property
    def is_alone(self) -> bool:
        """What either lane does keeps the other one waiting: all of it in safe mode, else only
        suspects, until their pictures are files."""
        if self.in_safe_mode and (self.running or self.activity is not Activity.IDLE):
            return True
        return self.loads_suspect or any(job.is_suspect for job in self.at_work)

    @property
    def at_work(self) -> tuple[Job, ...]:
        """Those who are lost if its worker ends."""
        return (*self.writing.values(), *self.running.values())

    @property
    def prepares(self) -> str:
        """The model that it is loading or making room for; "" where it does neither."""
        return self.subject if self.activity is Activity.LOADING else self.room_for

    @property
    def takes_orders(self) -> bool:
        return self.state is DeviceState.READY and not (self.stopping or self.retires)

    @property
    def can_transfer(self) -> bool:
        return self.takes_orders and self.activity is Activity.IDLE and not self.is_alone

    def has(self, model: str, *states: SlotState) -> bool:
        slot = self.slots.get(model)
        return slot is not None and slot.state in states


@dataclass(slots=True)
class Model:
    """One model of the catalogue."""

    facts: ModelFacts
    """As the instructor's policy has them."""
    listed: bool = True
    """False once the catalogue has it no longer, while slots of it are still there."""
    pin_paused: bool = False
    """The instructor had it evicted: the pin holds again once somebody asks for the model."""
    wanted_s: float | None = None
    """Since when the instructor waits for it to be loaded."""
    pushed_out_s: float | None = None
    """When it last had to leave for another model."""
    load_deaths: int = 0
    """How many workers ended, one after the other, while they loaded it, and not by us for
    another's sake."""
    is_suspect: bool = False
    """A worker ended over its last load, for whosever sake: the next one goes on alone."""

    fetching: bool = False
    """Its download is under way, and since when."""
    fetching_s: float = 0.0
    fetch_failed: bool = False
    """Its download failed, and nobody has asked for the model since."""

    @property
    def pinned(self) -> bool:
        usable = self.listed and self.facts.enabled and not self.facts.problem
        return self.facts.pinned and usable and not self.pin_paused


@dataclass(slots=True)
class Reservation:
    """Room for somebody's own code; `device` once it was granted. `expires_s` may be infinite."""

    id: str
    participant: str
    kernel: str | None
    size_bytes: int | None
    wanted_device: str | None
    sequence: int
    priority: Priority
    asked_s: float
    in_line: int
    start_s: float
    """Where its participant's account stood when it was asked for."""
    expires_s: float
    state: ReservationState = ReservationState.WAITING
    device: str | None = None

    @property
    def clears(self) -> bool:
        """Whether it is the instructor's own: a whole device, and no end but by hand."""
        return self.size_bytes is None and self.kernel is None and self.expires_s == math.inf


@dataclass(slots=True)
class State:
    """Everything that the conductor knows. Its methods only look,
    but for `count_devices` and `touch`."""

    settings: Settings
    devices: dict[str, Device]
    most_bytes: tuple[int, ...] = ()
    """What each device that works or will could give if everything left it; 0 where its size is
    not known yet."""
    models: dict[str, Model] = field(default_factory=dict)
    queue: "Queue[Job]" = field(default_factory=Queue)
    running: dict[str, Job] = field(default_factory=dict)
    ended: "OrderedDict[str, Job]" = field(default_factory=OrderedDict)
    holds: Holds = field(default_factory=Holds)
    ended_holds: "OrderedDict[str, Hold]" = field(default_factory=OrderedDict)
    shares: Shares = field(default_factory=Shares)
    tolls: Tolls = field(default_factory=Tolls)
    estimates: Estimates = field(default_factory=Estimates)
    places: dict[str, dict[str, Slot]] = field(default_factory=dict)
    """Each model's slots, by device."""
    lanes: Lanes = field(default_factory=Lanes)
    making_room: dict[str, str] = field(default_factory=dict)
    """Devices that make room, each with the model for which it does."""
    rises: Timers = field(default_factory=Timers)
    """When waiting jobs rise one class."""
    dues: Timers = field(default_factory=Timers)
    """When the patience of those who are overtaken is over."""
    without_room: set[str] = field(default_factory=set)
    """Models for whose jobs there is no room at the moment."""
    shortages: Shortages = field(default_factory=Shortages)
    """Where devices ran out of memory of late."""
    suspects: dict[str, None] = field(default_factory=dict)
    """Models of which something changed that may make a waiting job impossible."""
    looked: dict[str, Looked] = field(default_factory=dict)
    """By device, what is known of it until it is touched."""
    touched_devices: dict[str, None] = field(default_factory=dict)
    touched_jobs: dict[str, None] = field(default_factory=dict)
    """What this event has changed, and people are told about."""
    policy: Policy = field(default_factory=Policy)
    pins_told: str = ""
    """What people were told last of pins that cannot be ready together."""
    inert_told: dict[str, str] = field(default_factory=dict)
    """By model, what people were told last of its settings that are of no effect."""
    catalogue: dict[str, ModelFacts] = field(default_factory=dict)
    """Listed models as the catalogue has them, without the policy."""
    waiting_times: WaitingTimes = field(default_factory=WaitingTimes)
    reservations: dict[str, Reservation] = field(default_factory=dict)
    ended_reservations: "OrderedDict[str, str]" = field(default_factory=OrderedDict)
    """Why each of the last that are over is so."""
    closed: dict[str, str] = field(default_factory=dict)
    """Devices on which nothing new begins, each with the reservation for which it is kept."""

    def __post_init__(self) -> None:
        self.count_devices()

    def count_devices(self) -> None:
        """The state or size of a device changed."""
        usable = (each for each in self.devices.values() if each.state is not DeviceState.LOST)
        self.most_bytes = tuple(device.ledger.most_bytes for device in usable)

    def touch(self, device: str) -> None:
        """Something about the device changed, or about who may use what is there."""
        self.touched_devices[device] = None
        self.looked.pop(device, None)

    def job(self, job: str) -> Job | None:
        """A waiting, running or remembered job."""
        return self.queue.get(job) or self.running.get(job) or self.ended.get(job)

    def slots(self, model: str, *states: SlotState) -> Iterator[Slot]:
        """The model's slots in one of the states."""
        places = self.places.get(model)
        if places is None:
            return iter(())
        return (slot for slot in places.values() if slot.state in states)

    def has_slot(self, model: str, *states: SlotState) -> bool:
        places = self.places.get(model)
        if places is not None:
            for slot in places.values():
                if slot.state in states:
                    return True
        return False

    def is_kept(self, slot: Slot) -> bool:
        """Whether a hold or a pin keeps the model here. One ready copy is enough for these."""
        if not (self.holds.on(slot.model) or self.models[slot.model].pinned):
            return False
        return not self.has_other_copy(slot)

    def has_other_copy(self, slot: Slot) -> bool:
        """Whether the model stands ready on another device too."""
        ready = self.slots(slot.model, SlotState.READY)
        return any(each is not slot for each in ready)

    def copies_changed(self, model: str) -> None:
        """A copy of the model came, or goes: where somebody holds or pins it, that decides which of
        the others are kept."""
        if self.holds.on(model) or self.models[model].pinned:
            for device in self.places.get(model, ()):
                self.touch(device)

    def holds_on(self, model: str) -> list[Hold]:
        return self.holds.of_model(model)

    def weights_bytes(self, model: str) -> int:
        """Bytes of a model's weights on whichever device: measured or estimated."""
        return self.estimates.weights_bytes(self.models[model].facts)

    def working_bytes(self, job: Job, batch: int = 1) -> int:
        """Bytes that the job needs beside its model's weights; so many such jobs together."""
        request = job.request
        weights_bytes = self.weights_bytes(request.model)
        return (
            self.estimates.working_bytes(
                request.model, weights_bytes, request.pixels, request.batch * batch
            )
            + request.beside_bytes
        )

    def working_bytes_of(self, model: str) -> int:
        """Bytes that some job of the model would need, where none is at hand."""
        return self.estimates.working_bytes(
            model, self.weights_bytes(model), TYPICAL_PIXELS, batch=1
        )

    def cost_s(self, job: Job, batch: int = 1) -> float:
        """GPU seconds that the job is expected to use; so many such jobs together."""
        known_s = self.run_s(job, batch)
        if known_s is not None:
            return known_s
        request = job.request
        alone_s = self.estimates.run_guess_s(request.model, request.pixels, request.steps)
        return alone_s * request.batch * batch

    def run_s(self, job: Job, batch: int = 1) -> float | None:
        """As `cost_s`, None where nothing was learned."""
        request = job.request
        slot = next(self.slots(request.model, SlotState.READY), None)
        placement, compiled = (slot.placement, slot.compiled) if slot else (RESIDENT, False)
        return self.estimates.run_s(
            request.model,
            request.pixels,
            request.steps,
            request.batch * batch,
            placement.name,
            compiled and not request.beside_bytes,
            request.images,
        )

    def placement_of(self, model: str) -> Placement:
        """How the model is placed where it is ready; as a whole where it is not."""
        slot = next(self.slots(model, SlotState.READY), None)
        return RESIDENT if slot is None else slot.placement

    def load_s(self, model: str) -> float | None:
        """Seconds that a load of the model takes; None while no load was ever seen."""
        return self.estimates.load_s(model, self.weights_bytes(model))


TYPICAL_PIXELS = 512 * 512
