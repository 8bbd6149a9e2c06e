"""What people see of a reservation: its place, its expected wait, who keeps the room."""

import math
from dataclasses import dataclass

from workshop_gpu.conductor.effects import ReservationView
from workshop_gpu.conductor.granting import (
    Way,
    best_of,
    busy_s,
    options_of,
    waiting_in_order,
)
from workshop_gpu.conductor.reasons import keepers
from workshop_gpu.conductor.records import Reservation, State
from workshop_gpu.conductor.states import ReservationState
from workshop_gpu.conductor.turns import in_turn_on, key_of
from workshop_gpu.conductor.waits import rounded


@dataclass(frozen=True, slots=True)
class Forecast:
    """What one who waits is told."""

    position: int
    wait_s: float | None
    reason: str


def reservation_view(state: State, reservation: Reservation, now: float) -> ReservationView:
    """A reservation with its place, and the time that it has left."""
    waits = reservation.state is ReservationState.WAITING
    forecast = forecast_of(state, reservation, now) if waits else Forecast(0, None, "")
    left_s = max(0.0, reservation.expires_s - now)
    return ReservationView(
        reservation=reservation.id,
        participant=reservation.participant,
        kernel=reservation.kernel,
        device=reservation.device or reservation.wanted_device,
        size_bytes=reservation.size_bytes,
        state=reservation.state,
        position=forecast.position,
        expected_wait_s=None if forecast.wait_s is None else rounded(forecast.wait_s),
        expires_in_s=left_s if math.isfinite(left_s) else None,
        reason=forecast.reason,
    )


def forecast_of(state: State, reservation: Reservation, now: float) -> Forecast:
    """Position, wait and reason of one that waits."""
    key = key_of(state, reservation, now)
    before = sum(each.id != reservation.id for each in waiting_in_order(state, now, key))
    options, turn = options_of(state, reservation, now), in_turn_on(state, reservation, now)
    open_to_it = [each for each in options if each.device.name in turn]
    jobs = 0 if open_to_it else state.queue.line.place(key)
    position = jobs + before + 1
    option = best_of(state, reservation, open_to_it or options)
    if option is None:
        return Forecast(position, None, "no GPU is ready")
    if option.way is Way.NOBODY_KNOWS:
        kept = "; ".join(keepers(state, option.device)) or "others keep the room"
        return Forecast(position, None, kept)
    drain_s = busy_s(option.device, now) if option.way is Way.LATER else 0.0
    if not jobs:
        reason = "what runs there finishes first" if option.way is Way.LATER else ""
        return Forecast(position, None if drain_s == float("inf") else drain_s, reason)
    ahead_s = state.queue.line.work_s * jobs / len(state.queue) / max(1, len(state.lanes))
    return Forecast(position, ahead_s, "its turn")
