"""A conductor that is told of events by hand, and all who keep account of what it says to them."""

from collections import Counter
from typing import ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from tests.conductor.drift import Drift
from tests.conductor.outside import Outside
from tests.conductor.overtaking import Overtaking
from tests.conductor.promises import check
from tests.conductor.shares import Shares
from tests.conductor.written_down import written_down
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Conductor
from workshop_gpu.conductor.errors import WorkshopError


class Told(RuleBasedStateMachine):
    """Whatever is done goes through here."""

    tally: ClassVar[Counter[str]] = Counter()
    """Examples, steps, effects by their kind, and how often the accounts had something to say, of
    this process: a test in which nothing happens shows nothing."""

    conductor: Conductor
    before: bytes | None = None
    """The conductor as a refusal has left it, until it is told of something."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.ids: dict[str, list[str]] = {"job": [], "hold": [], "room": []}
        self.out = Outside()
        self.overtaking = Overtaking(self.out, self.tally)
        self.shares = Shares(self.out, self.tally)
        self.drift = Drift(self.out, self.overtaking, self.shares, self.tally)
        self.tally["examples"] += 1

    def tell(self, event: events.Event) -> None:
        """A fact: never refused."""
        self.out.happened(event)
        self.take(event, self.conductor.handle(event, self.now))

    def ask(self, event: events.Event) -> WorkshopError | None:
        """A request: accepted, or refused and then nothing has changed."""
        self.before = self.before or written_down(self.conductor)
        try:
            new = self.conductor.handle(event, self.now)
        except WorkshopError as refusal:
            after = written_down(self.conductor)
            assert after == self.before, "a refused request changed something"
            return refusal
        self.out.happened(event)
        self.take(event, new)
        return None

    def take(self, event: events.Event, new: list[effects.Effect]) -> None:
        self.before = None
        self.tally.update(type(effect).__name__ for effect in new)
        self.overtaking.take(event, new, self.now)
        self.shares.take(event, new, self.now)
        self.out.take(new)
        self.drift.take(event, new, self.now)

    def check_promises(self) -> None:
        """What must be true at every moment."""
        self.tally["steps"] += 1
        seen = self.conductor.snapshot(self.now)
        check(seen, self.out)
        self.shares.check(seen, self.now)

    def new_id(self, kind: str) -> str:
        self.ids[kind].append(f"{kind}-{len(self.ids[kind])}")
        return self.ids[kind][-1]

    def some_id(self, kind: str, number: int) -> str:
        """Mostly one of the last that were given, seldom one that never was."""
        last = [*self.ids[kind][-6:], "unheard of"]
        return last[number % len(last)]
