"""Positions and expected waits of waiting jobs, from the records as they are now."""

from collections.abc import Sequence
from itertools import islice

import msgspec

from workshop_gpu.conductor.batching import best_size
from workshop_gpu.conductor.effects import JobView
from workshop_gpu.conductor.lanes import IDLE_S, UNKNOWN_S
from workshop_gpu.conductor.reasons import keeps_out
from workshop_gpu.conductor.records import Activity, Device, Job, State
from workshop_gpu.conductor.states import SlotState
from workshop_gpu.conductor.views import job_view
from workshop_gpu.conductor.waits import Lane, Play, Turn, rounded

_HERE = (SlotState.READY, SlotState.LOADING)


class Forecast(msgspec.Struct, frozen=True):
    """Seconds until each of the jobs at the front of the queue starts, in their order, None where
    nobody knows; until the last of them starts of which it is known (None: nothing is known of
    those behind); and how things stand once they have begun."""

    waits_s: list[float | None]
    last_s: float | None
    play: Play


def waiting_views(state: State, jobs: Sequence[Job], known: Forecast) -> list[JobView]:
    """All waiting jobs in their order, with positions and expected waits."""
    return [
        job_view(state, job, position, wait_s)
        for position, (job, wait_s) in enumerate(zip(jobs, known.waits_s, strict=True), start=1)
    ]


def newcomers(state: State, play: Play, at_least_s: float = 0.0) -> dict[str, float | None]:
    """How long one more job of each model would wait, in the steps in which waits are told."""
    waits_s = {name: _newcomer_s(state, name, play) for name in state.models}
    return {
        model: None if wait_s is None else rounded(max(wait_s, at_least_s))
        for model, wait_s in waits_s.items()
    }


def forecast(state: State, jobs: list[Job], now: float, most_lanes: int) -> Forecast:
    """Of many devices, those that are free first are looked at."""
    lanes = [
        _lane(state, state.devices[name], until_s, now)
        for until_s, name in islice(state.lanes, most_lanes)
        if name not in state.closed
    ]
    turns: dict[tuple[str, int, int, int, str], Turn] = {}
    in_order: list[Turn] = []
    for job in jobs:
        request = job.request
        kind = (request.model, request.pixels, request.steps, request.batch, request.group)
        turn = turns.get(kind)
        if turn is None:
            turn = turns[kind] = _turn(state, job)
        in_order.append(turn)
    names = {turn.model for turn in turns.values() if turn.model in state.models}
    kept_out = {name for name in names if keeps_out(state, name)}
    play = Play(lanes)
    waits_s: list[float | None] = []
    last_s: float | None = 0.0
    for turn in in_order:
        if turn.model in kept_out:  # others begin before it
            waits_s.append(None)
        else:
            last_s = play.take(turn)
            waits_s.append(last_s)
    return Forecast(waits_s, last_s, play)


def _newcomer_s(state: State, name: str, play: Play) -> float | None:
    """When a job for the model would start that came now, behind all who wait; None where nobody
    knows, or where none would be accepted."""
    facts = state.models[name].facts
    if not facts.enabled or facts.problem or keeps_out(state, name):
        return None
    return play.start_s(Turn(name, state.load_s(name), None))


def _turn(state: State, job: Job) -> Turn:
    group = job.request.group
    load_s = state.load_s(job.model) if job.model in state.models else None
    if not group or state.settings.batch_limit < 2:
        return Turn(job.model, load_s, state.run_s(job))

    def each_s(size: int) -> float | None:
        together_s = state.run_s(job, size)
        return None if together_s is None else together_s / size

    waiting = len(state.queue.of_group(job.model, group, state.settings.batch_limit))
    size = best_size(waiting, each_s)
    if each_s(size) is None:
        size = 1
    return Turn(job.model, load_s, state.run_s(job, size), group, size)


def _lane(state: State, device: Device, until_s: float, now: float) -> Lane:
    busy_s: float | None = max(0.0, until_s - now)
    if until_s == UNKNOWN_S:
        busy_s = None
    elif until_s == IDLE_S:
        busy_s = 0.0
    models = {slot.model: 0.0 for slot in device.slots.values() if slot.state in _HERE}
    transfer_s = 0.0
    if device.activity is Activity.LOADING:
        load_s = state.estimates.load_s(device.subject, device.ledger.weights_bytes(device.subject))
        if load_s is None:
            return Lane(None, models)
        transfer_s = max(0.0, load_s - (now - device.since_s))
        models[device.subject] = transfer_s
    return Lane(busy_s, models, transfer_s)
