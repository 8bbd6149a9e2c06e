"""Where only the buffers of streaming keep a model out: which of its settings is to blame, and the
most that would do."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

import msgspec

from workshop_gpu.conductor.errors import gigabytes, rounded_down, rounded_up
from workshop_gpu.conductor.errors_placement import InvalidPlacement
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.planner import least
from workshop_gpu.conductor.planning import Size, buffers_for, has_ladder, plans, roles_of
from workshop_gpu.conductor.records import State

_SPACE, _AHEAD = "swap_space_gb", "prefetch"

Fits = Callable[[int, int], bool]
"""Whether the model would fit with this swap space, and so many blocks copied ahead."""


def too_large_buffers(
    state: State, model: str, size: Size, room_bytes: int, given: str, fitting_side: int = 0
) -> InvalidPlacement | None:
    """Of a model that does not fit into this room, which is `given` ("the largest GPU here can
    give"), on any rung that it may take: the refusal of its buffers, if it would with smaller ones.
    A picture of `fitting_side` would fit as it is (0: none)."""
    if not has_ladder(state, model):
        return None
    memory = state.models[model].facts.memory

    def needed_bytes(space_bytes: int, ahead: int) -> int | None:
        changed = msgspec.structs.replace(memory, swap_space_bytes=space_bytes, prefetch=ahead)
        lowest = least(plans(_with(state, model, changed), model, size, 0))
        return None if lowest is None else lowest.needed_bytes

    def fits(space_bytes: int, ahead: int) -> bool:
        needed = needed_bytes(space_bytes, ahead)
        return needed is not None and needed <= room_bytes

    space_bytes, ahead = memory.swap_space_bytes, memory.prefetch
    needed = rounded_up(needed_bytes(space_bytes, ahead) or 0)
    too_much = f"make it need {needed}, and {given} {rounded_down(room_bytes)}"
    smaller = f", or a picture of {fitting_side} × {fitting_side} pixels" if fitting_side else ""
    buffers = f"buffers of {gigabytes(space_bytes)}"
    if most_bytes := _most_space(state, model, ahead, fits):
        problem = f"{buffers} {too_much}: at most {rounded_down(most_bytes)}{smaller}"
        return InvalidPlacement(model, _SPACE, problem, most_bytes=most_bytes)
    if most := next((each for each in range(ahead - 1, 0, -1) if fits(space_bytes, each)), 0):
        problem = f"{buffers_for(memory)} buffers {too_much}: at most {most}{smaller}"
        return InvalidPlacement(model, _AHEAD, problem, most=most)
    if most_bytes := _most_space(state, model, 1, fits):
        problem = f"{buffers} {too_much}: at most {rounded_down(most_bytes)} and prefetch = 1"
        return InvalidPlacement(model, _SPACE, problem + smaller, most_bytes=most_bytes, most=1)
    return None


def _most_space(state: State, model: str, ahead: int, fits: Fits) -> int:
    """The largest swap space below that of the settings with which the model would fit; 0: none.

    More room for buffers is less for the rest, but for the sizes from which on they hold a layer,
    or a block, more."""
    memory = msgspec.structs.replace(state.models[model].facts.memory, prefetch=ahead)
    pieces = {
        piece
        for role in roles_of(state, model)
        for piece in (role.layer_bytes, max(role.blocks_bytes, default=0))
    }
    end = memory.swap_space_bytes
    for edge in sorted((buffers_for(memory) * piece for piece in pieces if piece), reverse=True):
        if edge >= end:
            continue
        if fits(edge, ahead):
            sizes = range(edge, end)
            return sizes[bisect_left(sizes, True, key=lambda each: not fits(each, ahead)) - 1]
        end = edge
    return 0


def _with(state: State, model: str, memory: MemorySettings) -> State:
    """What would be with these settings; only to be looked at."""
    known = state.models[model]
    changed = replace(known, facts=msgspec.structs.replace(known.facts, memory=memory))
    return replace(state, models={**state.models, model: changed})
