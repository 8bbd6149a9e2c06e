"""Views of the records: what the conductor knows of a thing at this moment."""

import msgspec

from workshop_gpu.conductor.effects import DeviceView, HoldView, JobView, SlotView
from workshop_gpu.conductor.holds import Hold
from workshop_gpu.conductor.reasons import wait_reason, waiting_for
from workshop_gpu.conductor.records import Device, Job, Slot, State
from workshop_gpu.conductor.states import DeviceState, SlotState
from workshop_gpu.conductor.stepping import words_of
from workshop_gpu.conductor.waits import rounded


def device_view(device: Device) -> DeviceView:
    """A device with its account."""
    ledger = device.ledger
    return DeviceView(
        device=device.name,
        state=device.state.value,
        total_bytes=ledger.total_bytes,
        free_bytes=ledger.free_bytes,
        holders=ledger.holders(),
        reason=device.reason,
        retry_s=device.retry_s if device.state is DeviceState.LOST else None,
    )


def slot_view(state: State, slot: Slot, now: float) -> SlotView:
    """A slot with those who use it."""
    return aged(ageless_view(state, slot), slot, now)


def aged(view: SlotView, slot: Slot, now: float) -> SlotView:
    """The slot's view with the time for which it has been idle."""
    idle_s = 0.0
    if slot.state is SlotState.READY and not slot.running:
        idle_s = now - slot.used_s
    elif slot.state is SlotState.LEAVING:
        idle_s = slot.since_s - slot.used_s
    return msgspec.structs.replace(view, idle_s=idle_s) if idle_s > 0 else view


def ageless_view(state: State, slot: Slot) -> SlotView:
    """What changes only where something happens: an idle slot grows older all the time."""
    model = state.models.get(slot.model)
    return SlotView(
        device=slot.device,
        model=slot.model,
        state=slot.state,
        bytes=state.devices[slot.device].ledger.weights_bytes(slot.model),
        done_bytes=slot.done_bytes,
        total_bytes=slot.total_bytes,
        running_jobs=len(slot.running),
        holds=len(state.holds_on(slot.model)),
        pinned=model is not None and model.pinned,
        idle_s=0.0,
        error=slot.error,
        placement=words_of(slot.placement),
        compiled=slot.compiled,
        loras=slot.loras,
        bytes_per_s=slot.bytes_per_s if slot.state is SlotState.LOADING else 0.0,
    )


def hold_view(hold: Hold, now: float) -> HoldView:
    """A hold with the time that it has left."""
    return HoldView(
        hold=hold.id,
        participant=hold.participant,
        kernel=hold.kernel,
        model=hold.model,
        expires_in_s=max(0.0, hold.expires_s - now),
    )


def job_view(
    state: State,
    job: Job,
    position: int = 0,
    wait_s: float | None = None,
    word: str | None = None,
) -> JobView:
    """A job; position and wait are known to those who made the order. `word`: what it waits for,
    where that is known already."""
    request = job.request
    word = waiting_for(state, job) if word is None else word
    return JobView(
        job=request.job,
        participant=request.participant,
        kernel=request.kernel,
        model=request.model,
        priority=job.priority,
        state=job.state,
        device=job.device,
        position=position,
        expected_wait_s=None if wait_s is None else rounded(wait_s),
        waiting_for=word,
        step=job.step,
        steps=request.steps,
        submitted_s=job.submitted_s,
        started_s=job.started_s,
        ended_s=job.ended_s,
        error=job.error,
        batch=job.batch,
        reason=wait_reason(state, word),
        went_on=job.went_on,
    )
