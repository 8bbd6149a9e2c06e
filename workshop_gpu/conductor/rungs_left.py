"""The rungs that are left where memory ran out, and what is said where none is."""

from collections.abc import Callable

from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.errors_placement import NoRungLeft
from workshop_gpu.conductor.planner import Phase, Plan, Step, allowed, least, room_after
from workshop_gpu.conductor.planning import Size, homes, plans, size_of
from workshop_gpu.conductor.records import Device, Job, State
from workshop_gpu.conductor.states import SlotState
from workshop_gpu.conductor.stepping import doing


def rungs_left(
    state: State, model: str, size: Size, steps: tuple[Step, ...], device: Device
) -> tuple[Plan, ...]:
    """The rungs that were not tried, with all the room that the device could ever give. One with a
    problem has no room even then."""
    room_bytes = room_after(steps, device.ledger.most_bytes)
    return allowed(plans(state, model, size, room_bytes, device), steps)


def leave_a_rung(
    state: State, model: str, size: Size, steps: tuple[Step, ...], device: Device
) -> bool:
    """Whether the device could try one of these."""
    return any(not plan.problem for plan in rungs_left(state, model, size, steps, device))


def no_rung_anywhere(
    state: State, job: Job, steps_on: Callable[[Device], tuple[Step, ...]], phase: Phase
) -> ErrorReport | None:
    """Where what was met left the job no rung on any device, the numbers of one of them. None where
    there may be one: also while a device has not said yet how much memory it has."""
    model, size, error = job.model, size_of(job), None
    for device in homes(state, model, size):
        if device.has(model, SlotState.FAILED):
            continue
        steps = steps_on(device)
        if not device.ledger.total_bytes or leave_a_rung(state, model, size, steps, device):
            return None
        if steps:
            left = rungs_left(state, model, size, steps, device)
            error = no_rung_left(model, phase, steps, left, device)
    return error


def no_rung_left(
    model: str, phase: Phase, steps: tuple[Step, ...], left: tuple[Plan, ...], device: Device
) -> ErrorReport:
    """`left` was not tried: what of it takes least needs more than can be had after these steps.
    Where nothing is left, or nothing that the device could be brought to try, what failed does."""
    most_bytes = device.ledger.most_bytes
    needed, room_bytes = min(step.peak_bytes for step in steps), room_after(steps, most_bytes)
    lowest = least(left)
    if lowest is not None and all(plan.problem for plan in left):
        needed, room_bytes = lowest.needed_bytes, lowest.needed_bytes - lowest.missing_bytes
    rungs = list(dict.fromkeys(step.name for step in steps))
    error = NoRungLeft(model, doing(phase), rungs, needed, room_bytes, most_bytes, phase.value)
    return error.report()
