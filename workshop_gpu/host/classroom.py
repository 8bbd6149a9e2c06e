"""What people in the room say to each other: the instructor's message to all, and raised hands."""

import time
from collections.abc import Callable

import msgspec

from workshop_gpu.conductor.errors import WorkshopError
from workshop_gpu.host.records import Participant

_MOST_HANDS = 500


class Message(msgspec.Struct, frozen=True):
    """What the instructor tells everybody, until it is taken back. `at` is seconds since 1970."""

    text: str
    who: str
    at: float


class HelpCall(msgspec.Struct, frozen=True):
    """A participant's raised hand. `at` is seconds since 1970."""

    participant: Participant
    text: str
    at: float


class MessageChanged(msgspec.Struct, frozen=True):
    """There is another message, or none any more."""

    message: Message | None


class HelpChanged(msgspec.Struct, frozen=True):
    """A hand was raised, or is down again."""

    call: HelpCall
    raised: bool


class NoHelpAsked(WorkshopError):
    """There is no raised hand to take down."""

    kind = "no_help_asked"

    def __init__(self) -> None:
        super().__init__(
            "No hand is raised: the call for help was answered or withdrawn already. "
            "Raise it again with wg.room.help()."
        )


class Classroom:
    """`tell` hears of each change. Nothing of it outlives the server."""

    def __init__(
        self,
        tell: Callable[[MessageChanged | HelpChanged], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._tell = tell
        self._now = now
        self._calls: dict[str, HelpCall] = {}
        self.message: Message | None = None

    @property
    def calls(self) -> list[HelpCall]:
        """Raised hands, those first that have waited longest."""
        return list(self._calls.values())

    def post(self, text: str, who: str) -> Message:
        """Everybody reads this from now on, in place of an earlier message."""
        self.message = Message(text, who, self._now())
        self._tell(MessageChanged(self.message))
        return self.message

    def take_back(self) -> None:
        """There is nothing to read any more."""
        if self.message is not None:
            self.message = None
            self._tell(MessageChanged(None))

    def raise_hand(self, participant: Participant, text: str) -> HelpCall:
        """A hand that is up already stays at its place; its text is the new one."""
        before = self._calls.get(participant.id)
        at = before.at if before else self._now()
        call = self._calls[participant.id] = HelpCall(participant, text, at)
        self._tell(HelpChanged(call, raised=True))
        if len(self._calls) > _MOST_HANDS:  # more than a room has people: somebody plays
            self.lower(next(iter(self._calls)))
        return call

    def lower(self, participant: str) -> HelpCall:
        """The hand is down: helped, or no longer needed. Raises NoHelpAsked."""
        call = self._calls.pop(participant, None)
        if call is None:
            raise NoHelpAsked
        self._tell(HelpChanged(call, raised=False))
        return call

    def left(self, participant: str) -> None:
        """The participant is gone for good."""
        if participant in self._calls:
            self.lower(participant)
