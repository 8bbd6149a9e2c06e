"""What a policy contradicts on this machine: pins that cannot be ready together, or of models whose
memory settings cannot work, and rungs that a model does not have. Only what is surely so counts:
sizes are the least that are possible, and as long as a GPU has not told its own, nothing is sure.
"""

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from workshop_gpu.conductor.errors import InvalidPolicy, gigabytes, rounded_down, rounded_up
from workshop_gpu.conductor.errors_placement import InvalidPlacement
from workshop_gpu.conductor.events import ModelFacts, PartBytes
from workshop_gpu.conductor.memory_rules import check_memory, check_rung
from workshop_gpu.conductor.offering import under
from workshop_gpu.conductor.planning import TYPICAL, has_ladder, kept_free_bytes, least_bytes, plans
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.records import Device, Model, State
from workshop_gpu.conductor.states import SlotState

_NOBODY_KNOWS = 0, 0
_MOST_NAMED = 6
_MOST_TRIES = 10_000
"""So many ways to spread pins over GPUs are tried; if none of them fits, nobody knows."""


def check_contradictions(state: State, policy: Policy) -> None:
    """Raises InvalidPolicy for what the policy adds: an older contradiction, which came with the
    catalogue or a measured size, forbids no other change."""
    if not _sizes_are_known(state):
        return
    supposed = _under(state, policy)
    for name, placement in policy.placements.items():
        if name in state.catalogue and placement != state.policy.placements.get(name):
            try:
                check_rung(supposed, name)
            except InvalidPlacement as refusal:
                raise InvalidPolicy("placements", refusal.message.rstrip(".")) from None
    before = {each.model: each.memory for each in _pins(state, state.policy)}
    new = [each for each in _pins(state, policy) if before.get(each.model) != each.memory]
    impossible = impossible_pins(supposed)
    for facts in new:
        if facts.model in impossible:
            raise InvalidPolicy("pinned", impossible[facts.model])
    for name in impossible:
        model = supposed.models[name]
        model.facts = structs.replace(model.facts, pinned=False)
    problem = pins_problem(supposed) if new else ""
    if problem:
        raise InvalidPolicy("pinned", problem)


def impossible_pins(state: State) -> dict[str, str]:
    """Models that the catalogue or the policy pins though their memory settings cannot work, with
    the problem in words: loaded or not, they could draw no picture."""
    found: dict[str, str] = {}
    for facts in _pins(state, state.policy):
        try:
            check_memory(state, facts.model, TYPICAL)
        except InvalidPlacement as refusal:
            found[facts.model] = refusal.message.rstrip(".")
    return found


def pins_problem(state: State) -> str:
    """Why not all pinned models can be ready together, in words; "" where they may be."""
    pinned = _pinned(state)
    there = all(state.has_slot(name, SlotState.READY) for name in pinned)
    if there or not _sizes_are_known(state):
        return ""
    rooms = sorted((each.ledger.most_bytes for each in _devices(state)), reverse=True)
    sizes = {name: _least_bytes(state, name, pinned) for name in pinned}
    for name in (each for each in pinned if sizes[each] != _NOBODY_KNOWS):
        if problem := _too_large(state, name, rooms[0]):
            return problem
    # Whoever comes last to a GPU must find room for its working memory too, beside what stays free.
    kept = {name: kept_free_bytes(state, name) for name in pinned}
    most_kept_bytes = max(kept.values()) if len(rooms) == 1 else 0
    last_bytes = min(
        working + max(kept[name], most_kept_bytes) for name, (_, working) in sizes.items()
    )
    weights = sorted((weights for weights, _ in sizes.values()), reverse=True)
    if _fit(weights, [room - last_bytes for room in rooms]) is not False:
        return ""
    named = [f"{name} ({rounded_up(weights)})" for name, (weights, _) in sizes.items()]
    more = " and others" if len(named) > _MOST_NAMED else ""
    given = " and ".join(map(rounded_down, rooms[:_MOST_NAMED]))
    return (
        f"{', '.join(named[:_MOST_NAMED])}{more} cannot be ready together: they need at least "
        f"{rounded_up(sum(weights) + last_bytes)}, and the GPUs here can give {given}; unpin one "
        "of them"
    )


def _too_large(state: State, name: str, most_bytes: int) -> str:
    """Why no device can give the model what it needs at the very least; "" where one may."""
    needed_bytes = least_bytes(state, name, TYPICAL)
    if needed_bytes <= most_bytes:
        return ""
    free_bytes = kept_free_bytes(state, name)
    most_free_bytes = most_bytes - (needed_bytes - free_bytes)
    lower = f", or lower that to {rounded_down(most_free_bytes)}"
    beside = f" and {gigabytes(free_bytes)} free beside it (min_free_gb)" if free_bytes else ""
    return (
        f"{name} needs at least {rounded_up(needed_bytes)} with its working memory{beside}, and "
        f"the largest GPU can give {rounded_down(most_bytes)}; unpin it"
        f"{lower if 0 <= most_free_bytes < free_bytes else ''}"
    )


def _under(state: State, policy: Policy) -> State:
    """What would be with the policy; only to be looked at."""
    models = {name: Model(under(policy, facts)) for name, facts in state.catalogue.items()}
    return replace(state, policy=policy, models={**state.models, **models})


def _pins(state: State, policy: Policy) -> list[ModelFacts]:
    """What the policy says of the models that are to be pinned with it."""
    found = [under(policy, facts) for facts in state.catalogue.values()]
    return [each for each in found if each.pinned and each.enabled and not each.problem]


def _pinned(state: State) -> list[str]:
    """Those whose pins hold; also those that the instructor had evicted: the pin holds again when
    somebody asks."""
    return [
        name
        for name, model in state.models.items()
        if model.listed and model.facts.pinned and model.facts.enabled and not model.facts.problem
    ]


def _devices(state: State) -> list[Device]:
    return [device for device in state.devices.values() if not device.is_gone]


def _sizes_are_known(state: State) -> bool:
    devices = _devices(state)
    return bool(devices) and all(device.ledger.total_bytes for device in devices)


def _least_bytes(state: State, name: str, pinned: Sequence[str]) -> tuple[int, int]:
    """What the model's weights, and its working memory, take at the very least. Nothing of it is
    sure where only its name speaks of its size; what others have too may be there for them."""
    facts, estimates = state.models[name].facts, state.estimates
    if has_ladder(state, name):
        found = plans(state, name, TYPICAL, 0)
        if not found:
            return _NOBODY_KNOWS
        weights_bytes = min(plan.weights_bytes for plan in found)
        working_bytes = min(plan.working_bytes for plan in found)
    elif facts.explicit_bytes or facts.file_bytes or estimates.was_weighed(facts):
        weights_bytes, working_bytes = state.weights_bytes(name), state.working_bytes_of(name)
    else:
        return _NOBODY_KNOWS
    others = [state.models[each].facts for each in pinned if each != name]
    theirs = frozenset[PartBytes]().union(*map(estimates.parts, others))
    shared_bytes = sum(part.bytes for part in theirs.intersection(estimates.parts(facts)))
    return max(0, min(weights_bytes, state.weights_bytes(name) - shared_bytes)), working_bytes


def _fit(sizes: Sequence[int], rooms: Sequence[int]) -> bool | None:
    """Whether so large things, the largest first, can be spread over these rooms; None where too
    many ways would have to be tried. The first way is that of first-fit-decreasing."""
    tries = 0
    left = list(rooms)

    def place(number: int) -> bool | None:
        nonlocal tries
        if number == len(sizes):
            return True
        tries += 1
        if tries > _MOST_TRIES:
            return None
        tried: set[int] = set()
        for index, room in enumerate(left):
            if sizes[number] > room or room in tried:
                continue
            tried.add(room)
            left[index] -= sizes[number]
            found = place(number + 1)
            left[index] += sizes[number]
            if found is not False:
                return found
        return False

    return False if sum(sizes) > sum(max(0, room) for room in rooms) else place(0)
