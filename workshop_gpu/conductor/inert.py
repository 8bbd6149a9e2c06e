"""Settings of a model that are of no effect, because a rung that makes no use of them was named
elsewhere than beside them: as the server's default, by the instructor, or with a job."""

from workshop_gpu.conductor.changes import Changes
from workshop_gpu.conductor.effects import Notice
from workshop_gpu.conductor.ladder import makes_no_use_of
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.records import State
from workshop_gpu.conductor.rungs import HOST


def inert_note(state: State, model: str, placement: str = "") -> str:
    """In a sentence, which settings are of no effect and why; "" where all are of use.
    `placement` is the rung that was asked for with a job."""
    memory = state.models[model].facts.memory
    name = placement or memory.placement
    unused = makes_no_use_of(name, _given(memory))
    if not unused:
        return ""
    one = len(unused) == 1
    # A rung that is named in the entry itself makes use of what stands beside it: else that would
    # be a mistake there.
    by = named_by(state, model, placement) or "as default_placement"
    return (
        f"{' and '.join(unused)} of {model} {'is' if one else 'are'} of no effect: "
        f'"{name}" is named {by}, and makes no use of '
        f'{"it" if one else "them"}. "auto" does.'
    )


def named_by(state: State, model: str, placement: str) -> str:
    """Who named the rung that is taken; "" where it was the entry itself, or the default."""
    if placement:
        return "with the job"
    return "by the instructor" if model in state.policy.placements else ""


def tell_of_inert(state: State, changes: Changes) -> None:
    """People are told once of what the catalogue, the default or the policy has made so."""
    notes = {name: inert_note(state, name) for name in state.catalogue}
    told = state.inert_told
    for name, note in notes.items():
        if note and told.get(name) != note:
            changes.effects.append(Notice(note, {"model": name}))
    state.inert_told = {name: note for name, note in notes.items() if note}


def _given(memory: MemorySettings) -> list[str]:
    """Those of the settings that only some rungs make use of, and that were given."""
    given = {
        "swap_space_gb": memory.swap_space_bytes != 0,
        "prefetch": memory.prefetch != 1,
        "swap_device": memory.swap_device not in HOST,
    }
    return [name for name, is_given in given.items() if is_given]
