"""A device ran out of memory although the plan had said that it would not: one rung lower.

The estimate is corrected, the rung is not tried again for a while with as much work, and the job
waits again before all others. Where no rung is left, the numbers are the answer.
"""

from workshop_gpu.conductor.changes import Changes
from workshop_gpu.conductor.effects import Notice
from workshop_gpu.conductor.errors import ErrorReport, OutOfMemory
from workshop_gpu.conductor.planner import Phase, Plan, Step
from workshop_gpu.conductor.planning import Size, has_ladder, plan_here, rung_kept_to, size_of
from workshop_gpu.conductor.records import TYPICAL_PIXELS, Job, Slot, State
from workshop_gpu.conductor.rungs_left import no_rung_anywhere, no_rung_left, rungs_left
from workshop_gpu.conductor.states import JobState

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
        if error.kind != OutOfMemory.kind or job.drawn:  # then it was the host's memory
            return False
        if slot is None or not has_ladder(self._state, job.model):
            return False
        if job.cancel_asked or job.kernel_gone:
            self._changes.end_job(job, JobState.CANCELLED, now)
            return True
        size, phase = size_of(job, job.batch), phase_of(error, Phase.DENOISE)
        plan = plan_here(self._state, job.model, size, slot.placement, device)
        asked = rung_kept_to(self._state, slot, size.placement)
        step = Step(plan.tried_as, phase, plan.peaks[phase], asked.name if asked else "")
        self._state.shortages.add(device.name, job.model, step, size.pixels * size.batch, now)
        self._correct(job, size, plan)
        if job.batch == 1:
            again = any(each.rung == step.rung for each in job.steps)
            job.steps = (*job.steps, step)
            left = rungs_left(self._state, job.model, size_of(job), job.steps, device)
            if again or not any(not plan.problem for plan in left):
                error = no_rung_left(job.model, phase, job.steps, left, device)
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
        held_bytes, asked = device.ledger.weights_bytes(model), rung_kept_to(state, slot)
        step = Step(plan.tried_as, Phase.LOAD, held_bytes, asked.name if asked else "")
        state.shortages.add(device.name, model, step, 0, now)
        steps = state.shortages.steps(device.name, model, 0, now)
        left = rungs_left(state, model, self._smallest(model), steps, device)
        if not any(not plan.problem for plan in left):
            return no_rung_left(model, Phase.LOAD, steps, left, device)
        text = f"{model} ran out of memory while loading on {device.name}; it is tried otherwise."
        self._changes.effects.append(Notice(text, {"model": model}))
        self._changes.remove_slot(slot)
        device.rest()
        self._fail_those_without(model, now)
        return None

    def _smallest(self, model: str) -> Size:
        """What is to be drawn once the model is there, and needs the least room."""
        waiting = (size_of(job) for job in self._state.queue.one_of_each_size(model))
        smallest = min([_LOAD_SIZE, *waiting], key=lambda size: size.pixels * size.batch)
        return smallest._replace(placement="", manner="")

    def _fail_those_without(self, model: str, now: float) -> None:
        """Nothing is left for jobs that may take only rungs on which loads ran out of memory:
        they name one, or repeat a picture."""
        queue = self._state.queue
        for job in queue.one_of_each_size(model):
            error = no_rung_anywhere(
                self._state,
                job,
                lambda device: self._state.shortages.steps(device.name, model, 0, now),
                Phase.LOAD,
            )
            for each in queue.of_size(job) if error else ():
                self._changes.end_job(each, JobState.FAILED, now, error)

    def _correct(self, job: Job, size: Size, plan: Plan) -> None:
        """Jobs of this size need more there than was thought."""
        more = int(plan.working_bytes * _CORRECTION)
        kind = plan.placement.kind
        self._state.estimates.learn_working(job.model, size.pixels, size.batch, more, kind)


def phase_of(error: ErrorReport, otherwise: Phase) -> Phase:
    """The phase that the worker names."""
    said = error.facts.get("phase")
    return next((phase for phase in Phase if phase.value == said), otherwise)
