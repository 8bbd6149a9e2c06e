"""The ways in which a device could run a model's jobs: each rung of the ladder with what must leave
for it, compared by the seconds that they cost.

The cost of a way is what the jobs will take on that rung, the model's way there, and the way back
of those who leave for it. A model that is ready is placed otherwise only where that is clearly
better, or where its job has no room as it is.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import msgspec

from workshop_gpu.conductor.ladder import PLANNED
from workshop_gpu.conductor.placement import Option, best
from workshop_gpu.conductor.planner import AS_FAST, Plan, Step, allowed, lowest_first, room_after
from workshop_gpu.conductor.planning import (
    Size,
    has_rung_on,
    is_within_cap,
    least_bytes,
    plan_here,
    plans,
    rungs_for,
    size_of,
)
from workshop_gpu.conductor.records import Device, Job, Slot, State
from workshop_gpu.conductor.rungs import RESIDENT, Placement, Streams
from workshop_gpu.conductor.rungs_left import leave_a_rung
from workshop_gpu.conductor.states import SlotState

Ask = Callable[[int], Option | None]
"""How the device gets room for so many bytes more than are used now; None where it cannot."""

_CLEARLY = 1.1
"""A ready model is placed otherwise if its jobs then take less than by this factor."""
MOST_MOVES = 2
REST_S = 10.0
"""A model that was placed otherwise so often without drawing in between stays so for a while."""
_LEAST_JOBS, _MOST_JOBS = 4, 10
"""So many jobs are counted on to come: people draw more than one picture, and who has drawn many
goes on."""


class Placing:
    """For one model, one size of jobs, and one moment. `steps`: where memory ran out for the job
    that it is about. `freed_bytes`: what is taken for free, because others are about to leave."""

    def __init__(
        self,
        state: State,
        now: float,
        model: str,
        size: Size,
        steps: tuple[Step, ...] = (),
        freed_bytes: int = 0,
    ) -> None:
        self._state = state
        self._now = now
        self._model = model
        self._size = size
        self._steps = steps
        self._freed_bytes = freed_bytes
        facts, estimates = state.models[model].facts, state.estimates
        self._memory = facts.memory
        self._has_ladder = bool(estimates.roles(facts))
        self._parts = estimates.parts(facts)
        self._weights_bytes = estimates.weights_bytes(facts)
        self._working_bytes = size.beside_bytes + estimates.working_bytes(
            model, self._weights_bytes, size.pixels, size.batch
        )
        """Both as a whole."""

    @classmethod
    def for_job(cls, state: State, now: float, job: Job) -> "Placing":
        return cls(state, now, job.model, size_of(job), job.steps)

    def least_bytes(self, device: Device) -> int:
        """What a job needs at the very least beyond what the model has on the device."""
        slot = device.slots[self._model] if device.has(self._model, SlotState.READY) else None
        if not self._has_ladder:
            return self.working_bytes(slot.placement) if slot else self._as_a_whole(device)
        anew_bytes = self._anew_bytes(device)
        if slot is None or not self._kept(device, slot):
            return anew_bytes
        return min(self._beside_bytes(slot.placement), anew_bytes)

    def _anew_bytes(self, device: Device) -> int:
        """The same, of the rungs that it may take there: more than the device has, where there is
        none."""
        state, model, none_bytes = self._state, self._model, device.ledger.total_bytes + 1
        if not has_rung_on(state, model, self._size, device):
            return none_bytes
        found = allowed(plans(state, model, self._size, 0), self._all_steps(device))
        return min((self._coming_bytes(device, plan) for plan in found), default=none_bytes)

    def _coming_bytes(self, device: Device, plan: Plan) -> int:
        """What the plan needs beyond what is there. A move brings what the model shares once more:
        what is there stays with the others."""
        there_bytes = device.ledger.leaving_bytes((self._model,))
        if self._model not in device.slots and plan.placement == RESIDENT:
            there_bytes = self._shared_bytes(device)
        return plan.needed_bytes + self._memory.min_free_bytes - there_bytes

    @cached_property
    def fewest_bytes(self) -> int:
        """A load takes no less, wherever it is and on whatever rung."""
        fewest = self._weights_bytes + self._working_bytes
        if self._has_ladder:
            least = least_bytes(self._state, self._model, self._size)
            # What others want to stay free may be enough for it, too.
            fewest = min(fewest, least - self._memory.min_free_bytes)
        return fewest - sum(part.bytes for part in self._parts)

    def load(self, device: Device, ask: Ask) -> Option | None:
        """The best way to load the model on a device where it is not."""
        if not self._has_ladder:
            return ask(self._as_a_whole(device))
        if ask(self.fewest_bytes) is None:
            return None
        ways = self._ways(device, ask)
        return next(ways, None) if device.in_safe_mode else _best_of(ways)

    def run(self, device: Device, ask: Ask) -> Option | None:
        """The best way to run the job on a device where the model is ready: as it is placed, or
        otherwise. The option's placement tells which."""
        slot = device.slots[self._model]
        here = slot.placement
        if not self._has_ladder:
            return _at(ask(self.working_bytes(here)), here)
        as_it_is = None
        if self._within_cap(slot):
            as_it_is = _at(ask(self._beside_bytes(here)), here)
        left = self._kept(device, slot)
        if left and device.in_safe_mode:
            return as_it_is
        best_already = here == RESIDENT and as_it_is is not None and not as_it_is.victims
        rested = self._now - slot.since_s >= REST_S
        moves = device.can_transfer and (slot.moves < MOST_MOVES or rested)
        if left and (best_already or not moves):
            return as_it_is
        if not moves:
            named = bool(self._size.placement or self._size.manner)
            return as_it_is if device.can_transfer and not named else None
        ways = self._ways(device, ask)
        other = _best_of(each for each in ways if each.placement not in (here, slot.asked))
        if as_it_is is None or not left:
            return other
        plan = plan_here(self._state, self._model, self._size, here, device)
        cost_s = self._cost_s(device, plan, as_it_is, 0) / _CLEARLY
        return best(each for each in (other, _placed(as_it_is, plan, cost_s)) if each is not None)

    def alone(self, device: Device, ask: Ask) -> Option | None:
        """The best way to place a model that is ready so that it has nothing on other devices."""
        return _best_of(each for each in self._ways(device, ask) if not each.placement.source)

    def climb(self, device: Device, ask: Ask) -> Option | None:
        """The best way to place an idle model, where that is clearly better than it is now."""
        slot = device.slots[self._model]
        here = slot.placement
        if not self._has_ladder or not self._kept(device, slot):
            return None
        if ask(self._beside_bytes(here)) is None:
            return None  # its next job sees to it
        option = self.run(device, ask)
        return None if option is None or option.placement == here else option

    def working_bytes(self, placement: Placement) -> int:
        """What the job needs beside the model's weights, placed so."""
        if placement == RESIDENT or not self._has_ladder:
            return self._working_bytes
        device = next(iter(self._state.devices.values()))
        return plan_here(self._state, self._model, self._size, placement, device).working_bytes

    def _beside_bytes(self, placement: Placement) -> int:
        """The same, and what is to stay free beside the model."""
        return self.working_bytes(placement) + self._memory.min_free_bytes

    def _within_cap(self, slot: Slot) -> bool:
        """Whether the model takes no more with the job than it may, as it is placed. Where only
        what was asked for would not, a worker had to leave some of that out, and would again."""
        return any(
            is_within_cap(self._state, self._model, self._size, placement)
            for placement in (slot.placement, slot.asked)
        )

    def _as_a_whole(self, device: Device) -> int:
        return self._weights_bytes - self._shared_bytes(device) + self._working_bytes

    def _shared_bytes(self, device: Device) -> int:
        """What others have brought there already."""
        return device.ledger.present_bytes(self._parts) if self._parts else 0

    def _all_steps(self, device: Device) -> tuple[Step, ...]:
        """Where memory ran out for the job, and of late for others on the device. What ran out
        for several jobs, each on another rung, may together leave none: then it tells nothing any
        more, and only what the job itself met counts, and what loads did that left other jobs of
        the model a rung."""
        units = self._size.pixels * self._size.batch
        known = self._state.shortages.steps(device.name, self._model, units, self._now)
        steps = (*self._steps, *known)
        if not known or leave_a_rung(self._state, self._model, self._size, steps, device):
            return steps
        loads = self._state.shortages.steps(device.name, self._model, 0, self._now)
        steps = (*self._steps, *loads)
        any_way = self._size._replace(placement="", manner="")
        if loads and leave_a_rung(self._state, self._model, any_way, steps, device):
            return steps
        return self._steps

    def _kept(self, device: Device, slot: Slot) -> bool:
        """Whether the job may run as the model is placed."""
        here = slot.placement
        steps = self._all_steps(device)
        rungs = rungs_for(self._memory, self._size.placement)
        if not self._in_manner(here) or not self._within_cap(slot):
            return False
        if slot.memory != self._memory and not self._placed_so_now(device, slot):
            return False
        if here == RESIDENT and rungs is PLANNED and not steps:
            return True
        plan = plan_here(self._state, self._model, self._size, here, device)
        lowest = plans(self._state, self._model, self._size, 0, device)
        whole = len(rungs) == 1 and rungs[0].streams is Streams.ALL
        alike = any(
            each.placement.kind in (here.kind, slot.asked.kind)
            and (not whole or each.placement.streamed_bytes <= here.streamed_bytes)
            for each in lowest
        )
        return alike and bool(allowed([plan], steps))

    def _placed_so_now(self, device: Device, slot: Slot) -> bool:
        """Whether a rung comes to this very placement under the settings as they are now: they
        are others than those under which it was ordered."""
        now = self._plans(device)
        return any(each.placement in (slot.placement, slot.asked) for each in now)

    def _in_manner(self, placement: Placement) -> bool:
        """Whether a picture that the job repeats comes out the same so."""
        return self._size.manner in ("", placement.manner)

    def _ways(self, device: Device, ask: Ask) -> Iterator[Option]:
        """Each rung for which there is room, or could be. As few bytes are streamed as what is
        free asks for; others leave only where a rung has no room at all without that. In safe
        mode the lowest come first, with as little on the device as can be."""
        own_bytes = device.ledger.leaving_bytes((self._model,))
        found, most_bytes = self._plans(device), self._memory.max_vram_bytes
        for plan in lowest_first(found) if device.in_safe_mode else found:
            if most_bytes and plan.needed_bytes > most_bytes:
                continue
            option = ask(self._coming_bytes(device, plan))
            if option is not None:
                coming = max(0, plan.weights_bytes - own_bytes)
                coming += self._coming_elsewhere_bytes(device, plan)
                yield _placed(option, plan, self._cost_s(device, plan, option, coming))

    def _coming_elsewhere_bytes(self, device: Device, plan: Plan) -> int:
        """What has to come to the plan's source. What others have there does not count: else a
        rung that needs it would look better than one where all of the model is on its device."""
        source = self._state.devices.get(plan.placement.source)
        if source is None:
            return 0
        return max(0, plan.elsewhere_bytes - source.ledger.lent_bytes(device.name, self._model))

    def _plans(self, device: Device) -> tuple[Plan, ...]:
        """The rungs that it may take there, for the room that is free or its own."""
        free = 0
        if not device.in_safe_mode:
            free = device.ledger.free_for(self._model, self._memory.min_free_bytes)
            free += self._freed_bytes + self._planned_bytes(device)
        steps = self._all_steps(device)
        found = plans(self._state, self._model, self._size, room_after(steps, free), device)
        return allowed(found, steps)

    def _planned_bytes(self, device: Device) -> int:
        """What the model has there, as far as its plan said so. What it takes beyond that, it
        would take on another rung, too: then a bit more is streamed, else a plan that fits exactly
        would be made again and again."""
        own_bytes = device.ledger.leaving_bytes((self._model,))
        if not device.has(self._model, SlotState.READY):
            return own_bytes
        here = device.slots[self._model].placement
        plan = plan_here(self._state, self._model, self._size, here, device)
        return min(own_bytes, plan.weights_bytes)

    def _cost_s(self, device: Device, plan: Plan, option: Option, coming_bytes: int) -> float:
        state = self._state
        slot = device.slots.get(self._model)
        uses = min(slot.uses, _MOST_JOBS) if slot and slot.state is SlotState.READY else 0
        jobs = max(_LEAST_JOBS, uses, state.queue.waiting(self._model))
        bus = device.bus_bytes_per_s or state.estimates.bus_bytes_per_s()
        back_s = leaving_s(state, device, option.victims)
        return jobs * plan.job_s + coming_bytes / bus + back_s


def leaving_s(state: State, device: Device, victims: Iterable[str]) -> float:
    """What it costs that these leave: the seconds that they take to come back."""
    return sum(
        state.estimates.load_guess_s(victim, device.ledger.weights_bytes(victim))
        for victim in victims
    )


def _best_of(ways: Iterable[Option]) -> Option | None:
    """The best of these; where a model fits as a whole, that, unless it is slower by more than can
    be told: then nothing of it is hooked."""
    found = list(ways)
    first = best(found)
    whole = next((each for each in found if each.placement == RESIDENT), None)
    if first is None or whole is None:
        return first
    takes_no_more = (whole.wanted, whole.busy, whole.victim_bytes) <= (
        first.wanted,
        first.busy,
        first.victim_bytes,
    )
    return whole if takes_no_more and whole.cost_s <= first.cost_s * AS_FAST else first


def _at(option: Option | None, placement: Placement) -> Option | None:
    return None if option is None else msgspec.structs.replace(option, placement=placement)


def _placed(option: Option, plan: Plan, cost_s: float) -> Option:
    return msgspec.structs.replace(
        option,
        placement=plan.placement,
        weights_bytes=plan.weights_bytes,
        exact=plan.placement.exact,
        cost_s=cost_s,
    )
