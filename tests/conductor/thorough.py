"""A conductor that looks at everything each time, and takes no short way to the same answer."""

from collections.abc import Callable, Collection, Mapping, Sequence
from unittest.mock import patch

from workshop_gpu.conductor import dispatch, loading, look
from workshop_gpu.conductor.conductor import Conductor
from workshop_gpu.conductor.effects import Effect
from workshop_gpu.conductor.errors import WorkshopError
from workshop_gpu.conductor.events import Event
from workshop_gpu.conductor.eviction import Candidate, Standing, choose
from workshop_gpu.conductor.lag import Lag
from workshop_gpu.conductor.learned import Learned
from workshop_gpu.conductor.look import Look
from workshop_gpu.conductor.looked import Looked
from workshop_gpu.conductor.placement import Option
from workshop_gpu.conductor.placing import Placing
from workshop_gpu.conductor.planning import kept_free_bytes
from workshop_gpu.conductor.queue import Key
from workshop_gpu.conductor.records import Device, Slot
from workshop_gpu.conductor.room import Claim, Room
from workshop_gpu.conductor.settings import Settings
from workshop_gpu.conductor.states import SlotState


class Forgetful(dict[str, Looked]):
    """Remembers nothing that is written into it."""

    def __setitem__(self, device: str, looked: Looked) -> None:
        pass


class ThoroughRoom(Room):
    """Asks of every slot how freely it may leave, and chooses among all of them."""

    def option(
        self, device: Device, claim: Claim, needed: int, worst: Standing = Standing.AWAITED
    ) -> Option | None:
        free = self.free_bytes(device, claim)
        victims = self._victims(device, claim, needed - free, worst)
        if victims is None:
            return None
        names = tuple(victims)
        standings = [self._judged(slot, claim) for slot in victims.values()]
        return Option(
            device.name,
            free,
            names,
            sum(device.ledger.weights_bytes(name) for name in names),
            wanted=Standing.AWAITED in standings,
            busy=bool(device.running),
        )

    def later(
        self,
        device: Device,
        claim: Claim,
        needed: int,
        worst: Standing = Standing.NOT_YET,
        moving: Sequence[Slot] = (),
    ) -> bool:
        ends = sum(job.working_bytes for job in device.running.values())
        gone = tuple(slot.model for slot in moving)
        missing = needed - self.free_bytes(device, claim) - ends
        missing -= self._freed(device, claim, gone)
        return self._victims(device, claim, missing, worst, gone) is not None

    def _victims(
        self,
        device: Device,
        claim: Claim,
        missing: int,
        worst: Standing,
        gone: tuple[str, ...] = (),
    ) -> Mapping[str, Slot] | None:
        ledger, slots = device.ledger, device.slots
        gone_bytes = self._freed(device, claim, gone)
        candidates = [
            Candidate(name, ledger.weights_bytes(name), slot.used_s, self._judged(slot, claim))
            for name, slot in slots.items()
        ]
        victims = choose(
            candidates,
            missing,
            worst,
            lambda models: self._freed(device, claim, [*models, *gone]) - gone_bytes,
        )
        return None if victims is None else {each.model: slots[each.model] for each in victims}

    def _freed(self, device: Device, claim: Claim, models: Collection[str]) -> int:
        facts = self._state.models[claim.model].facts
        wanted, kept_bytes = (
            self._state.estimates.parts(facts),
            kept_free_bytes(self._state, claim.model),
        )
        return device.ledger.freed_bytes(models, wanted, claim.model, kept_bytes)

    def _judged(self, slot: Slot, claim: Claim) -> Standing:
        kept = self._state.is_kept(slot)
        if slot.state is not SlotState.READY or kept or slot.model == claim.model:
            return Standing.NEVER
        return self._standing(slot, claim)


class ThoroughLook(Look):
    """Asks every device for every model."""

    def giving(self, claim: Claim, fewest_bytes: int) -> list[Device]:
        return self.open(claim.model)

    def is_reserved_for_others(self, model: str) -> bool:
        return False


class ThoroughLag(Lag):
    """Asks every device who goes on there."""

    def _others_go_on(self, model: str, key: Key, most_s: float, least_s: float) -> bool:
        going_on = [
            (self._who_goes_on(device), most_s if device.slots else least_s)
            for device in self._devices
            if model not in device.slots
        ]
        return any(
            least[:2] == key[:2] and least[2] - key[2] > ahead_s for least, ahead_s in going_on
        )


class ThoroughPlacing(Placing):
    """Compares all rungs on every device, whether or not the lowest has room there."""

    @property
    def fewest_bytes(self) -> int:
        return 0


class Thorough(Conductor):
    """Keeps nothing of one look for the next."""

    def __init__(
        self,
        settings: Settings | None = None,
        devices: tuple[str, ...] = (),
        learned: Learned | None = None,
    ) -> None:
        super().__init__(settings, devices, learned)
        self._state.looked = Forgetful()

    def handle(self, event: Event, now: float) -> list[Effect]:
        with (
            patch.object(dispatch, "Look", ThoroughLook),
            patch.object(look, "Room", ThoroughRoom),
            patch.object(look, "Lag", ThoroughLag),
            patch.object(loading, "Placing", ThoroughPlacing),
            patch.object(dispatch, "Placing", ThoroughPlacing),
        ):
            return super().handle(event, now)


class Twins(Conductor):
    """The conductor, with a thorough one beside it that is told the same and must say the same."""

    def __init__(
        self,
        settings: Settings | None = None,
        devices: tuple[str, ...] = (),
        learned: Learned | None = None,
    ) -> None:
        super().__init__(settings, devices, learned)
        self._thorough = Thorough(settings, devices, learned)

    def handle(self, event: Event, now: float) -> list[Effect]:
        said = answer(super().handle, event, now)
        same = answer(self._thorough.handle, event, now)
        if isinstance(said, WorkshopError):
            assert isinstance(same, WorkshopError)
            assert same.report() == said.report(), "refused for another reason"
            raise said
        assert same == said, "short ways lead elsewhere"
        return said


def answer(
    handle: Callable[[Event, float], list[Effect]], event: Event, now: float
) -> list[Effect] | WorkshopError:
    """What follows, or the refusal."""
    try:
        return handle(event, now)
    except WorkshopError as refusal:
        return refusal
