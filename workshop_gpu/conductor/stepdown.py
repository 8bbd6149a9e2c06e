"""A device ran out of memory although the plan had said that it would not: one rung lower.

The estimate is corrected, the rung is not tried again for a while with as much work, and the job
waits again before all others. Where no rung is left, the numbers are the answer.
"""

from workshop_gpu.conductor.changes import Changes
from workshop_gpu.conductor.effects import Notice
from workshop_gpu.conductor.errors import ErrorReport, OutOfMemory
from workshop_gpu.conductor.errors_placement import NoRungLeft
from workshop_gpu.conductor.planner import Phase, Plan, Step, allowed, least, room_after
from workshop_gpu.conductor.planning import Size, has_ladder, homes, plan_here, plans, size_of
from workshop_gpu.conductor.records import TYPICAL_PIXELS, Device, Job, Slot, State
from workshop_gpu.conductor.states import JobState, SlotState
from workshop_gpu.conductor.stepping import doing

# A plan that failed needed more than it had said; how much more nobody knows.
_CORRECTION = 1.1
_LOAD_SIZE = Size(TYPICAL_PIXELS, 1, 1)


class StepDown:
    """What follows from running out of memory."""

    def __init__(self, state: State, changes: Changes) -> None:
        self._state = state
        self._changes = changes

    def run_failed(self, job: Job, error: ErrorReport, now: float) -> bool:
        """Says whether the job is taken care of; else it fails with the error as it is."""
        device = self._state.devices[job.device or ""]
        slot = device.slots.get(job.model)
        if error.kind != OutOfMemory.kind or slot is None or not has_ladder(self._state, job.model):
            return False
        if job.cancel_asked or job.kernel_gone:
            self._changes.end_job(job, JobState.CANCELLED, now)
            return True
        size, phase = size_of(job, job.batch), phase_of(error, Phase.DENOISE)
        plan = plan_here(self._state, job.model, size, slot.placement, device)
        step = Step(plan.tried_as, phase, plan.peaks[phase])
        self._state.shortages.add(device.name, job.model, step, size.pixels * size.batch, now)
        self._correct(job, size, plan)
        if job.batch == 1:
            again = any(each.rung == step.rung for each in job.steps)
            job.steps = (*job.steps, step)
            left = self._left(job.model, size_of(job), job.steps, device)
            if again or not any(not plan.problem for plan in left):
                error = _no_rung_left(job.model, phase, job.steps, left, device)
                self._changes.end_job(job, JobState.FAILED, now, error)
                return True
        self._changes.wait_again(job, now)
        return True

    def load_failed(self, slot: Slot, error: ErrorReport, now: float) -> ErrorReport | None:
        """None where the model is going to be tried on a lower rung; else what to say."""
        state, model = self._state, slot.model
        if error.kind != OutOfMemory.kind or not has_ladder(state, model):
            return error
        device = state.devices[slot.device]
        plan = plan_here(state, model, _LOAD_SIZE, slot.placement, device)
        step = Step(plan.tried_as, Phase.LOAD, device.ledger.weights_bytes(model))
        state.shortages.add(device.name, model, step, 0, now)
        steps = state.shortages.steps(device.name, model, 0, now)
        left = self._left(model, _LOAD_SIZE, steps, device)
        if not any(not plan.problem for plan in left):
            return _no_rung_left(model, Phase.LOAD, steps, left, device)
        text = f"{model} ran out of memory while loading on {device.name}; it is tried otherwise."
        self._changes.effects.append(Notice(text, {"model": model}))
        self._changes.remove_slot(slot)
        device.rest()
        self._fail_those_without(model, now)
        return None

    def _fail_those_without(self, model: str, now: float) -> None:
        """Nothing is left for jobs that may take only rungs on which loads ran out of memory:
        they name one, or repeat a picture."""
        queue = self._state.queue
        for job in queue.one_of_each_size(model):
            error = self._no_rung_anywhere(job, now)
            for each in queue.of_size(job) if error else ():
                self._changes.end_job(each, JobState.FAILED, now, error)

    def _no_rung_anywhere(self, job: Job, now: float) -> ErrorReport | None:
        """Where loads left the job no rung on any device, the numbers of one of them."""
        state, model, size, error = self._state, job.model, size_of(job), None
        for device in homes(state, model, size):
            if device.has(model, SlotState.FAILED):
                continue
            steps = state.shortages.steps(device.name, model, 0, now)
            left = self._left(model, size, steps, device)
            if not device.ledger.total_bytes or any(not plan.problem for plan in left):
                return None
            if steps:
                error = _no_rung_left(model, Phase.LOAD, steps, left, device)
        return error

    def _correct(self, job: Job, size: Size, plan: Plan) -> None:
        """Jobs of this size need more there than was thought."""
        more = int(plan.working_bytes * _CORRECTION)
        kind = plan.placement.kind
        self._state.estimates.learn_working(job.model, size.pixels, size.batch, more, kind)

    def _left(
        self, model: str, size: Size, steps: tuple[Step, ...], device: Device
    ) -> tuple[Plan, ...]:
        """The rungs that were not tried, with all the room that the device could ever give."""
        room_bytes = room_after(steps, device.ledger.most_bytes)
        found = plans(self._state, model, size, room_bytes, device)
        return allowed(found, steps)


def phase_of(error: ErrorReport, otherwise: Phase) -> Phase:
    """The phase that the worker names."""
    said = error.facts.get("phase")
    return next((phase for phase in Phase if phase.value == said), otherwise)


def _no_rung_left(
    model: str, phase: Phase, steps: tuple[Step, ...], left: tuple[Plan, ...], device: Device
) -> ErrorReport:
    """`left` was not tried: what of it takes least needs more than can be had after these steps.
    Where nothing is left, or nothing that the device could be brought to try, what failed does."""
    most_bytes = device.ledger.most_bytes
    needed, room_bytes = min(step.peak_bytes for step in steps), room_after(steps, most_bytes)
    lowest = least(left)
    if lowest is not None and all(plan.problem for plan in left):
        needed, room_bytes = lowest.needed_bytes, lowest.needed_bytes - lowest.missing_bytes
    rungs = list(dict.fromkeys(step.rung for step in steps))
    error = NoRungLeft(model, doing(phase), rungs, needed, room_bytes, most_bytes, phase.value)
    return error.report()
