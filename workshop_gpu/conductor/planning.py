"""The planner's questions put from what is known, and its answers made into ways to run a job.

A model whose roles nobody knows has one placement: as a whole. All others climb the ladder, within
what the instructor says of the model's memory.
"""

from collections.abc import Iterator
from string import digits
from typing import NamedTuple

import msgspec

from workshop_gpu.conductor.compiled import reckons_compiled
from workshop_gpu.conductor.estimates import Estimates
from workshop_gpu.conductor.events import JobSubmitted, PartBytes
from workshop_gpu.conductor.ladder import AUTO, PLANNED, SWAPPING, rung_named, stands_on
from workshop_gpu.conductor.looked import look_at
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.planner import (
    Plan,
    Question,
    Speeds,
    least,
    least_elsewhere_bytes,
    plan_all,
    plan_of,
)
from workshop_gpu.conductor.records import TYPICAL_PIXELS, Device, Job, Slot, State
from workshop_gpu.conductor.rungs import (
    DENOISER,
    HOST,
    RESIDENT,
    Placement,
    RoleBytes,
    Rung,
    Streams,
)
from workshop_gpu.conductor.states import DeviceState, SlotState

_TYPICAL_STEPS = 20
_PRESENT = (SlotState.LOADING, SlotState.READY, SlotState.LEAVING)


class Size(NamedTuple):
    """What of a job its bytes and seconds depend on; `placement`: the rung that was asked for;
    `manner`: that of the picture which it repeats."""

    pixels: int
    batch: int
    steps: int
    placement: str = ""
    manner: str = ""
    beside_bytes: int = 0
    images: int = 1


TYPICAL = Size(TYPICAL_PIXELS, 1, _TYPICAL_STEPS)


def size_of(job: Job, together: int = 1) -> Size:
    """Of so many such jobs together."""
    return size_asked(job.request, together)


def size_asked(request: JobSubmitted, together: int = 1) -> Size:
    """Of so many such requests together."""
    return Size(
        request.pixels,
        request.batch * together,
        request.steps,
        request.placement,
        request.manner,
        request.beside_bytes,
        request.images,
    )


def has_ladder(state: State, model: str) -> bool:
    """Whether the model can be placed otherwise than as a whole."""
    return bool(state.estimates.roles(state.models[model].facts))


def roles_of(state: State, model: str) -> tuple[RoleBytes, ...]:
    """The model's roles, so that their sum is what the conductor takes its weights for."""
    roles = state.estimates.roles(state.models[model].facts) or (RoleBytes(DENOISER, 0),)
    beyond = state.weights_bytes(model) - sum(role.size_bytes for role in roles)
    return tuple(
        msgspec.structs.replace(
            role, size_bytes=max(sum(role.blocks_bytes), role.size_bytes + beyond)
        )
        if role.role == DENOISER
        else role
        for role in roles
    )


def encoders_of(state: State, model: str) -> tuple[PartBytes, ...]:
    """Its components that encode text, which other models may have too; () where unknown."""
    return state.estimates.encoders(state.models[model].facts)


def rung_asked(memory: MemorySettings, placement: str = "") -> Rung | None:
    """The rung that was named with a job, or in the catalogue; None: the planner chooses."""
    name = placement or memory.placement
    return None if name == AUTO else rung_named(name)


def rung_kept_to(state: State, slot: Slot, placement: str = "") -> Rung | None:
    """The same, where the slot stands on it. The weights themselves do not tell its name: where all
    of the denoiser is streamed, that may have been wanted, or be as little as was possible."""
    rung = rung_asked(state.models[slot.model].facts.memory, placement)
    return rung if rung is not None and stands_on(slot.placement, rung) else None


def rungs_for(memory: MemorySettings, placement: str = "") -> tuple[Rung, ...]:
    """The rungs that may be taken: the one that was asked for with a job, or in the catalogue, or
    all; those that take memory of another GPU only where the settings name one. With
    `virtual_vram_bytes` only those that stream."""
    named = rung_asked(memory, placement)
    if named is not None:
        return (named,)
    planned = PLANNED if memory.swap_device in HOST else SWAPPING
    if memory.virtual_vram_bytes:
        return tuple(rung for rung in planned if rung.streams is not Streams.NOTHING)
    return planned


def plans(
    state: State, model: str, size: Size, room_bytes: int, device: Device | None = None
) -> tuple[Plan, ...]:
    """The rungs for a job of this size in so much room; those that take memory of another device
    only while it can be had there."""
    question = question_for(state, model, size, room_bytes, device)
    found = plan_all(question, rungs_for(state.models[model].facts.memory, size.placement))
    if question.source:
        found = tuple(plan for plan in found if not plan.missing_elsewhere_bytes)
    if not size.manner:
        return found
    return tuple(plan for plan in found if plan.placement.manner == size.manner)


def question_for(
    state: State, model: str, size: Size, room_bytes: int, device: Device | None = None
) -> Question:
    """What is asked of the planner; the cap that the instructor set is part of the room."""
    facts, estimates = state.models[model].facts, state.estimates
    memory, roles = facts.memory, roles_of(state, model)
    room_bytes -= memory.min_free_bytes
    if memory.max_vram_bytes:
        room_bytes = min(room_bytes, memory.max_vram_bytes)
    # A LoRA's layers are in the blocks: with it, jobs are drawn by those that are not compiled.
    compiled = not size.beside_bytes and reckons_compiled(state, model, device)
    bus = (device.bus_bytes_per_s if device else 0.0) or estimates.bus_bytes_per_s()
    plain = _speeds(estimates, model, size, bus, compiled=False)
    weights_bytes = sum(role.size_bytes for role in roles)
    return Question(
        roles,
        max(0, room_bytes),
        msgspec.structs.replace(
            estimates.activations(model, weights_bytes, size.pixels, size.batch),
            beside_bytes=size.beside_bytes,
        ),
        size.steps,
        _speeds(estimates, model, size, bus, compiled=True) if compiled else plain,
        buffers_for(memory),
        buffer_bytes_for(memory),
        *source_for(state, model, size, device),
        memory.virtual_vram_bytes,
        estimates.lacks(facts),
        plain if compiled else None,
    )


def _speeds(
    estimates: Estimates, model: str, size: Size, bus_bytes_per_s: float, *, compiled: bool
) -> Speeds:
    """What is known of the model with compiled blocks, or without."""
    model_there = model, size.pixels, size.batch
    pace = estimates.pace(*model_there, compiled=compiled)
    if pace is not None:
        step_s = pace.step_s
    elif (alone := estimates.pace(model, size.pixels)) is not None:
        step_s = alone.step_s * size.batch
    else:
        step_s = estimates.run_guess_s(model, size.pixels, 1) * size.batch
    measured = estimates.measured_run_s(
        model, size.pixels, size.steps, size.batch, compiled, size.images
    )
    once_s = estimates.once_s(*model_there) * size.images
    return Speeds(step_s, bus_bytes_per_s, tuple(measured.items()), compiled, once_s)


def source_for(
    state: State, model: str, size: Size, device: Device | None = None
) -> tuple[str, int, int]:
    """The swap device that the model's settings name, what it has for the model, and what of the
    text encoders is there already for other models ("": it is none for a model on this device, or
    its worker does not see it yet). Without a device: what it could give at most."""
    name = state.models[model].facts.memory.swap_device
    swap = None if name in HOST else state.devices.get(name)
    if swap is None or swap.is_gone:
        return "", 0, 0
    if device is None:
        return name, swap.ledger.most_bytes, 0
    if swap is device or name not in device.neighbours:
        return "", 0, 0
    encoders = encoders_of(state, model)
    there_bytes = swap.ledger.lent_to_others_bytes(device.name, model, encoders)
    return name, room_on(state, swap, device, model, size), there_bytes


def room_on(state: State, swap: Device, device: Device, model: str, size: Size) -> int:
    """What a device has now for a model of another one, with what the model alone has there
    already. Nothing more while somebody waits for room there: it would be called back at once. In
    safe mode it has something only for a model that has no rung without: else the picture that
    ends safe mode would never be drawn."""
    must = must_borrow(state, model, size, device)
    closed = swap.name in state.closed or swap.state is not DeviceState.READY
    if closed or ((device.in_safe_mode or swap.in_safe_mode) and not must):
        return 0
    there_bytes = swap.ledger.called_back_bytes(device.name, model)
    free_bytes = 0 if _is_awaited(state, swap, model, must=must) else swap.ledger.free_bytes
    return max(0, free_bytes + there_bytes)


def kind_of(device: str) -> str:
    """Of "cuda:1" "cuda:": only devices of one kind lend to each other."""
    return device.rstrip(digits)


def must_borrow(state: State, model: str, size: Size, device: Device) -> bool:
    """Whether, of the model's rungs, only those fit on the device that take memory of another."""
    return bool(_borrowing(state, model, size, device))


def _borrowing(state: State, model: str, size: Size, device: Device) -> list[Rung]:
    """The rungs that fit there, if each of them takes memory of another device; else none."""
    memory = state.models[model].facts.memory
    if memory.swap_device in HOST:
        return []
    room_bytes = device.ledger.most_bytes - memory.min_free_bytes
    lowest = plans(state, model, size, 0)
    fitting = [plan.rung for plan in lowest if plan.needed_bytes <= room_bytes]
    return fitting if all(rung.swaps for rung in fitting) else []


def homes(state: State, model: str, size: Size) -> list[Device]:
    """The devices that are not gone and on which the model could be placed for such a job, were
    they large enough: one that it must borrow from is none, nor are the others without that."""
    swap = state.models[model].facts.memory.swap_device
    there = [device for device in state.devices.values() if not device.is_gone]
    if swap in HOST:
        return there
    return [
        device
        for device in there
        if not must_borrow(state, model, size, device)
        or (device.name != swap and kind_of(device.name) == kind_of(swap))
    ]


def wanted_models(state: State) -> Iterator[str]:
    """Models that should be ready for holds, preloads or pins, and are not."""
    for name, model in state.models.items():
        wanted = state.holds.on(name) or model.wanted_s is not None or model.pinned
        offered = model.listed and model.facts.on_disk and not model.facts.problem
        if wanted and offered and not state.has_slot(name, *_PRESENT):
            yield name


def _is_awaited(state: State, device: Device, but: str, *, must: bool) -> bool:
    """Whether the device has room for a model that should be ready, or whose jobs have been
    overtaken for too long: then nobody else's weights come in between. Models that must borrow do
    not wait for each other: two of them, each on the other's device, would for ever."""
    looked = look_at(state, device)
    for model in {*wanted_models(state), *state.queue.due_models()} - {but}:
        if must and must_borrow(state, model, TYPICAL, device):
            continue
        ever_bytes = looked.ever_for(kept_free_bytes(state, model))
        fits = least_bytes(state, model, TYPICAL) <= ever_bytes
        if fits and _may_come_to(state, device, model):
            return True
    return False


def _may_come_to(state: State, device: Device, model: str) -> bool:
    """Whether the model, which is not there, may be loaded there."""
    failed_or_there = device.has(model, SlotState.FAILED, SlotState.READY)
    return not failed_or_there and has_rung_on(state, model, TYPICAL, device)


def has_rung_on(state: State, model: str, size: Size, device: Device) -> bool:
    """Whether the model has a rung there, or will once idle models have left: those that swap are
    none on the swap device itself, nor where that is not seen, nor while it is full of what
    stays."""
    if not must_borrow(state, model, size, device):
        return True
    swap = state.devices.get(state.models[model].facts.memory.swap_device)
    if swap is None or swap is device or swap.name not in device.neighbours:
        return False
    may_come = look_at(state, swap).ever_bytes - max(0, swap.ledger.free_bytes)
    return missing_elsewhere_bytes(state, model, size, device) <= max(0, may_come)


def missing_elsewhere_bytes(state: State, model: str, size: Size, device: Device) -> int:
    """What is missing on the swap device so that the model can be placed on the device at all.
    0: nothing, or there are rungs without."""
    rungs = _borrowing(state, model, size, device)
    if not rungs:
        return 0
    question = question_for(state, model, size, device.ledger.free_bytes, device)
    if not question.source:
        return 0
    least_there = min(least_elsewhere_bytes(question, rung) for rung in rungs)
    return max(0, least_there - question.source_room_bytes)


def buffers_for(memory: MemorySettings) -> int:
    """How many pieces are on their way or in use at once: one that computes, and those that are
    copied ahead."""
    return 1 + max(1, memory.prefetch)


def buffer_bytes_for(memory: MemorySettings) -> int:
    """What a buffer holds at most, where the swap space is given; 0: a block, however large."""
    return max(1, memory.swap_space_bytes // buffers_for(memory)) if memory.swap_space_bytes else 0


def least_bytes(state: State, model: str, size: Size) -> int:
    """What a job of the model needs at the very least, on the lowest rung that it may take."""
    if has_ladder(state, model):
        lowest = least(plans(state, model, size, 0))
        if lowest is not None:
            return lowest.needed_bytes + state.models[model].facts.memory.min_free_bytes
    weights_bytes = state.weights_bytes(model)
    working_bytes = state.estimates.working_bytes(model, weights_bytes, size.pixels, size.batch)
    return weights_bytes + working_bytes + size.beside_bytes


def kept_free_bytes(state: State, model: str) -> int:
    """What of that stays free beside the model."""
    return state.models[model].facts.memory.min_free_bytes if has_ladder(state, model) else 0


def plan_here(state: State, model: str, size: Size, placement: Placement, device: Device) -> Plan:
    """The plan of the placement that the model has on the device."""
    return plan_of(question_for(state, model, size, 0, device), placement)


def is_within_cap(state: State, model: str, size: Size, placement: Placement) -> bool:
    """Whether a model that is placed so takes no more, with such a job, than its settings say."""
    cap = state.models[model].facts.memory.max_vram_bytes
    if not cap or not has_ladder(state, model):
        return True
    return plan_of(question_for(state, model, size, 0), placement).needed_bytes <= cap


def working_bytes(state: State, job: Job, together: int, placement: Placement) -> int:
    """Bytes that so many such jobs need beside the weights of a model that is placed so."""
    if placement == RESIDENT or not has_ladder(state, job.model):
        return state.working_bytes(job, together)
    question = question_for(state, job.model, size_of(job, together), 0)
    return plan_of(question, placement).working_bytes
