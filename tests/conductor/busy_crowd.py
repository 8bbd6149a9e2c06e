"""A crowd that always has jobs waiting, on cards with room for one or two models: people overtake
each other at every moment, while workers die, loads fail and the instructor changes his mind."""

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import initialize, invariant

from tests.conductor.crowd import FAR, PEOPLE, Crowd
from workshop_gpu.conductor import events
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.states import Priority


class BusyCrowd(Crowd):
    """After each thing that happens, the workshop goes on for a while."""

    moments = 12
    works = 0.4
    """How likely it is that a worker answers in a moment, and that somebody asks who may."""
    asks = 0.7

    @initialize(
        queue_limit=st.integers(2, 3),
        count=st.sampled_from((1, 1, 2)),
        first_gb=st.sampled_from((36, 48, 80)),
        second_gb=st.sampled_from((36, 48)),
        batch_limit=st.sampled_from((1, 1, 3)),
        habits=st.lists(st.sampled_from(("a", "c", "b", "ac", "abc")), min_size=3, max_size=3),
        dice=st.integers(0, 1000),
    )
    def open(self, first_gb: int, habits: list[str], **drawn: Any) -> None:
        self.first_gb, self.habits = first_gb, dict(zip(PEOPLE, habits, strict=True))
        super().open(**drawn, wait_limit_s=0.0, bustle=0.0)

    def tell_ready(self, device: str, foreign_gb: int = 0) -> None:
        self.sizes_gb["gpu0"] = self.first_gb
        super().tell_ready(device, foreign_gb)

    @invariant()
    def promises_are_kept(self) -> None:
        if hasattr(self, "conductor"):
            self.check_promises()
            for _ in range(self.moments):
                self.ordinary_moment()
            self.check_promises()

    def ordinary_moment(self) -> None:
        dice = self.dice
        self.now += dice.choice((0.5, 1.0, 2.0))
        for device in self.devices:
            if device not in {*self.out.workers, *self.gone}:
                self.tell_ready(device)
        for device in self.out.busy:
            if dice.random() < self.works:
                self.succeed(device, dice.randrange(1000))
        for job in sorted(self.out.written):
            self.tell(events.JobFinished(job))
        for who in PEOPLE:
            if self.out.waiting_of(who) < 2 and dice.random() < self.asks:
                model = dice.choice(self.habits[who])
                self.submit(who, model, 512 * 512, Priority.NORMAL, False)
        if dice.random() < 0.1:
            self.heal()
        self.tell(events.Tick())

    def heal(self) -> None:
        """What somebody did is undone."""
        policy = Policy(
            queue_limit=self.out.policy.queue_limit,
            patience_s=self.out.policy.patience_s,
            min_residency_s=self.out.policy.min_residency_s,
        )
        if self.out.policy != policy:
            self.ask(events.PolicyChanged(policy))
        for name in list(self.out.reservations):
            self.ask(events.ReservationDropped(name))
        for name in list(self.out.holds):
            self.ask(events.HoldDropped(name))
        for device in self.devices:
            if device in self.out.workers:
                self.read_honestly(device)
        self.facts = {
            name: self.calm(name, on_disk=name != FAR or self.facts[name].on_disk)
            for name in ("a", "b", "c", "d", "tiny", FAR)
            if name in self.facts or name != FAR
        }
        self.tell_catalogue()
