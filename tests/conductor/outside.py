"""The world outside of the conductor, as its orders made it: who does what, and what may be asked.

It keeps its own account, from events and effects alone, so that a mistake in the conductor's
records is not repeated here.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import structs

from tests.conductor.staging import Order
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.effects import Effect
from workshop_gpu.conductor.ladder import RUNGS, rung_named, rung_of
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.planner import Question, Speeds, plan_of
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.rungs import Placement
from workshop_gpu.conductor.states import JobState, ReservationState
from workshop_gpu.conductor.working_memory import Activations


def placed_bytes(facts: events.ModelFacts, placement: Placement) -> int:
    """What the model's weights, and what they stream through, take between jobs."""
    if not facts.roles:
        return facts.file_bytes
    nothing = Activations(0, 1)
    speeds = Speeds(1.0, 1e9)
    question = Question(facts.roles, 0, nothing, 1, speeds, placement.buffers)
    return plan_of(question, placement).weights_bytes


@dataclass
class Worker:
    """What a living worker has on its device, and what it does in its two lanes."""

    ready: set[str] = field(default_factory=set)
    transfer: effects.LoadModel | effects.EvictModel | None = None
    run: effects.RunJob | None = None
    placed: dict[str, Placement] = field(default_factory=dict)
    """Where each model's weights are, or were last."""
    unanswered: list[str] = field(default_factory=list)
    """Jobs of its run that it still draws."""
    writing: list[str] = field(default_factory=list)
    """Jobs that it has drawn, and whose pictures become files."""
    told_to_stop: set[str] = field(default_factory=set)
    """Why it should end: once for what it moves and once for what it draws."""

    @property
    def orders(self) -> list[Order]:
        """What it has not answered yet."""
        return [order for order in (self.transfer, self.run) if order is not None]


@dataclass
class Outside:
    """Takes every event and every effect, and says at once if an effect should not have been."""

    workers: dict[str, Worker] = field(default_factory=dict)
    accepted: dict[str, events.JobSubmitted] = field(default_factory=dict)
    announced: dict[str, effects.JobView] = field(default_factory=dict)
    """Jobs that have not ended, as they were announced last."""
    ended: dict[str, JobState] = field(default_factory=dict)
    holds: dict[str, effects.HoldView] = field(default_factory=dict)
    reservations: dict[str, effects.ReservationView] = field(default_factory=dict)
    fetching: set[str] = field(default_factory=set)
    facts: dict[str, events.ModelFacts] = field(default_factory=dict)
    known: dict[str, events.ModelFacts] = field(default_factory=dict)
    """The same, of models that left the catalogue too."""
    policy: Policy = field(default_factory=Policy)
    asked_out: set[str] = field(default_factory=set)
    """Models that the instructor had evicted and nobody asked for since: a pin waits."""
    out_of_memory: Counter[str] = field(default_factory=Counter)
    """How often each job's device ran out of memory over it alone."""
    clearing: set[str] = field(default_factory=set)
    """The instructor's own reservations."""
    others_on: set[str] = field(default_factory=set)
    """Devices on which kernels' own processes were seen: they may use what was reserved."""
    granted_to: set[str] = field(default_factory=set)
    """Devices that gave something away just now: then it was there to give."""
    suspects: set[str] = field(default_factory=set)
    """Jobs that a worker ended over: they have a device to themselves."""

    # events that happened

    def happened(self, event: events.Event) -> None:
        """Takes an event that the conductor is about to be told, or that it accepted."""
        match event:
            case events.DeviceReady(device):
                self.workers[device] = Worker()
            case events.WorkerDied(device) | events.DeviceGone(device):
                worker = self.workers.pop(device, Worker())
                self.suspects |= {*worker.unanswered, *worker.writing}
            case events.JobSubmitted(job, model=model):
                self.accepted[job] = event
                self.asked_out.discard(model)
            case events.HoldTaken(model=model) | events.ModelWanted(model):
                self.asked_out.discard(model)
            case events.EvictionAsked(model):
                self.asked_out.add(model)
            case events.ReservationAsked(reservation, kernel=None):
                self.clearing.add(reservation)
            case events.MemoryRead(device, used_bytes, ours_bytes, processes):
                if processes:
                    self.others_on.add(device)
                # Any other reading is not believed, or says nothing of them.
                elif processes is not None and used_bytes >= ours_bytes > 0:
                    self.others_on.discard(device)
            case events.PolicyChanged(policy):
                self.policy = policy
            case events.ParticipantReplaced():
                self._replaced(event)
            case events.CatalogueChanged(models):
                self.facts = {facts.model: facts for facts in models}
                self.known |= self.facts
                self.fetching -= {facts.model for facts in models if facts.on_disk}
                self.fetching &= set(self.facts)
            case events.FetchFailed(model):
                self.fetching.discard(model)
            case _:
                self._answered(event)

    def _replaced(self, event: events.ParticipantReplaced) -> None:
        who, heir = event.participant, event.heir
        for job, asked in self.accepted.items():
            if asked.participant == who != heir:
                self.accepted[job] = structs.replace(asked, participant=heir, kernel=event.kernel)
        limits, priorities = dict(self.policy.limits), dict(self.policy.priorities)
        if who in limits:
            limits.setdefault(heir, limits[who])
        if who in priorities:
            priorities.setdefault(heir, priorities[who])
        if who != heir:
            limits.pop(who, None)
            priorities.pop(who, None)
        self.policy = structs.replace(self.policy, limits=limits, priorities=priorities)

    def _answered(self, event: events.Event) -> None:
        match event:
            case events.SlotLoaded(device, model, placement=placement):
                worker = self.workers[device]
                worker.transfer = None
                worker.ready.add(model)
                worker.placed[model] = placement
            case events.LoadFailed(device) | events.SlotEvicted(device):
                self.workers[device].transfer = None
            case events.JobFinished(job) | events.JobFailed(job) if job in self.written:
                worker = next(each for each in self.workers.values() if job in each.writing)
                worker.writing.remove(job)
            case events.JobDrawn(job) | events.JobFailed(job) | events.JobStopped(job):
                worker = next(each for each in self.workers.values() if job in each.unanswered)
                worker.unanswered.remove(job)
                if isinstance(event, events.JobDrawn):
                    worker.writing.append(job)
                if isinstance(event, events.JobFailed) and worker.run and not worker.run.others:
                    self.out_of_memory[job] += 1
                if not worker.unanswered:
                    worker.run = None
            case _:
                pass

    # effects that followed

    def take(self, new: Iterable[Effect]) -> None:
        """Takes effects in their order; fails where one should not have been."""
        for effect in new:
            match effect:
                case effects.LoadModel():
                    self._load(effect)
                case effects.EvictModel():
                    self._evict(effect)
                case effects.RunJob():
                    self._run(effect)
                case effects.CancelJob(device, job):
                    assert job in self.workers[device].unanswered, "a cancel hit another job"
                case effects.StopWorker(device, reason):
                    assert reason not in self.workers[device].told_to_stop, "stopped twice"
                    self.workers[device].told_to_stop.add(reason)
                case effects.FetchModel(model):
                    assert model not in self.fetching, "a download was begun twice"
                    self.fetching.add(model)
                case effects.StopFetch(model):
                    assert model in self.fetching, "a download that is not was stopped"
                    self.fetching.discard(model)
                case _:
                    self._announced(effect)

    def _load(self, order: effects.LoadModel) -> None:
        worker = self._free_lane(order)
        facts, grows = self.known[order.model], True
        if order.model in worker.ready:
            assert facts.roles, "a model was loaded twice"
            assert order.placement != worker.placed[order.model], "a model was placed as it is"
            drawn = worker.run.model if worker.run else ""
            assert drawn != order.model, "a model was placed otherwise while it drew"
            worker.ready.remove(order.model)
            before = placed_bytes(facts, worker.placed[order.model])
            grows = placed_bytes(facts, order.placement) > before
        if facts.memory.max_vram_bytes:
            assert order.most_bytes == facts.memory.max_vram_bytes
            if facts.roles:
                assert placed_bytes(facts, order.placement) <= order.most_bytes, "beyond the cap"
        worker.transfer = order
        if grows:
            self.granted_to.add(order.device)

    def _evict(self, order: effects.EvictModel) -> None:
        worker, model = self._free_lane(order), order.model
        assert model in worker.ready, "a model left that is not there"
        assert worker.run is None or worker.run.model != model, "a running model was evicted"
        if not self._is_elsewhere(model, worker):
            assert not [each for each in self.holds.values() if each.model == model], (
                "a held model was evicted"
            )
            assert not self._pinned(model), "a pinned model was evicted"
        worker.ready.remove(model)
        worker.transfer = order

    def _is_elsewhere(self, model: str, worker: Worker) -> bool:
        """Whether another worker has it, and is not just about to place it otherwise."""
        others = [each for each in self.workers.values() if each is not worker]
        return any(
            model in each.ready and not (each.transfer and each.transfer.model == model)
            for each in others
        )

    def _run(self, order: effects.RunJob) -> None:
        worker, jobs = self._free_lane(order), (order.job, *order.others)
        assert order.model in worker.ready, "a job runs on a model that is not there"
        assert not self.policy.paused, "a job began in a pause"
        assert len(set(jobs)) == len(jobs), "a job is twice in a batch"
        requests = [self.accepted[job] for job in jobs]
        assert {request.model for request in requests} == {order.model}
        for request in requests:
            placed = worker.placed[order.model]
            assert request.manner in ("", placed.manner), "a picture was repeated otherwise"
            named = rung_named(request.placement)
            stands = rung_of(placed)
            if named is not None:
                assert stands is not None
                assert stands.placement == named.placement, "another rung than the one named"
            assert self.out_of_memory[request.job] < len(RUNGS), "up and down for ever"
        if order.others:
            assert len({request.group for request in requests}) == 1, "a batch of two groups"
            assert requests[0].group, "a batch of jobs that must run alone"
        if self.suspects & {*jobs}:
            assert len(jobs) == 1, "a suspect is drawn with others"
            assert worker.transfer is None, "a suspect began beside a load"
        for job in jobs:
            assert job not in self.ended, "a job began that had ended"
            assert job not in self.drawn | self.written, "a job runs twice"
        worker.run, worker.unanswered = order, list(jobs)
        self.granted_to.add(order.device)

    def _free_lane(self, order: Order) -> Worker:
        assert order.device in self.workers, "an order for a device without a worker"
        worker = self.workers[order.device]
        lane = worker.run if isinstance(order, effects.RunJob) else worker.transfer
        assert lane is None, "a busy lane got an order"
        at_work = {*worker.unanswered, *worker.writing}
        assert not self.suspects & at_work, "something began beside a suspect"
        if not isinstance(order, effects.EvictModel):
            whole = [
                each
                for each in self.reservations.values()
                if each.state is ReservationState.GRANTED
                and each.device == order.device
                and each.size_bytes is None
            ]
            assert not whole, "a GPU that is reserved as a whole got work"
        return worker

    def _pinned(self, model: str) -> bool:
        facts = self.facts.get(model)
        if facts is None or not facts.enabled or facts.problem or model in self.policy.withdrawn:
            return False
        if facts.memory != MemorySettings() and not facts.roles:
            return False  # loaded as a whole, it turns out to have no parts to be placed so
        return (
            self.policy.pinned.get(model, facts.pinned)
            and model not in self.asked_out
            and not self.clearing
        )

    def _announced(self, effect: Effect) -> None:
        match effect:
            case effects.AnnounceJob(view):
                assert view.job not in self.ended, "a job was answered after its end"
                if view.state.ended:
                    self.ended[view.job] = view.state
                    self.announced.pop(view.job, None)
                else:
                    self.announced[view.job] = view
            case effects.AnnounceHold(view, ended):
                self.holds[view.hold] = view
                if ended:
                    del self.holds[view.hold]
            case effects.AnnounceReservation(view, ended):
                before = self.reservations.get(view.reservation)
                new = before is None or before.state is not view.state
                if ended:
                    self.reservations.pop(view.reservation, None)
                    self.clearing.discard(view.reservation)
                    return
                self.reservations[view.reservation] = view
                if view.state is ReservationState.GRANTED and new:
                    assert view.device in self.workers, "room on a device without a worker"
                    if view.size_bytes is not None and view.device not in self.others_on:
                        self.granted_to.add(view.device)
            case _:
                pass

    # looking

    @property
    def busy(self) -> list[str]:
        """Devices whose workers have something to answer."""
        return sorted(name for name, worker in self.workers.items() if worker.orders)

    @property
    def drawn(self) -> set[str]:
        """Jobs that workers draw."""
        return {job for worker in self.workers.values() for job in worker.unanswered}

    @property
    def written(self) -> set[str]:
        """Jobs whose pictures workers make into files."""
        return {job for worker in self.workers.values() for job in worker.writing}

    @property
    def living(self) -> set[str]:
        """Jobs that were accepted and not answered."""
        return set(self.accepted) - set(self.ended)

    def waiting_of(self, participant: str) -> int:
        waiting = self.living - self.drawn - self.written
        return sum(self.accepted[job].participant == participant for job in waiting)
