"""Who is let in: checks that refuse a request, and the verdict on a job that can never run.

Checks raise a `WorkshopError` and change nothing.
"""

import math

from workshop_gpu.conductor.errors import (
    ErrorReport,
    HoldEnded,
    HoldUnknown,
    InvalidRequest,
    ModelDisabled,
    ModelInUse,
    ModelNotLoaded,
    ModelTooLarge,
    ModelUnavailable,
    ModelUnknown,
    NoDevice,
    QueueFull,
)
from workshop_gpu.conductor.events import EvictionAsked, HoldTaken, JobSubmitted, ModelWanted
from workshop_gpu.conductor.placement import never_fits
from workshop_gpu.conductor.records import Device, Hold, Job, State
from workshop_gpu.conductor.states import DeviceState, SlotState

_LIVE = (SlotState.LOADING, SlotState.READY, SlotState.LEAVING)


def check_job(state: State, event: JobSubmitted, now: float) -> None:
    """Raises InvalidRequest, ModelUnknown, ModelDisabled, ModelUnavailable, NoDevice,
    ModelTooLarge or QueueFull."""
    for field, value in (("steps", event.steps), ("pixels", event.pixels), ("batch", event.batch)):
        if value < 1:
            raise InvalidRequest(field, "must be at least 1", value=value)
    if state.job(event.job) is not None:
        raise InvalidRequest("job", "this id was given already", job=event.job)
    check_offered(state, event.model)
    weights_bytes = state.weights_bytes(event.model)
    working_bytes = state.estimates.working_bytes(
        event.model, weights_bytes, event.pixels, event.batch
    )
    _check_fits(state, event.model, weights_bytes + working_bytes)
    _check_queue(state, event.participant, now)


def check_hold(state: State, event: HoldTaken) -> None:
    """Raises InvalidRequest, ModelUnknown, ModelDisabled, ModelUnavailable, NoDevice or
    ModelTooLarge."""
    check_ttl(event.ttl_s)
    if event.hold in state.holds or event.hold in state.ended_holds:
        raise InvalidRequest("hold", "this id was given already", hold=event.hold)
    check_wanted(state, event)


def check_wanted(state: State, event: HoldTaken | ModelWanted) -> None:
    """Raises ModelUnknown, ModelDisabled, ModelUnavailable, NoDevice or ModelTooLarge."""
    check_offered(state, event.model)
    needed = state.weights_bytes(event.model) + state.working_bytes_of(event.model)
    _check_fits(state, event.model, needed)


def check_eviction(state: State, event: EvictionAsked) -> None:
    """Raises ModelUnknown, ModelNotLoaded or ModelInUse."""
    if event.model not in state.models:
        raise ModelUnknown(event.model, _offered(state))
    if not state.has_slot(event.model, *_LIVE, SlotState.FAILED):
        raise ModelNotLoaded(event.model)
    running = sum(job.model == event.model for job in state.running.values())
    holds = len(state.holds_on(event.model))
    if running or holds:
        raise ModelInUse(event.model, running, holds)


def check_ttl(ttl_s: float) -> None:
    """Raises InvalidRequest."""
    if not (math.isfinite(ttl_s) and ttl_s > 0):
        raise InvalidRequest("ttl_s", "must be a number of seconds above 0", value=str(ttl_s))


def living_hold(state: State, hold: str, now: float) -> Hold:
    """The hold, if its time is not over. Raises HoldUnknown or HoldEnded."""
    ended = state.ended_holds.get(hold)
    if ended is not None:
        raise HoldEnded(hold, ended.model)
    living = state.holds.get(hold)
    if living is None:
        raise HoldUnknown(hold)
    if living.expires_s <= now:
        raise HoldEnded(hold, living.model)
    return living


def check_offered(state: State, name: str) -> None:
    """Raises ModelUnknown, ModelDisabled or ModelUnavailable."""
    model = state.models.get(name)
    if model is None or not model.listed:
        raise ModelUnknown(name, _offered(state))
    if not model.facts.enabled:
        raise ModelDisabled(name, model.facts.disabled_reason)
    if model.facts.problem:
        raise ModelUnavailable(name, model.facts.problem)


def _offered(state: State) -> list[str]:
    return [name for name, model in state.models.items() if model.listed and model.facts.enabled]


def _check_fits(state: State, model: str, needed_bytes: int) -> None:
    usable = _usable(state)
    if not usable:
        raise NoDevice(_why_no_device(state))
    most_bytes = [device.ledger.most_bytes for device in usable]
    if never_fits(needed_bytes, most_bytes):
        raise ModelTooLarge(model, needed_bytes, max(most_bytes))


def _check_queue(state: State, participant: str, now: float) -> None:
    waiting = state.queue.of_participant(participant)
    limit = state.settings.queue_limit
    if len(waiting) < limit:
        return
    first = min(waiting, key=lambda job: job.key)
    position = state.queue.position(first)
    ahead_s = (position - 1) * state.queue.line.work_s / len(state.queue)
    devices = max(1, len(_usable(state)))
    raise QueueFull(len(waiting), limit, position, round(ahead_s / devices, 1))


def _usable(state: State) -> list[Device]:
    """The devices that work or will."""
    return [device for device in state.devices.values() if device.state is not DeviceState.LOST]


def _why_no_device(state: State) -> str:
    reasons = [f"{device.name}: {device.reason}" for device in state.devices.values()]
    return "; ".join(reasons) or "this server has none. Ask the instructor."


def verdict(state: State, job: Job) -> ErrorReport | None:
    """Why a waiting job can never run; None where it may.

    A job that was accepted runs even if its model was switched off meanwhile; it fails where the
    model left the catalogue, or its files broke before it was loaded, or no device is left that
    could take it.
    """
    model = state.models.get(job.model)
    if model is None or not model.listed:
        return ModelUnknown(job.model, _offered(state)).report()
    if model.facts.problem and not state.has_slot(job.model, *_LIVE):
        return ModelUnavailable(job.model, model.facts.problem).report()
    usable = _usable(state)
    if not usable:
        return NoDevice(_why_no_device(state)).report()
    able = [device for device in usable if not device.has(job.model, SlotState.FAILED)]
    needed_bytes = state.weights_bytes(job.model) + state.working_bytes(job)
    most_bytes = [device.ledger.most_bytes for device in able]
    if able and not never_fits(needed_bytes, most_bytes):
        return None
    failures = [slot.error for slot in state.slots(job.model, SlotState.FAILED) if slot.error]
    if failures:
        return failures[-1]
    return ModelTooLarge(job.model, needed_bytes, max(most_bytes, default=0)).report()
