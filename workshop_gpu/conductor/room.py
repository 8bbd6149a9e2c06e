"""How a device gets room for somebody who wants it: what is free, and what may leave for him."""

from collections.abc import Collection, Sequence

import msgspec

from workshop_gpu.conductor.events import PartBytes
from workshop_gpu.conductor.eviction import Candidate, Standing, choose
from workshop_gpu.conductor.looked import look_at
from workshop_gpu.conductor.placement import Option
from workshop_gpu.conductor.planning import kept_free_bytes
from workshop_gpu.conductor.queue import BEGIN, END, Key
from workshop_gpu.conductor.records import Device, Slot, State

LOADS_WORTH = 6.0
"""Patience and residency save loads: where a load's seconds are known, neither lasts longer than
this many of them."""


def patience_s(state: State, model: str) -> float:
    """For how long a job of the model may be overtaken: what is saved is a load, so it is not
    more than a few of these."""
    load_s = state.load_s(model)
    patience_s = state.settings.patience_s
    return patience_s if load_s is None else min(patience_s, LOADS_WORTH * load_s)


class Claim(msgspec.Struct, frozen=True):
    """Somebody who wants room for a model: a job with its key, or (None) a hold or a pin."""

    model: str
    participant: str | None
    key: Key | None
    due_key: Key | None = None
    """The first of those who wait for the model and were overtaken for as long as may be."""
    overdue: bool = False
    """The hold or pin has waited for longer than the patience."""

    @property
    def due(self) -> bool:
        return self.overdue or self.due_key is not None

    @property
    def rank(self) -> int | None:
        return None if self.key is None else self.key[0]

    def goes_before(self, first: Key) -> bool:
        """Whether a slot may be taken from those who wait for it, the first of whom has this
        key: only if that one is overtaken by nobody through it."""
        if self.key is None:
            return self.overdue
        due = self.due_key is not None and self.due_key < first
        return due or self.key[0] < first[0]


class Room:
    """One look at what devices could give, at one moment. `stuck`: devices and models whose waiting
    jobs have no room there, so that nobody waits for these slots."""

    def __init__(
        self, state: State, now: float, stuck: Collection[tuple[str, str]] = frozenset()
    ) -> None:
        self._state = state
        self._now = now
        self._stuck = stuck
        self._movable: dict[str, list[tuple[Slot, Key | None]]] = {}
        self._farthest: dict[str, Key] = {}

    def option(
        self, device: Device, claim: Claim, needed: int, worst: Standing = Standing.AWAITED
    ) -> Option | None:
        """How the device gets room for so many bytes now; None where it cannot."""
        free = self.free_bytes(device, claim)
        if needed <= free:
            return Option(device.name, free, busy=bool(device.running))
        if worst is Standing.NOBODY:
            return None
        # Mostly nothing can be taken from those who wait for what is there: then that is all.
        slots = [slot for slot in self.within_reach(device, claim) if not slot.running]
        if not slots or needed > free + self._freed_bytes(device, claim, slots):
            return None
        victims = self._choose(device, claim, needed - free, worst, slots)
        if not victims:
            return None
        return Option(
            device.name,
            free,
            tuple(victim.model for victim in victims),
            sum(victim.bytes for victim in victims),
            wanted=any(victim.standing is Standing.AWAITED for victim in victims),
            busy=bool(device.running),
        )

    def free_bytes(self, device: Device, claim: Claim) -> int:
        """What is free for the claim's model, with what stays free beside it."""
        return device.ledger.free_for(claim.model, self._kept_bytes(claim))

    def farthest_on(self, device: Device) -> Key:
        """The last of those who wait for what could leave the device at once."""
        farthest = self._farthest.get(device.name)
        if farthest is None:
            farthest = BEGIN
            for slot, first in self._may_leave(device):
                if slot.running or (first and self._is_untried(slot)):
                    continue
                farthest = max(farthest, first or END)
            self._farthest[device.name] = farthest
        return farthest

    def untried_on(self, device: Device) -> frozenset[str]:
        """Models that somebody waits for, and that nobody has drawn with since they came there."""
        return frozenset(
            slot.model
            for slot, first in self._may_leave(device)
            if first and self._is_untried(slot)
        )

    def within_reach(self, device: Device, claim: Claim) -> list[Slot]:
        """What could leave for the claim, or could as soon as its jobs have ended and protections
        of the moment have run out."""
        return [
            slot
            for slot, first in self._may_leave(device)
            if (first is None or claim.goes_before(first)) and slot.model != claim.model
        ]

    def later(
        self,
        device: Device,
        claim: Claim,
        needed: int,
        worst: Standing = Standing.NOT_YET,
        moving: Sequence[Slot] = (),
    ) -> bool:
        """Whether it would have room if what runs had ended and, with the usual `worst`, if
        protections that run out by themselves had run out. What is `moving` has left by then."""
        parts, looked = self._parts(claim), look_at(self._state, device)
        if worst is not Standing.NOT_YET:
            near = self.within_reach(device, claim)
            slots = [slot for slot in near if self._standing(slot, claim) <= worst]
        elif parts or moving or claim.model in device.slots:
            slots = [slot for slot in looked.movable if slot.model != claim.model]
        else:
            return needed <= looked.ever_for(self._kept_bytes(claim))
        running_bytes = looked.at_rest_bytes - looked.free_bytes
        leaving = self._freed_bytes(device, claim, [*slots, *moving], parts)
        return needed <= self.free_bytes(device, claim) + running_bytes + leaving

    def _choose(
        self, device: Device, claim: Claim, missing: int, worst: Standing, slots: list[Slot]
    ) -> tuple[Candidate, ...] | None:
        ledger, wanted, kept_bytes = device.ledger, self._parts(claim), self._kept_bytes(claim)
        candidates = [
            Candidate(
                slot.model,
                ledger.weights_bytes(slot.model),
                slot.used_s,
                self._standing(slot, claim),
            )
            for slot in slots
        ]
        return choose(
            candidates,
            missing,
            worst,
            lambda models: ledger.freed_bytes(models, wanted, claim.model, kept_bytes),
        )

    def _freed_bytes(
        self,
        device: Device,
        claim: Claim,
        slots: Sequence[Slot],
        wanted: Collection[PartBytes] = (),
    ) -> int:
        """What more is free for the claim if these leave."""
        models = [slot.model for slot in slots]
        return device.ledger.freed_bytes(models, wanted, claim.model, self._kept_bytes(claim))

    def _kept_bytes(self, claim: Claim) -> int:
        """What is to stay free beside the claim's model."""
        return kept_free_bytes(self._state, claim.model)

    def _parts(self, claim: Claim) -> tuple[PartBytes, ...]:
        return self._state.estimates.parts(self._state.models[claim.model].facts)

    def _may_leave(self, device: Device) -> list[tuple[Slot, Key | None]]:
        """The device's slots that somebody might take, each with the first who waits for it."""
        movable = self._movable.get(device.name)
        if movable is None:
            movable = self._movable[device.name] = [
                (slot, self._first_key(slot)) for slot in look_at(self._state, device).movable
            ]
        return movable

    def _first_key(self, slot: Slot) -> Key | None:
        """The place of the first who waits for the slot."""
        if (slot.device, slot.model) in self._stuck:
            return None
        return self._state.queue.first_key(slot.model)

    def _standing(self, slot: Slot, claim: Claim) -> Standing:
        """How freely one of those slots may be made to leave for this claim."""
        standing = self._standing_at_rest(slot, claim)
        if slot.running and standing <= Standing.AWAITED:
            return Standing.RUNS
        return standing

    def _standing_at_rest(self, slot: Slot, claim: Claim) -> Standing:
        age_s = self._now - slot.since_s
        first = self._first_key(slot)
        if first is not None:
            if self._is_untried(slot):
                return Standing.UNTRIED if claim.due else Standing.NOT_YET
            return Standing.AWAITED if claim.goes_before(first) else Standing.NOT_YET
        if age_s >= self._residency_s(slot.model) or claim.due:
            return Standing.IDLE
        return Standing.NOT_YET if self._swapped_back(slot, claim) else Standing.YOUNG

    def _is_untried(self, slot: Slot) -> bool:
        """Whether it has just come, and nobody has drawn with it yet."""
        return not slot.uses and self._now - slot.since_s < self._state.settings.patience_s

    def _swapped_back(self, slot: Slot, claim: Claim) -> bool:
        """Whether two models would only take turns: the one that wants in was pushed out a
        moment ago, and somebody else works with the one that is here."""
        pushed_out_s = self._state.models[claim.model].pushed_out_s
        if pushed_out_s is None:
            return False
        recent = self._now - pushed_out_s < 2 * self._residency_s(claim.model)
        return recent and bool(slot.users - {claim.participant})

    def _residency_s(self, model: str) -> float:
        residency_s, load_s = self._state.settings.min_residency_s, self._state.load_s(model)
        return residency_s if load_s is None else min(residency_s, LOADS_WORTH * load_s)
