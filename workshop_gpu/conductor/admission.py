"""Who is let in: checks that refuse a request, and the verdict on a job that can never run.

Checks raise a `WorkshopError` and change nothing.
"""

import math
from bisect import bisect_left
from collections.abc import Callable

from workshop_gpu.conductor.buffer_rules import too_large_buffers
from workshop_gpu.conductor.compiled import check_compiled
from workshop_gpu.conductor.effects import JobView
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
    ReportedError,
    WorkshopError,
)
from workshop_gpu.conductor.errors_placement import InvalidPlacement, NotRepeatable
from workshop_gpu.conductor.events import EvictionAsked, HoldTaken, JobSubmitted, ModelWanted
from workshop_gpu.conductor.holds import Hold
from workshop_gpu.conductor.memory_rules import can_be_placed, check_manner, check_memory
from workshop_gpu.conductor.names import check_names
from workshop_gpu.conductor.offering import limit_of
from workshop_gpu.conductor.placement import never_fits
from workshop_gpu.conductor.planning import (
    TYPICAL,
    Size,
    has_ladder,
    homes,
    kept_free_bytes,
    least_bytes,
    size_asked,
    size_of,
)
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.policy_rules import check_contradictions
from workshop_gpu.conductor.reasons import tried_again
from workshop_gpu.conductor.records import Device, Job, Slot, State
from workshop_gpu.conductor.rungs import HOST
from workshop_gpu.conductor.rungs_left import no_rung_anywhere
from workshop_gpu.conductor.states import DeviceState, SlotState
from workshop_gpu.conductor.swap_rules import check_homes

_SIDE_STEP = 64

_LIVE = (SlotState.LOADING, SlotState.READY, SlotState.LEAVING)


def check_job(
    state: State, event: JobSubmitted, now: float, told: Callable[[str], JobView | None]
) -> None:
    """`told` has what was announced of a waiting job.

    Raises InvalidRequest, ModelUnknown, ModelDisabled, ModelUnavailable, NoDevice, ModelTooLarge,
    InvalidPlacement, NotRepeatable, QueueFull, or the cause of a load that failed just now."""
    check_names(
        job=event.job, participant=event.participant, kernel=event.kernel, model=event.model
    )
    for field, value in (("steps", event.steps), ("pixels", event.pixels), ("batch", event.batch)):
        if value < 1:
            raise InvalidRequest(field, "must be at least 1", value=value)
    if state.job(event.job) is not None:
        raise InvalidRequest("job", "this id was given already; make a new one", job=event.job)
    check_offered(state, event.model)
    size = size_asked(event)
    check_memory(state, event.model, size)
    check_manner(state, event.model, size)
    check_compiled(state, event)
    _check_fits(state, event.model, size)
    _check_failures(state, event.model, size, now)
    _check_queue(state, event.participant, told)


def check_hold(state: State, event: HoldTaken, now: float) -> None:
    """Raises InvalidRequest, ModelUnknown, ModelDisabled, ModelUnavailable, NoDevice,
    ModelTooLarge, or the cause of a load that failed just now."""
    check_names(
        hold=event.hold, participant=event.participant, kernel=event.kernel, model=event.model
    )
    check_ttl(event.ttl_s)
    if event.hold in state.holds or event.hold in state.ended_holds:
        raise InvalidRequest("hold", "this id was given already; make a new one", hold=event.hold)
    check_wanted(state, event)
    _check_failures(state, event.model, TYPICAL, now)


def check_wanted(state: State, event: HoldTaken | ModelWanted) -> None:
    """Raises ModelUnknown, ModelDisabled, ModelUnavailable, NoDevice or ModelTooLarge."""
    check_offered(state, event.model)
    check_memory(state, event.model, TYPICAL)
    _check_fits(state, event.model, TYPICAL)


def check_eviction(state: State, event: EvictionAsked) -> None:
    """Raises ModelUnknown, ModelNotLoaded or ModelInUse."""
    if event.model not in state.models:
        raise ModelUnknown(event.model, _offered(state))
    if not state.has_slot(event.model, *_LIVE, SlotState.FAILED):
        raise ModelNotLoaded(event.model)
    drawing = (job for job in state.running.values() if not job.drawn)
    running = sum(job.model == event.model for job in drawing)
    holds = len(state.holds_on(event.model))
    if running or holds:
        raise ModelInUse(event.model, running, holds)


def check_policy(state: State, policy: Policy) -> None:
    """Raises InvalidPolicy, or ModelUnknown for a model that it names and the policy before it
    did not: an older one may have left the catalogue meanwhile."""
    policy.check()
    before = state.policy
    for name in sorted(policy.models - before.models):
        if name not in state.catalogue:
            raise ModelUnknown(name, _offered(state))
    check_contradictions(state, policy)


def check_ttl(ttl_s: float) -> None:
    """Raises InvalidRequest."""
    if not (math.isfinite(ttl_s) and ttl_s > 0):
        raise InvalidRequest("ttl_s", "must be a number of seconds above 0", value=str(ttl_s))


def living_hold(state: State, hold: str, now: float) -> Hold:
    """The hold, if its time is not over. Raises HoldUnknown or HoldEnded."""
    ended = state.ended_holds.get(hold)
    if ended is not None:
        raise HoldEnded(hold, ended.model, ended.ended)
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


def fresh_failures(state: State, model: str, now: float) -> list[Slot]:
    """Slots on which a load of the model failed so recently that it is not tried again."""
    kept_s = state.settings.failed_load_s
    return [slot for slot in state.slots(model, SlotState.FAILED) if now - slot.since_s < kept_s]


def _check_failures(state: State, model: str, size: Size, now: float) -> None:
    """Where the model failed to load just now on every device that is large enough for it, the
    cause is the answer."""
    failures = fresh_failures(state, model, now)
    if not failures or state.has_slot(model, *_LIVE):
        return
    failed = {slot.device for slot in failures}
    homes_left = [each for each in homes(state, model, size) if each.name not in failed]
    others = [each.ledger.most_bytes for each in homes_left if each.state is not DeviceState.LOST]
    if others and not never_fits(_needed_bytes(state, model, size), others):
        return
    last = max(failures, key=lambda slot: slot.since_s)
    if last.error is not None:
        retry_s = max(0.0, last.since_s + state.settings.failed_load_s - now)
        facts = {**last.error.facts, "retry_in_s": round(retry_s, 1)}
        message = f"{last.error.message} It can be tried again in {math.ceil(retry_s)} s."
        raise ReportedError(ErrorReport(last.error.kind, message, facts))


def _check_fits(state: State, model: str, size: Size) -> None:
    if not state.most_bytes:
        raise NoDevice(why_no_device(state))
    needed_bytes = _needed_bytes(state, model, size)
    usable = [each for each in homes(state, model, size) if each.state is not DeviceState.LOST]
    most_bytes = [each.ledger.most_bytes for each in usable]
    if never_fits(needed_bytes, most_bytes):
        largest_bytes = max(most_bytes)
        fitting = _fitting_side(state, model, size, largest_bytes)
        raise _too_large(state, model, size, largest_bytes, fitting)


def _too_large(
    state: State, model: str, size: Size, largest_bytes: int, fitting_side: int = 0
) -> WorkshopError:
    """What is said of a model that no device has room for: smaller buffers may be all it takes."""
    kept_bytes = kept_free_bytes(state, model)
    given = "the largest GPU here can give"
    if kept_bytes:
        given += " beside min_free_gb"
    room_bytes = largest_bytes - kept_bytes
    refusal = too_large_buffers(state, model, size, room_bytes, given, fitting_side)
    needed_bytes = _needed_bytes(state, model, size)
    return refusal or ModelTooLarge(model, needed_bytes, largest_bytes, fitting_side, kept_bytes)


def _needed_bytes(state: State, model: str, size: Size) -> int:
    """What a job needs at the very least; 0 where nothing but the name of a model that is not
    downloaded speaks of its size: who is refused for a guess could never be told better."""
    facts = state.models[model].facts
    by_name = not (facts.on_disk or facts.explicit_bytes or facts.file_bytes)
    return 0 if by_name and not has_ladder(state, model) else least_bytes(state, model, size)


def _fitting_side(state: State, model: str, size: Size, most_bytes: int) -> int:
    """The side of the largest square picture that would fit; 0 where none would."""

    def too_large(side: int) -> bool:
        smaller = size._replace(pixels=side * side, batch=1)
        return least_bytes(state, model, smaller) > most_bytes

    sides = range(_SIDE_STEP, math.isqrt(size.pixels) + _SIDE_STEP, _SIDE_STEP)
    first = bisect_left(sides, True, key=too_large)
    return sides[first - 1] if first else 0


def _check_queue(state: State, participant: str, told: Callable[[str], JobView | None]) -> None:
    waiting = state.queue.of_participant(participant)
    limit = limit_of(state.policy, participant)
    if len(waiting) < limit:
        return
    position, expected_wait_s, reason = 0, None, ""
    if waiting:
        first = min(waiting, key=lambda job: job.key)
        position = state.queue.position(first)
        if view := told(first.id):
            expected_wait_s, reason = view.expected_wait_s, view.reason
    raise QueueFull(len(waiting), limit, position, expected_wait_s, reason)


def usable_devices(state: State, only: str | None = None) -> list[Device]:
    """The devices that work or will; at most the one of this name."""
    return [
        device
        for device in state.devices.values()
        if device.state is not DeviceState.LOST and only in (None, device.name)
    ]


def why_no_device(state: State) -> str:
    """In words, what became of each device."""
    reasons = [
        f"{device.name}: {device.reason}{tried_again(device)}" for device in state.devices.values()
    ]
    return "; ".join(reasons) or "this server has none"


def wish_verdict(state: State, name: str) -> ErrorReport | None:
    """Why a model that should be ready, and is nowhere, can never be loaded; None where it may: as
    for a small picture. That a load failed was told when it did, and it may be tried again."""
    model = state.models[name]
    if state.has_slot(name, *_LIVE):
        return None
    if model.facts.problem:
        return ModelUnavailable(name, model.facts.problem).report()
    try:
        _check_placing(state, name, TYPICAL)
    except InvalidPlacement as refusal:
        return refusal.report()
    needed_bytes = _needed_bytes(state, name, TYPICAL)
    most_bytes = [each.ledger.most_bytes for each in homes(state, name, TYPICAL)]
    if not never_fits(needed_bytes, most_bytes):
        return None
    largest_bytes = max(most_bytes)
    fitting = _fitting_side(state, name, TYPICAL, largest_bytes)
    return _too_large(state, name, TYPICAL, largest_bytes, fitting).report()


def _check_placing(state: State, model: str, size: Size) -> None:
    """Of one that was let in: what the settings, or the devices that are gone, leave no rung for.
    Raises InvalidPlacement."""
    check_homes(state, model, size)
    if not can_be_placed(state, model, size):
        check_memory(state, model, size)


def verdict(state: State, job: Job) -> ErrorReport | None:
    """Why a waiting job can never run; None where it may.

    A job that was accepted runs even if its model was switched off meanwhile; it fails where the
    model left the catalogue, or its files broke before it was loaded, or no device is left that
    could take it. It waits for a device that is lost and tried again.
    """
    model = state.models.get(job.model)
    if model is None or not model.listed:
        return ModelUnknown(job.model, _offered(state)).report()
    if model.facts.problem and not state.has_slot(job.model, *_LIVE):
        return ModelUnavailable(job.model, model.facts.problem).report()
    size = size_of(job)
    try:
        _check_placing(state, job.model, size)
        check_manner(state, job.model, size)
    except (InvalidPlacement, NotRepeatable) as refusal:
        return refusal.report()
    if job.steps and has_ladder(state, job.model):  # the settings may have lost what was left
        error = no_rung_anywhere(state, job, lambda _: job.steps, job.steps[-1].phase)
        if error is not None:
            return error
    failures = [*state.slots(job.model, SlotState.FAILED)]
    needed_bytes = _needed_bytes(state, job.model, size)
    anywhere = not failures and model.facts.memory.swap_device in HOST
    if anywhere and state.most_bytes and not never_fits(needed_bytes, state.most_bytes):
        return None
    there = homes(state, job.model, size)
    if not there:
        return NoDevice(why_no_device(state)).report()
    failed = {slot.device for slot in failures}
    most_bytes = [each.ledger.most_bytes for each in there if each.name not in failed]
    if most_bytes and not never_fits(needed_bytes, most_bytes):
        return None
    errors = [slot.error for slot in failures if slot.error]
    if errors:
        return errors[-1]
    return _too_large(state, job.model, size, max(most_bytes, default=0)).report()
