"""One room under one policy: events from people and machines to the scheduler, its orders back."""

from itertools import count

from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.errors import QueueFull
from workshop_gpu.simulation.clock import Clock
from workshop_gpu.simulation.machines import Impossible, Machines
from workshop_gpu.simulation.measures import Measures, Record
from workshop_gpu.simulation.people import Person, people_of
from workshop_gpu.simulation.policies import Policy, Scheduler
from workshop_gpu.simulation.room import Room

# After people left, all that they asked for must come within this time.
_PATIENCE_S = 1_000_000.0
_TICK_S = 1.0


def simulate(room: Room, policy: Policy, seed: int = 0) -> Measures:
    """What the policy makes of the room, in numbers. Raises as `play` does."""
    everybody = room.participants
    always = [name for name, habits in everybody.items() if habits.backlog]
    return play(room, policy, seed).measures(among=always or list(everybody))


def play(room: Room, policy: Policy, seed: int = 0) -> Record:
    """What happens in the room. The same room, policy and seed give the same. Raises Impossible
    where the policy orders what cannot be, or lets a job wait for ever."""
    simulation = _Simulation(room, policy, seed)
    simulation.run()
    return simulation.record


class _Simulation:
    def __init__(self, room: Room, policy: Policy, seed: int) -> None:
        self._room = room
        self._models = room.by_name
        self._clock = Clock()
        self.record = Record(closes_s=room.hours * 3600)
        self._scheduler: Scheduler = policy.make(room)
        self._machines = Machines(
            room.devices,
            self._models,
            lambda facts: policy.load_s(facts.load_s),
            self._clock,
            self._tell,
        )
        people = people_of(room, seed, self._clock, self._submit)
        self._people: dict[str, Person] = {person.name: person for person in people}
        self._asked_by: dict[str, Person] = {}
        self._numbers = count(1)

    def run(self) -> None:
        self._open()
        while not self._over():
            if not self._clock.step():
                raise Impossible("nothing will ever happen any more, and jobs wait")
            if self._clock.now > self.record.closes_s + _PATIENCE_S:
                raise Impossible("a job waits for ever")

    def _open(self) -> None:
        facts = [
            events.ModelFacts(name, explicit_bytes=models.weights_bytes)
            for name, models in self._models.items()
        ]
        self._tell(events.CatalogueChanged(tuple(facts)))
        for device, total_bytes in self._room.devices.items():
            self._tell(events.DeviceReady(device, total_bytes))
        for person in self._people.values():
            person.sit_down()
        self._clock.after(self.record.closes_s, self._close)
        self._clock.after(_TICK_S, self._tick)

    def _close(self) -> None:
        for person in self._people.values():
            person.leave()

    def _over(self) -> bool:
        return self._clock.now >= self.record.closes_s and not self._asked_by

    def _tick(self) -> None:
        if self.record.waits:
            self._tell(events.Tick())
        self._clock.after(_TICK_S, self._tick)

    # people

    def _submit(self, participant: str, model: str) -> str:
        """The id of the job; "" where it was refused because too many wait already."""
        job = f"job-{next(self._numbers)}"
        facts = self._models[model]
        group = "as usual" if facts.batches else ""
        event = events.JobSubmitted(
            job, participant, None, model, facts.steps, facts.pixels, group=group
        )
        order = self._order()
        try:
            orders = self._scheduler.handle(event, self._clock.now)
        except QueueFull:
            return ""
        self.record.submitted(job, participant, model, self._clock.now)
        self._asked_by[job] = self._people[participant]
        self._carry_out(orders, order)
        return job

    # machines

    def _tell(self, event: events.Event) -> None:
        """Hands a fact over and carries out what follows."""
        order = self._order()
        orders = self._scheduler.handle(event, self._clock.now)
        if isinstance(event, events.SlotLoaded):
            self.record.loaded(event.model, event.seconds_s)
        if isinstance(event, events.JobFinished):
            self.record.ended(self._clock.now)
            person = self._asked_by.pop(event.job)
            self._clock.after(0.0, lambda: person.job_ended(event.job))
        self._carry_out(orders, order)

    def _order(self) -> list[str]:
        """The waiting jobs in their order, just before something happens."""
        return self._scheduler.waiting(self._clock.now) if self.record.waits else []

    def _carry_out(self, orders: list[effects.Effect], order: list[str]) -> None:
        for each in orders:
            match each:
                case effects.LoadModel():
                    self.record.load_began(self._clock.now)
                    self._machines.load(each)
                case effects.EvictModel():
                    self._machines.evict(each)
                case effects.RunJob():
                    self._run(each, order)
                case _:
                    pass

    def _run(self, order: effects.RunJob, waiting: list[str]) -> None:
        seconds_s = self._machines.run(order)
        jobs = (order.job, *order.others)
        self.record.began(jobs, waiting, seconds_s, self._clock.now)
        for job in jobs:
            self._tell_started(job)

    def _tell_started(self, job: str) -> None:
        person = self._asked_by[job]

        def started() -> None:
            self._tell(events.JobStarted(job))
            person.job_started(job)

        self._clock.after(0.0, started)
