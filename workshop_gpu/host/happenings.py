"""What happened, as facts: made from what the conductor announces, once for all who tell of it.

News in words, metrics, Jupyter's events and the history are made from these, so that all say the
same. Pure: the time is passed in, in seconds of one monotonic clock.
"""

from typing import ClassVar

import msgspec

from workshop_gpu.conductor import effects
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.states import DeviceState, JobState, ReservationState, SlotState


class Happening(msgspec.Struct, frozen=True):
    """The base of all of them; `kind` is its name in one word."""

    kind: ClassVar[str] = ""


class Loaded(Happening, frozen=True):
    """The model is ready. `seconds_s` None: it is not known how long it took. `placement` says in
    words where its weights are; `before` where they were, of a model that was there already and was
    placed anew ("": it was not)."""

    kind: ClassVar[str] = "loaded"
    device: str
    model: str
    size_bytes: int
    seconds_s: float | None
    placement: str
    before: str = ""


class LoadFailed(Happening, frozen=True):
    """A load ended with an error."""

    kind: ClassVar[str] = "load_failed"
    device: str
    model: str
    error: ErrorReport


class Evicted(Happening, frozen=True):
    """The model left. `participant` is the id of the one whose job needed the room, "" where none
    did; `idle_s` is how long the model had not been used."""

    kind: ClassVar[str] = "evicted"
    device: str
    model: str
    freed_bytes: int
    why: str
    participant: str
    idle_s: float


class JobEnded(Happening, frozen=True):
    """A job is over. `wait_s` None: it never began; `gpu_s` are its GPU seconds, its part where
    several were drawn together."""

    kind: ClassVar[str] = "job_ended"
    job: str
    participant: str
    model: str
    device: str | None
    outcome: JobState
    error: ErrorReport | None
    wait_s: float | None
    gpu_s: float


class DeviceChanged(Happening, frozen=True):
    """The device's worker is being started again, works again, or was given up; then it is tried
    again every `retry_s` seconds (None: never). `reason` is why it does not work."""

    kind: ClassVar[str] = "device"
    device: str
    state: DeviceState
    reason: str = ""
    retry_s: float | None = None


class Reserved(Happening, frozen=True):
    """A reservation was granted, or one that had been granted is over (`ended` says why)."""

    kind: ClassVar[str] = "reservation"
    reservation: str
    participant: str
    device: str
    size_bytes: int | None
    ended: str


class QueuePaused(Happening, frozen=True):
    """No waiting job starts any more; "" as reason: they start again."""

    kind: ClassVar[str] = "queue"
    reason: str


class Offered(Happening, frozen=True):
    """The model is offered again, or no more (then with the reason)."""

    kind: ClassVar[str] = "offer"
    model: str
    withdrawn: str | None


class Told(Happening, frozen=True):
    """Something that the conductor said in words."""

    kind: ClassVar[str] = "notice"
    text: str


class Happenings:
    """Looks at each announcement once, in their order."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._loading: dict[tuple[str, str], float] = {}
        self._placed: dict[tuple[str, str], str] = {}
        """Where the weights of those lie that were ready last."""
        self._devices: dict[str, DeviceState] = {}
        self._granted: set[str] = set()

    def see(self, effect: object, now: float) -> list[Happening]:
        """What it says that happened; mostly nothing."""
        match effect:
            case effects.AnnounceSlot():
                return self._slot(effect, now)
            case effects.AnnounceJob(view) if view.state.ended:
                return [_job_ended(view)]
            case effects.AnnounceDevice(view):
                return self._device(view)
            case effects.AnnounceReservation(view, ended):
                return self._reservation(view, ended)
            case effects.AnnouncePolicy(policy):
                before, self._policy = self._policy, policy
                return _policy(before, policy)
            case effects.Notice(text):
                return [Told(text)]
        return []

    def _slot(self, told: effects.AnnounceSlot, now: float) -> list[Happening]:
        slot = told.slot
        key = slot.device, slot.model
        if slot.state is SlotState.LOADING:
            self._loading.setdefault(key, now)
            return []
        began_s = self._loading.pop(key, None)
        before = self._placed.pop(key, "")
        match slot.state:
            case SlotState.READY:
                self._placed[key] = slot.placement
                if began_s is not None:
                    return [Loaded(*key, slot.bytes, now - began_s, slot.placement, before)]
            case SlotState.FAILED if slot.error is not None:
                return [LoadFailed(*key, slot.error)] if began_s is not None else []
            case SlotState.ABSENT if told.freed_bytes:
                why, whose = told.why, told.participant
                return [Evicted(*key, told.freed_bytes, why, whose, slot.idle_s)]
        return []

    def _device(self, view: effects.DeviceView) -> list[Happening]:
        state = DeviceState(view.state)
        before = self._devices.get(view.device, DeviceState.STARTING)
        known = view.device in self._devices
        if known or state is not DeviceState.STARTING:
            self._devices[view.device] = state
        if state is before or (not known and state is DeviceState.READY):
            return []  # its first start is no news
        return [DeviceChanged(view.device, state, view.reason, view.retry_s)]

    def _reservation(self, view: effects.ReservationView, ended: str) -> list[Happening]:
        granted = view.reservation in self._granted
        device, name = view.device or "", view.reservation
        if ended and granted:
            self._granted.discard(name)
        elif not ended and not granted and view.state is ReservationState.GRANTED:
            self._granted.add(name)
        else:
            return []
        return [Reserved(name, view.participant, device, view.size_bytes, ended)]


def _job_ended(view: effects.JobView) -> JobEnded:
    began = view.started_s >= 0.0
    return JobEnded(
        job=view.job,
        participant=view.participant,
        model=view.model,
        device=view.device,
        outcome=view.state,
        error=view.error,
        wait_s=view.started_s - view.submitted_s if began else None,
        gpu_s=(view.ended_s - view.started_s) / view.batch if began else 0.0,
    )


def _policy(before: Policy, after: Policy) -> list[Happening]:
    happened: list[Happening] = []
    if before.paused != after.paused:
        happened.append(QueuePaused(after.paused))
    for model in sorted({*before.withdrawn, *after.withdrawn}):
        reason = after.withdrawn.get(model)
        if before.withdrawn.get(model) != reason:
            happened.append(Offered(model, reason))
    return happened
