"""One look at the devices: what the steps of `dispatch.py` share and leave for each other."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from workshop_gpu.conductor.eviction import Standing
from workshop_gpu.conductor.lag import Lag
from workshop_gpu.conductor.looked import look_at
from workshop_gpu.conductor.orders import Evict, Load, Order
from workshop_gpu.conductor.placement import Option
from workshop_gpu.conductor.placing import Ask, Placing
from workshop_gpu.conductor.queue import BEGIN, END, Key
from workshop_gpu.conductor.records import Device, Job, Slot, State
from workshop_gpu.conductor.room import Claim, Room
from workshop_gpu.conductor.states import DeviceState, SlotState


@dataclass(frozen=True, slots=True)
class Closed:
    """A device that is kept for a job: whoever would not be done in `ready_s` seconds does not
    begin there if it is due and before him, or of a better class. What he waits for may all the
    same: the first use of these models."""

    rank: int
    due_key: Key | None
    ready_s: float
    untried: frozenset[str] = frozenset()

    def keeps_out(self, job: Job, run_s: float) -> bool:
        if job.model in self.untried:
            return False
        due = self.due_key is not None and self.due_key < job.key
        return (due or self.rank < job.rank) and run_s > self.ready_s


class Look:
    """The state at one moment; nothing in it changes while it is looked at.

    `devices`: those where loads and evictions are looked for, without those that are given up:
    nobody waits for room on them. `free`: those of them whose transfer lane has nothing to do.
    `resting`: of all devices, those that compute nothing. `stuck`: see
    `Room`.
    """

    def __init__(
        self,
        state: State,
        now: float,
        devices: Sequence[Device],
        stuck: Collection[tuple[str, str]] = frozenset(),
    ) -> None:
        self.state = state
        self.now = now
        self.devices = [
            device
            for device in devices
            if device.name not in state.closed and device.state is not DeviceState.LOST
        ]
        self.free = [device for device in self.devices if device.can_transfer]
        self.resting = set(state.lanes.idle()) - state.closed.keys()
        self.room = Room(state, now, stuck)
        self._firsts: dict[str, Key] = {}
        self._placings: dict[str, Placing] = {}
        self.lag = Lag(state, self.devices, self.first_key_on)
        self.closed: dict[str, Closed] = {}
        self.reserved: set[str] = set()
        self.useless: set[tuple[str, str]] = set()
        """Devices and models that are ready there, but have no room to run."""
        self.hopeful: set[tuple[str, str]] = set()
        """The same, where some job may run that is not too large."""
        self.without_room: set[str] = set()
        """Models for whose jobs no device has room."""

    @cached_property
    def rested(self) -> set[str]:
        """Models with a slot on a device that computes nothing: others cannot begin now."""
        devices = self.state.devices
        return {model for name in self.resting for model in devices[name].slots}

    def making_room(self, model: str) -> list[str]:
        """The devices that make room for the model."""
        making = self.state.making_room
        return [name for name, each in making.items() if each == model] if making else []

    def claim(self, job: Job) -> Claim:
        """What the job may claim."""
        due_key = self.state.queue.first_due_key(job.model)
        if due_key is None and self.lag.falls_behind(job.model):
            due_key = self.state.queue.first_of(job.model).key
        return Claim(job.model, job.participant, job.key, due_key)

    def placing(self, job: Job) -> Placing:
        """How a device could take the job."""
        placing = self._placings.get(job.id)
        if placing is None:
            placing = self._placings[job.id] = Placing.for_job(self.state, self.now, job)
        return placing

    def open(self, model: str) -> list[Device]:
        """Devices where the model could be loaded: it is not there, and did not fail there."""
        if not self.state.models[model].facts.on_disk:
            return []
        return [device for device in self.free if model not in device.slots]

    def giving(self, claim: Claim, fewest_bytes: int) -> list[Device]:
        """Devices that are worth asking one by one how they get so much room, or more: it is
        free, or something that is idle may be within the claim's reach."""
        if fewest_bytes > self._most_free_bytes and not claim.goes_before(self._farthest):
            return []
        return [
            device
            for device in self.open(claim.model)
            if fewest_bytes <= look_at(self.state, device).free_bytes
            or claim.goes_before(self.room.farthest_on(device))
        ]

    @cached_property
    def _most_free_bytes(self) -> int:
        return max([look_at(self.state, each).free_bytes for each in self.free], default=0)

    @cached_property
    def _farthest(self) -> Key:
        return max(map(self.room.farthest_on, self.free), default=BEGIN)

    @cached_property
    def idle_slots(self) -> list[Slot]:
        """What could be told to leave at once."""
        return [
            slot
            for device in self.free
            for slot in device.slots.values()
            if slot.state is SlotState.READY and not slot.running
        ]

    @property
    def stuck(self) -> set[tuple[str, str]]:
        """Devices and models that are ready there, but have no room for any job."""
        return self.useless - self.hopeful

    def is_reserved_for_others(self, model: str) -> bool:
        """Whether what will be free is reserved wherever the model is not."""
        return self._names <= self.reserved or all(
            device.name in self.reserved or model in device.slots for device in self.devices
        )

    @cached_property
    def _names(self) -> set[str]:
        return {device.name for device in self.devices}

    def option(
        self, device: Device, claim: Claim, needed: int, worst: Standing = Standing.AWAITED
    ) -> Option | None:
        """How the device gets room for the claim; None where it cannot now."""
        reserved = device.name in self.reserved and claim.due_key is None
        if reserved or not device.can_transfer:
            worst = Standing.NOBODY
        return self.room.option(device, claim, needed, worst)

    def ask(self, device: Device, claim: Claim, worst: Standing = Standing.AWAITED) -> Ask:
        """The same as a question that is still open in its bytes."""
        return lambda needed: self.option(device, claim, needed, worst)

    def keep(self, device: Device) -> None:
        """Nothing more begins on the device for those who come later in this look: what runs or
        is moved there ends, and a suspect can begin alone."""
        self.resting.discard(device.name)
        self.free = [each for each in self.free if each is not device]

    def make_room_or_load(self, option: Option, model: str) -> Order | None:
        """The next order on the way to the model's load. None where a suspect waits until what
        runs there has ended."""
        if option.victims:
            return make_room(option, model)
        device = self.state.devices[option.device]
        if device.running and self.state.models[model].is_suspect:
            self.keep(device)
            return None
        return Load(option.device, model, option.placement, option.weights_bytes)

    def close(self, device: str, claim: Claim, ready_s: float) -> None:
        """The device is kept for the claim, unless it is for another."""
        if device not in self.closed and claim.rank is not None:
            untried = self.room.untried_on(self.state.devices[device])
            self.closed[device] = Closed(claim.rank, claim.due_key, ready_s, untried)

    def first_key_on(self, device: Device) -> Key:
        """The place of the first who could begin on the device, now or when it is free."""
        first = self._firsts.get(device.name)
        if first is None:
            first, queue = END, self.state.queue
            for slot in device.slots.values():
                if slot.state is SlotState.READY:
                    first = min(first, queue.first_key(slot.model) or END)
            self._firsts[device.name] = first
        return first

    def free_in_s(self, device: Device) -> float:
        """Seconds until what runs there should have ended; infinite where nobody knows."""
        if not device.running:
            return 0.0
        return float("inf") if device.until_s is None else max(0.0, device.until_s - self.now)


def make_room(option: Option, model: str) -> Order:
    """The first of those that must leave leaves."""
    return Evict(option.device, option.victims[0], f"to make room for {model}", model)
