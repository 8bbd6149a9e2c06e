"""Holds and preloads of models that turn out to have room nowhere: they end, with the reason. Pins
that do, or whose settings cannot work, are told of: they are the instructor's to change."""

import msgspec

from workshop_gpu.conductor.admission import wish_verdict
from workshop_gpu.conductor.changes import Changes
from workshop_gpu.conductor.effects import Notice
from workshop_gpu.conductor.offering import under
from workshop_gpu.conductor.policy_rules import impossible_pins, pins_problem
from workshop_gpu.conductor.records import State
from workshop_gpu.conductor.states import SlotState


def wished_for(state: State) -> list[str]:
    """Models that somebody holds, or whose preload the instructor waits for."""
    return [
        name
        for name, model in state.models.items()
        if model.wanted_s is not None or state.holds.on(name)
    ]


def end_hopeless_wishes(state: State, changes: Changes, name: str, now: float) -> None:
    """What the catalogue said of a model's size, or nothing, let the wish in; once it is known
    better, nobody waits for what will not come."""
    model, holds = state.models.get(name), state.holds_on(name)
    if model is None or not (holds or model.wanted_s is not None):
        return
    error = wish_verdict(state, name)
    if error is None:
        return
    model.wanted_s = None
    for hold in holds:
        changes.end_hold(hold, error.message, now)
    changes.effects.append(Notice(f"{name} is not loaded: {error.message}", error.facts))


def see_to_pins(state: State, changes: Changes) -> None:
    """A pin of a model whose memory settings cannot work does not hold until they are mended. The
    instructor is told once of each contradiction, which the catalogue or a measured size has
    brought."""
    impossible = impossible_pins(state)
    for name, facts in state.catalogue.items():
        model, pinned = state.models[name], under(state.policy, facts).pinned
        holds = pinned and name not in impossible
        if model.facts.pinned != holds:
            model.facts = msgspec.structs.replace(model.facts, pinned=holds)
            for slot in state.slots(name, *SlotState):
                state.touch(slot.device)
    together = pins_problem(state)
    problem = "; ".join([*impossible.values(), *([together] if together else [])])
    if problem and problem != state.pins_told:
        changes.effects.append(Notice(f"Not all pins can hold: {problem}."))
    state.pins_told = problem
