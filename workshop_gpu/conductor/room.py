"""How a device gets room for somebody who wants it: what is free, and what may leave for him."""

import msgspec

from workshop_gpu.conductor.eviction import Candidate, Standing, choose
from workshop_gpu.conductor.placement import Option
from workshop_gpu.conductor.queue import Key
from workshop_gpu.conductor.records import Device, Slot, State
from workshop_gpu.conductor.states import SlotState

LOADS_WORTH = 6.0
"""Patience and residency save loads: where a load's seconds are known, neither lasts longer than
this many of them."""


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
    """One look at what devices could give, at one moment."""

    def __init__(self, state: State, now: float) -> None:
        self._state = state
        self._now = now
        self._free: dict[str, int] = {}
        self._most: dict[tuple[str, bool], int] = {}
        self._worst_rank = len(state.queue) and state.queue.line.last.rank
        self._found: dict[tuple[str, Claim], list[Candidate]] = {}

    def free_bytes(self, device: Device) -> int:
        free = self._free.get(device.name)
        if free is None:
            free = self._free[device.name] = device.ledger.free_bytes
        return free

    def option(
        self, device: Device, claim: Claim, needed: int, worst: Standing = Standing.AWAITED
    ) -> Option | None:
        """How the device gets room for so many bytes now; None where it cannot."""
        free = self.free_bytes(device)
        if needed <= free:
            return Option(device.name, free, busy=bool(device.running))
        if worst is Standing.NOBODY or needed > free + self._most_bytes(device, claim):
            return None
        victims = self._choose(device, claim, needed - free, worst)
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

    def _most_bytes(self, device: Device, claim: Claim) -> int:
        """At most so many bytes can leave for the claim: most claims need not look further."""
        bold = claim.due or claim.key is None or claim.key[0] < self._worst_rank
        most = self._most.get((device.name, bold))
        if most is None:
            state = self._state
            leaving = [
                slot.model
                for slot in device.slots.values()
                if slot.state is SlotState.READY
                and not slot.running
                and (bold or not state.queue.awaits(slot.model))
            ]
            most = self._most[device.name, bold] = device.ledger.leaving_bytes(leaving)
        return most

    def later(
        self, device: Device, claim: Claim, needed: int, worst: Standing = Standing.NOT_YET
    ) -> bool:
        """Whether it would have room if what runs had ended and, with the usual `worst`, if
        protections that run out by themselves had run out."""
        running = sum(job.working_bytes for job in device.running.values())
        missing = needed - self.free_bytes(device) - running
        return self._choose(device, claim, missing, worst) is not None

    def _choose(
        self, device: Device, claim: Claim, missing: int, worst: Standing
    ) -> tuple[Candidate, ...] | None:
        if missing <= 0:
            return ()
        state, ledger = self._state, device.ledger
        wanted = state.estimates.parts(state.models[claim.model].facts)
        candidates = self._candidates(device, claim)
        return choose(
            candidates, missing, worst, lambda models: ledger.leaving_bytes(models, wanted)
        )

    def _candidates(self, device: Device, claim: Claim) -> list[Candidate]:
        found = self._found.get((device.name, claim))
        if found is None:
            found = self._found[device.name, claim] = self._look(device, claim)
        return found

    def _look(self, device: Device, claim: Claim) -> list[Candidate]:
        return [
            Candidate(
                slot.model,
                device.ledger.weights_bytes(slot.model),
                slot.used_s,
                self._standing(slot, claim),
            )
            for slot in device.slots.values()
        ]

    def _standing(self, slot: Slot, claim: Claim) -> Standing:
        """How freely the slot may be made to leave for this claim."""
        state = self._state
        if slot.state is not SlotState.READY or slot.model == claim.model:
            return Standing.NEVER
        if state.holds.on(slot.model) or state.models[slot.model].pinned:
            return Standing.NEVER
        standing = self._standing_at_rest(slot, claim)
        if slot.running and standing <= Standing.AWAITED:
            return Standing.RUNS
        return standing

    def _standing_at_rest(self, slot: Slot, claim: Claim) -> Standing:
        state = self._state
        age_s = self._now - slot.since_s
        first = state.queue.first(slot.model)
        if first is not None:
            if not slot.uses and age_s < state.settings.patience_s:
                return Standing.NOT_YET
            return Standing.AWAITED if claim.goes_before(first.key) else Standing.NOT_YET
        if age_s >= self._residency_s(slot.model) or claim.due:
            return Standing.IDLE
        return Standing.NOT_YET if self._swapped_back(slot, claim) else Standing.YOUNG

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
