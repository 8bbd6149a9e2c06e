"""What a job did after its device ran out of memory, in words."""

from collections.abc import Sequence

from workshop_gpu.conductor.effects import Effect, Notice
from workshop_gpu.conductor.ladder import standing_of
from workshop_gpu.conductor.planner import Phase
from workshop_gpu.conductor.planning import rung_kept_to
from workshop_gpu.conductor.records import Job, Slot, State
from workshop_gpu.conductor.rungs import Placement

_DOING = {
    Phase.LOAD: "loading",
    Phase.ENCODE: "reading the prompt",
    Phase.DENOISE: "drawing",
    Phase.DECODE: "making the picture of what was drawn",
}


def words_of(placement: Placement) -> str:
    """The placement as people read it."""
    rung = standing_of(placement)
    return placement.name if rung is None else rung.words


def doing(phase: Phase) -> str:
    """What the worker did in this phase."""
    return _DOING[phase]


def went_on(state: State, effects: list[Effect], jobs: Sequence[Job], slot: Slot) -> None:
    """Notes, and tells, that jobs which ran out of memory go on in the slot's placement."""
    for job in jobs:
        if not job.steps:
            continue
        asked = rung_kept_to(state, slot, job.request.placement)
        words = asked.words if asked else words_of(slot.placement)
        job.went_on = f"went on with {words}"
        last = job.steps[-1]
        text = f"{job.model} ran out of memory while {doing(last.phase)}; it {job.went_on}."
        effects.append(Notice(text, {"model": job.model, "job": job.id, "rung": words}))
