"""When somebody's own code gets the room that it asked for.

A reservation waits among the jobs: it has its turn on devices that no job before it in the order
could use (see `turns.py`), and keeps it where a device is closed for it. Then, on that of them that
needs the least for it:

1. it is granted where there is room;
2. idle models leave, one at a time, until there is; models of other devices give back what they
   have of this one, between two of their jobs, also those that are held or pinned;
3. the device is closed: what runs finishes and nothing new begins, because otherwise the jobs of
   a busy model would keep it out for ever;
4. where holds, pins, other reservations or other programs keep the room, nothing is closed for
   it: nobody knows when they end, and the jobs go on meanwhile.

The instructor's own (a whole device, without end) has its turn at once, closes the device in any
case, and pinned models leave for it. Whole devices stay closed while they are reserved.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from workshop_gpu.conductor.eviction import Candidate, Standing, choose
from workshop_gpu.conductor.lending import give_back, given_back_bytes, guests, way_out
from workshop_gpu.conductor.orders import Evict, Load
from workshop_gpu.conductor.queue import Key
from workshop_gpu.conductor.records import Activity, Device, Reservation, Slot, State
from workshop_gpu.conductor.states import DeviceState, ReservationState, SlotState
from workshop_gpu.conductor.turns import in_turn_on, key_of

CLEARED = "asked by the instructor: the GPU is cleared"


@dataclass(frozen=True, slots=True)
class Grant:
    """There is room: it is theirs."""

    device: str
    reservation: Reservation


@dataclass(slots=True)
class Decision:
    """The next step, if any, and the devices that are closed, each with the reservation."""

    step: Grant | Evict | Load | None = None
    closed: dict[str, str] = field(default_factory=dict)


class Way(IntEnum):
    """How the device comes to give the room, the best first."""

    NOW = 0
    EVICT = 1
    LATER = 2
    NOBODY_KNOWS = 3


@dataclass(frozen=True, slots=True)
class Option:
    """A device, and how it would give the room."""

    device: Device
    way: Way
    cost: float = 0.0
    """To compare devices with one way: bytes that leave, or seconds until what runs has ended."""
    victim: str = ""
    guests: tuple[Slot, ...] = ()
    """Models of other devices that give memory of this one back for it."""

    @property
    def order(self) -> tuple[Way, float, int]:
        return self.way, self.cost, -self.device.ledger.free_bytes


def next_step(state: State, now: float) -> Decision:
    """The first step that somebody's turn allows; it changes nothing, and is asked again after
    each."""
    decision = Decision(closed=dict(_taken(state)))
    for reservation in waiting_in_order(state, now):
        turn = in_turn_on(state, reservation, now) - decision.closed.keys()
        if not turn:
            continue
        options = [each for each in options_of(state, reservation, now) if each.device.name in turn]
        option = best_of(state, reservation, options)
        if option is None:
            continue
        name = option.device.name
        if option.way is Way.NOW:
            decision.step = Grant(name, reservation)
            return decision
        if option.way is Way.NOBODY_KNOWS and not reservation.clears:
            continue
        decision.closed[name] = reservation.id
        because = CLEARED if reservation.clears else "to make room for a reservation"
        if option.victim and option.device.can_transfer:
            decision.step = Evict(name, option.victim, because)
            return decision
        for guest in option.guests:
            kept = _standing(state, guest, reservation) is Standing.NEVER
            decision.step = give_back(state, guest, now, because, kept=kept)
            if decision.step is not None:
                return decision
    return decision


def _taken(state: State) -> Iterator[tuple[str, str]]:
    """Devices that somebody has as a whole."""
    for each in state.reservations.values():
        if each.device is not None and each.size_bytes is None:
            yield each.device, each.id


def waiting_in_order(state: State, now: float, before: Key | None = None) -> list[Reservation]:
    """Those that wait, in their order; at most those before a place in it."""
    waiting = [
        (not each.clears, key_of(state, each, now), each)
        for each in state.reservations.values()
        if each.state is ReservationState.WAITING
    ]
    waiting.sort(key=lambda each: each[:2])
    return [each for _, key, each in waiting if before is None or each.clears or key < before]


# devices


def best_of(state: State, reservation: Reservation, options: list[Option]) -> Option | None:
    """A device that is closed for it already goes first: what leaves there is on its way, and
    nothing need leave elsewhere."""

    def order(option: Option) -> tuple[bool, bool, tuple[Way, float, int]]:
        closed = state.closed.get(option.device.name) == reservation.id
        kept = closed and option.way is not Way.NOBODY_KNOWS
        return option.way is not Way.NOW, not kept, option.order

    return min(options, key=order, default=None)


def options_of(state: State, reservation: Reservation, now: float) -> list[Option]:
    """What each device that stands ready could do for it."""
    return [
        _option(state, device, reservation, now)
        for device in state.devices.values()
        if device.state is DeviceState.READY and reservation.wanted_device in (None, device.name)
    ]


def _option(state: State, device: Device, reservation: Reservation, now: float) -> Option:
    candidates = [
        Candidate(
            slot.model,
            device.ledger.weights_bytes(slot.model),
            slot.used_s,
            _standing(state, slot, reservation),
        )
        for slot in device.slots.values()
        if slot.state is not SlotState.FAILED
    ]
    if reservation.size_bytes is None:
        return _whole(state, device, candidates, reservation, now)
    option = _part(device, candidates, reservation, now)
    able = _able_guests(state, device, reservation, now)
    if option.way is not Way.NOBODY_KNOWS or not able:
        return option
    with_theirs = _part(device, candidates, reservation, now, given_back_bytes(state, device, able))
    if with_theirs.way is Way.NOBODY_KNOWS:
        return option
    return Option(device, Way.LATER, math.inf, guests=able)


def _able_guests(
    state: State, device: Device, reservation: Reservation, now: float
) -> tuple[Slot, ...]:
    """Models of other devices that can give back what they have of this one: now, or once their
    jobs and loads have ended."""
    return tuple(
        slot
        for slot in guests(state, device)
        if _standing(state, slot, reservation) is not Standing.NEVER
        or way_out(state, slot, now) is not None
    )


def _part(
    device: Device,
    candidates: list[Candidate],
    reservation: Reservation,
    now: float,
    back_bytes: int = 0,
) -> Option:
    """`back_bytes` come back from models of other devices."""
    ledger = device.ledger
    free_bytes = ledger.free_bytes + ledger.coverable_bytes(reservation.kernel) + back_bytes
    missing = (reservation.size_bytes or 0) - free_bytes
    if missing <= 0:
        return Option(device, Way.NOW)
    victims = choose(candidates, missing, Standing.AWAITED, ledger.freed_bytes)
    if victims:
        size = sum(each.bytes for each in victims)
        return Option(device, Way.EVICT, float(size), victims[0].model)
    ends = sum(job.working_bytes for job in device.running.values())
    if choose(candidates, missing - ends, Standing.NOT_YET, ledger.freed_bytes) is not None:
        return Option(device, Way.LATER, busy_s(device, now))
    return Option(device, Way.NOBODY_KNOWS)


def _whole(
    state: State,
    device: Device,
    candidates: list[Candidate],
    reservation: Reservation,
    now: float,
) -> Option:
    visiting = guests(state, device)
    able = _able_guests(state, device, reservation, now)
    others = any(each.device == device.name for each in state.reservations.values())
    used = candidates or visiting or device.running or others
    if not used and device.activity is Activity.IDLE:
        ledger = device.ledger
        left_bytes = ledger.free_bytes + ledger.coverable_bytes(reservation.kernel)
        return Option(device, Way.NOW if left_bytes >= 0 else Way.NOBODY_KNOWS)
    idle = [each for each in candidates if each.standing <= Standing.AWAITED]
    victim = min(idle, key=lambda each: (each.standing, each.used_s), default=None)
    name = victim.model if victim else ""
    kept = any(each.standing is Standing.NEVER for each in candidates)
    if others or kept or len(able) < len(visiting):
        return Option(device, Way.NOBODY_KNOWS, 0.0, name, able)
    if device.running or visiting or len(idle) < len(candidates):
        return Option(device, Way.LATER, busy_s(device, now), name, able)
    return Option(device, Way.EVICT, float(sum(each.bytes for each in idle)), name)


def _standing(state: State, slot: Slot, reservation: Reservation) -> Standing:
    """How freely the slot may be made to leave for the reservation."""
    if state.is_kept(slot) and (state.holds.on(slot.model) or not reservation.clears):
        return Standing.NEVER
    if slot.state is not SlotState.READY:
        return Standing.NOT_YET
    if slot.running:
        return Standing.RUNS
    return Standing.AWAITED if state.queue.awaits(slot.model) else Standing.IDLE


def busy_s(device: Device, now: float) -> float:
    """Seconds until what runs there should have ended; infinite where nobody knows."""
    if not device.running:
        return 0.0
    return float("inf") if device.until_s is None else max(0.0, device.until_s - now)
