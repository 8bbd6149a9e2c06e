"""Nobody is overtaken for longer than patience, one load and one job: an account of its own.

A job is overtaken from when another participant's job that stands behind it is begun. It is due
once that was `patience_s` ago (the patience of now; who was due once stays so). From then on no
device that could take it begins a job that stands behind it, until it has begun itself; where there
are several devices, not all of them do. So it waits for what runs there, for its model's load, and
for nobody else who comes behind it.

What a device may begin all the same:

* anything while its transfer lane brings the due job's model, or makes room for it: what is
  expected to end before the load does nobody any harm. That is the one load;
* anything while its transfer lane is at work since before the job was due: nothing else can be
  loaded meanwhile;
* the first job of a model that was loaded there before the job was due, if it is begun within the
  patience: what was loaded for somebody is used once before it leaves.

Nothing is said where it is not certain from outside that the job could be drawn:

* in a pause, while its model is downloaded, while no worker stands ready that is large enough, or
  all are kept for reservations: the count of devices begins anew after that;
* of a job that may only run on one rung or in one manner, is large, ran out of memory, or was at
  work when a worker ended; and of a model with settings of its own for its memory;
* on a device where reservations, other programs, pins, holds and what was lent leave less than the
  model was ever measured to take, and `SPARE_BYTES`; or where its load failed a moment ago: there
  too the count begins anew;
* nor on one where a model is ready that can be placed in several ways: it may come into what is
  free, and be placed otherwise, before anybody draws with it, and is protected anew each time.

Who stands before whom is taken from the positions announced last; of those whose accounts the
event itself may have changed nothing is known until the next announcement, nor of who has waited
for so long that jobs rise into another class, many at once one by one. Nobody overtakes a job of
their own.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.conductor.outside import Outside
from tests.conductor.staging import GB
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.effects import DeviceView, Effect, JobView
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.settings import Settings
from workshop_gpu.conductor.states import JobState

KEPT_OUT = {"download", "pause", "device", "reservation"}
SPARE_BYTES = 4 * GB
"""Working memory of a job that is not large, however little was learned of it."""
SMALL_PIXELS = 512 * 512
NEVER_S = float("inf")

Transfer = effects.LoadModel | effects.EvictModel


@dataclass
class Wait:
    """A waiting job that was overtaken."""

    since_s: float
    due: bool = False
    stands_s: float | None = None
    """Since when it is due and nothing from outside keeps it out."""
    passed_on: set[str] = field(default_factory=set)
    """Devices that began a job behind it since then."""
    lacked_s: dict[str, float] = field(default_factory=dict)
    """When devices last had no room that is surely there: nothing counts from before."""


@dataclass
class Overtaking:
    """Takes each event with what follows from it, before `out` takes the effects."""

    out: Outside
    tally: Counter[str]
    now: float = 0.0
    waits: dict[str, Wait] = field(default_factory=dict)
    devices: dict[str, DeviceView] = field(default_factory=dict)
    transfers: dict[str, tuple[Transfer, float]] = field(default_factory=dict)
    """What each device's transfer lane does, and since when."""
    untried: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    """Models that nobody has drawn with since they came, each with when its load was begun and when
    it had ended."""
    failed_s: dict[tuple[str, str], float] = field(default_factory=dict)
    measured_bytes: Counter[str] = field(default_factory=Counter)

    def take(self, event: events.Event, new: Sequence[Effect], now: float) -> None:
        """Fails where somebody was overtaken for too long."""
        self.now = now
        self._happened(event)
        after = {each.job.job: each.job for each in new if isinstance(each, effects.AnnounceJob)}
        waiting = {
            view.job: view
            for view in self.out.announced.values()
            if view.state is JobState.QUEUED and now - view.submitted_s < Settings().rise_s
        }
        self._see_who_is_due({**waiting, **after})
        moved = self._moved(event, after)
        rooms = [dict(self.devices)]
        self.devices |= {
            each.device.device: each.device
            for each in new
            if isinstance(each, effects.AnnounceDevice)
        }
        rooms.append(self.devices)
        self._see_who_lacks_room()
        for effect in new:
            match effect:
                case effects.LoadModel(device, model) | effects.EvictModel(device, model):
                    # Placed otherwise before anybody drew with it, it is still being brought.
                    since_s, _ = self.untried.get((device, model), (now, now))
                    self.transfers[device] = effect, since_s
                case effects.RunJob():
                    self._began(effect, waiting, moved, rooms)
                case _:
                    pass

    def _happened(self, event: events.Event) -> None:
        match event:
            case events.SlotLoaded(device, model, weights_bytes):
                if device in self.transfers:
                    self.untried[device, model] = self.transfers.pop(device)[1], self.now
                known = self.measured_bytes[model]
                self.measured_bytes[model] = max(known, weights_bytes)
            case events.LoadFailed(device, model):
                self.failed_s[device, model] = self.now
                self.transfers.pop(device, None)
            case events.SlotEvicted(device, model):
                self.transfers.pop(device, None)
                self.untried.pop((device, model), None)
            case events.WorkerDied(device) | events.DeviceGone(device) | events.DeviceReady(device):
                self.transfers.pop(device, None)
                self.untried = {key: s for key, s in self.untried.items() if key[0] != device}
            case _:
                pass

    def _see_who_is_due(self, views: dict[str, JobView]) -> None:
        policy = self.out.policy
        for job, wait in list(self.waits.items()):
            view = self.out.announced.get(job)
            if view is None or view.state is not JobState.QUEUED:
                del self.waits[job]
                continue
            wait.due |= self.now >= wait.since_s + policy.patience_s
            words = {view.waiting_for, views.get(job, view).waiting_for}
            if not wait.due or policy.paused or words & KEPT_OUT:
                wait.stands_s = None
                wait.passed_on.clear()
            elif wait.stands_s is None:
                wait.stands_s = self.now

    def _see_who_lacks_room(self) -> None:
        """What comes and goes in between has sent others' models, and brought them back."""
        for job, wait in self.waits.items():
            if wait.stands_s is not None:
                model = self.out.accepted[job].model
                for device in self.out.workers:
                    if not self.has_room(device, model, self.devices):
                        wait.lacked_s[device] = self.now
                        wait.passed_on.discard(device)

    def _moved(self, event: events.Event, after: dict[str, JobView]) -> set[str]:
        """Those whose accounts the event may have changed."""
        if isinstance(event, events.PolicyChanged):  # everybody may have come into another class
            return {request.participant for request in self.out.accepted.values()}
        moved = {view.participant for view in after.values() if view.state.ended}
        device, job = getattr(event, "device", None), getattr(event, "job", None)
        for view in self.out.announced.values():
            if view.job == job or (device is not None and view.device == device):
                moved.add(view.participant)
        if isinstance(event, events.JobSubmitted):
            moved.add(event.participant)
        if isinstance(event, events.ParticipantReplaced):
            moved |= {event.participant, event.heir}
        return moved

    def _began(
        self,
        order: effects.RunJob,
        waiting: dict[str, JobView],
        moved: set[str],
        rooms: list[dict[str, DeviceView]],
    ) -> None:
        begun = [waiting.pop(job, None) for job in (order.job, *order.others)]
        since_s, came_s = self.untried.pop((order.device, order.model), (NEVER_S, self.now))
        late = self.now - came_s >= self.out.policy.patience_s
        untried_s = NEVER_S if late else since_s
        for view in begun:
            if view is None or view.participant in moved:
                continue
            for ahead in self._overtaken(view, waiting, moved):
                wait = self.waits.setdefault(ahead.job, Wait(self.now))
                self.tally["overtaken"] += 1
                if wait.stands_s is not None:
                    self._passes(order, ahead, wait, untried_s, rooms)
        moved |= {self.out.accepted[job].participant for job in (order.job, *order.others)}

    def _overtaken(
        self, view: JobView, waiting: dict[str, JobView], moved: set[str]
    ) -> Iterator[JobView]:
        for ahead in waiting.values():
            if ahead.position < view.position and ahead.participant not in {
                *moved,
                view.participant,
            }:
                yield ahead

    def _passes(
        self,
        order: effects.RunJob,
        ahead: JobView,
        wait: Wait,
        untried_s: float,
        rooms: list[dict[str, DeviceView]],
    ) -> None:
        """The device begins a job although one before it is due."""
        assert wait.stands_s is not None
        device, model = order.device, ahead.model
        stands_s = max(wait.stands_s, wait.lacked_s.get(device, wait.stands_s))
        if untried_s <= stands_s:
            self.tally["due, but untried"] += 1
            return
        if device in self.transfers:
            transfer, since_s = self.transfers[device]
            coming = model in (transfer.model, getattr(transfer, "room_for", ""))
            if coming or since_s <= stands_s:
                self.tally["due, but coming" if coming else "due, but lane"] += 1
                return
        wait.passed_on.add(device)
        sure = self.is_ordinary(ahead) and all(
            self.has_room(device, model, views) for views in rooms
        )
        self.tally["due, passed" if sure else "due, unsure"] += 1
        assert not sure or {*self.out.workers} - wait.passed_on, (
            f"{ahead.job} is overtaken since {wait.since_s}, due, and passed on {wait.passed_on}"
        )

    def is_ordinary(self, ahead: JobView) -> bool:
        """Whether nothing about the job itself keeps it from a place that has room."""
        request, facts = self.out.accepted[ahead.job], self.out.facts.get(ahead.model)
        return (
            facts is not None
            and facts.memory == MemorySettings()
            and request.pixels <= SMALL_PIXELS
            and not (request.placement or request.manner)
            and not self.out.out_of_memory[ahead.job]
            and ahead.job not in self.out.suspects
        )

    def has_room(self, device: str, model: str, views: dict[str, DeviceView]) -> bool:
        """Whether the model surely finds room there once all has left that may."""
        failed_s = self.failed_s.get((device, model))
        there = self.out.workers[device].ready
        if device not in views or any(self.out.known[name].roles for name in there - {model}):
            return False
        if failed_s is not None and self.now <= failed_s + Settings().failed_load_s + 1.0:
            return False
        kept = {hold.model for hold in self.out.holds.values()}
        kept |= {name for name in self.out.known if self._may_be_pinned(name)}
        kept -= {model}
        stays_bytes = sum(
            holder.bytes
            for holder in views[device].holders
            if holder.kind not in ("weights", "freeing", "working")
            or " on " in holder.name  # lent to another device
            or kept & {*holder.name.replace(",", " ").split()}
        )
        size_bytes = max(self.out.known[model].file_bytes, self.measured_bytes[model])
        return size_bytes + SPARE_BYTES <= views[device].total_bytes - stays_bytes

    def _may_be_pinned(self, model: str) -> bool:
        return self.out.known[model].pinned or self.out.policy.pinned.get(model, False)
