"""What a model's memory settings must fulfil on this machine; each refusal names the number that
would do. Nothing has moved when it is raised."""

from collections.abc import Collection, Iterable, Mapping

from workshop_gpu.conductor.buffer_rules import too_large_buffers
from workshop_gpu.conductor.combining import read_name
from workshop_gpu.conductor.errors import gigabytes, rounded_down, rounded_up
from workshop_gpu.conductor.errors_placement import InvalidPlacement, NotRepeatable
from workshop_gpu.conductor.ladder import (
    AUTO,
    RUNGS,
    is_placement,
    names,
    rung_named,
    streams_nothing,
    takes_another_gpu,
)
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.placement import never_fits
from workshop_gpu.conductor.planner import least, plan_all
from workshop_gpu.conductor.planning import (
    Size,
    buffer_bytes_for,
    buffers_for,
    has_ladder,
    plans,
    question_for,
    roles_of,
    rungs_for,
)
from workshop_gpu.conductor.records import State
from workshop_gpu.conductor.rungs import (
    DENOISER,
    ENCODERS,
    EXACT,
    SLICED,
    TILED,
    VAE,
    RoleBytes,
    Rung,
    Streams,
    manner_in_words,
)
from workshop_gpu.conductor.states import DeviceState
from workshop_gpu.conductor.swap_rules import check_homes, check_swap_device, check_swap_room

_SMALLEST = Size(64 * 64, 1, 1)
_NOTHING_TO_STREAM = "it has no repeated blocks that could be streamed; choose another"


def check_memory(state: State, model: str, size: Size) -> None:
    """For jobs of this size, and the rung that was asked for with them; in which manner they are
    to be drawn is left to `check_manner`. Raises InvalidPlacement."""
    size, placement = size._replace(manner=""), size.placement
    check_swap_device(state, model, placement)
    if placement and not is_placement(placement):
        raise InvalidPlacement(model, "placement", f'"{placement}" is none of {", ".join(names())}')
    _check_virtual(state, model, placement)
    if not has_ladder(state, model):
        _check_whole(state, model, placement)
        return
    _check_sizes(state, model, placement)
    _check_rungs(state, model, placement)
    check_homes(state, model, size)
    check_swap_room(state, model, size)
    _check_any_rung(state, model, size)
    _check_cap(state, model, size)


def check_rung(state: State, model: str) -> None:
    """Whether the rung that the settings name is one that the model has, as far as its parts are
    known, and could draw the smallest picture on this machine. What would be wrong without it is
    left out. Raises InvalidPlacement."""
    if takes_another_gpu(state.models[model].facts.memory.placement):
        check_swap_device(state, model, "")
    _check_virtual(state, model, "")
    if not has_ladder(state, model):
        _check_whole(state, model, "")
        return
    _check_rungs(state, model, "")
    try:
        check_memory(state, model, _SMALLEST._replace(placement=AUTO))
    except InvalidPlacement:
        return
    check_memory(state, model, _SMALLEST)


def can_be_placed(state: State, model: str, size: Size) -> bool:
    """Whether the settings leave a rung for such a job at all, on a card of any size."""
    if not has_ladder(state, model):
        return not _has_no_parts(state, model, size.placement)
    lowest = least(plans(state, model, size, 0))
    cap = state.models[model].facts.memory.max_vram_bytes
    return lowest is not None and (not cap or lowest.needed_bytes <= cap)


def check_manner(state: State, model: str, size: Size) -> None:
    """Whether a picture may be repeated in the manner in which it was drawn. Raises
    NotRepeatable."""
    manner, memory = size.manner, state.models[model].facts.memory
    if not manner:
        return
    words = manner_in_words(manner)
    ladder = has_ladder(state, model)
    able = plans(state, model, size, 0) if ladder else ()
    if not able and (ladder or manner != EXACT):
        raise NotRepeatable(model, words, _never_so(memory.placement, size.placement))
    needed, cap = min((plan.needed_bytes for plan in able), default=0), memory.max_vram_bytes
    if 0 < cap < needed:
        raise NotRepeatable(
            model,
            words,
            f"so it needs {rounded_up(needed)} of GPU memory here; max_vram_gb of the model "
            f"allows {rounded_down(cap)}",
            needed_bytes=needed,
            largest_bytes=cap,
        )
    needed += memory.min_free_bytes
    if never_fits(needed, state.most_bytes):
        most = max(state.most_bytes)
        raise NotRepeatable(
            model,
            words,
            f"so it needs {rounded_up(needed)} of GPU memory here; there are {rounded_down(most)}",
            needed_bytes=needed,
            largest_bytes=most,
        )


def _never_so(placement: str, with_job: str) -> str:
    """In words, why no rung that may be taken draws in a picture's manner."""
    if with_job not in ("", AUTO):
        return f'"{with_job}", which was named with the job, draws otherwise; leave it out'
    if with_job or placement == AUTO:
        return "the model is never placed so on this server"
    return f'the model is placed as "{placement}" only on this server'


def _check_virtual(state: State, model: str, placement: str) -> None:
    """What is to be streamed in any case needs a rung that streams."""
    memory = state.models[model].facts.memory
    name = placement or memory.placement
    if memory.virtual_vram_bytes and streams_nothing(name):
        raise InvalidPlacement(
            model,
            "virtual_vram_gb",
            f'{gigabytes(memory.virtual_vram_bytes)} are to be streamed, and "{name}" streams '
            'nothing of the denoiser; choose "auto" or a rung that does, such as '
            "staged-streamed, or leave virtual_vram_gb out",
        )


def _check_whole(state: State, model: str, placement: str) -> None:
    """A model of unknown parts is loaded as a whole once, which tells; then it is placed as was
    asked, if it has any."""
    if _has_no_parts(state, model, placement):
        raise InvalidPlacement(
            model, "placement", "it has no parts that could be placed one by one; choose resident"
        )


def _has_no_parts(state: State, model: str, placement: str) -> bool:
    """Whether a rung was named that needs parts, and the load told of none."""
    facts = state.models[model].facts
    named = rung_named(placement or facts.memory.placement)
    return named not in (None, RUNGS[0]) and state.estimates.was_weighed(facts)


def _check_sizes(state: State, model: str, placement: str) -> None:
    memory = state.models[model].facts.memory
    roles = {role.role: role for role in roles_of(state, model)}
    blocks = roles[DENOISER].blocks_bytes if DENOISER in roles else ()
    in_all, largest = sum(blocks), max(blocks, default=0)
    if memory.virtual_vram_bytes > in_all:
        raise InvalidPlacement(
            model,
            "virtual_vram_gb",
            f"{rounded_up(memory.virtual_vram_bytes)} are more than the model's blocks, which can "
            f"be streamed: at most {rounded_down(in_all)}",
            most_bytes=in_all,
        )
    cards = [
        device.ledger.total_bytes
        for device in state.devices.values()
        if device.state is DeviceState.READY
    ]
    if cards and memory.swap_space_bytes > max(cards):
        most = min(max(cards), max(in_all - 1, 2 * largest))
        raise InvalidPlacement(
            model,
            "swap_space_gb",
            f"{rounded_up(memory.swap_space_bytes)} are more than the largest GPU has: "
            f"at most {rounded_down(most)}; two blocks of this model take {gigabytes(2 * largest)}",
            most_bytes=most,
        )
    buffers = buffers_for(memory)
    least_space = buffers * _largest_layer_bytes(rungs_for(memory, placement), roles)
    if 0 < memory.swap_space_bytes < least_space:
        raise InvalidPlacement(
            model,
            "swap_space_gb",
            f"{rounded_down(memory.swap_space_bytes)} do not hold {buffers} of the largest layers "
            f"that are streamed: at least {rounded_up(least_space)}",
            least_bytes=least_space,
        )


def _largest_layer_bytes(rungs: Iterable[Rung], roles: Mapping[str, RoleBytes]) -> int:
    """Of what comes through the buffers, on that of the rungs which is content with the least; 0
    where none of them streams."""
    layers = (
        [roles[name].layer_bytes for name in rung.streamed_roles if name in roles] for rung in rungs
    )
    return min((max(each) for each in layers if each), default=0)


def _check_rungs(state: State, model: str, placement: str) -> None:
    """A rung that was named must be one that this model has."""
    memory = state.models[model].facts.memory
    rungs = rungs_for(memory, placement)
    roles = {role.role: role for role in roles_of(state, model)}
    denoiser = roles.get(DENOISER)
    if all(rung.streams is not Streams.NOTHING for rung in rungs):
        if denoiser is None or len(denoiser.blocks_bytes) <= 2:
            raise InvalidPlacement(model, "placement", _NOTHING_TO_STREAM)
        _check_buffers(model, memory, denoiser)
    read_in_blocks = ENCODERS in roles and len(roles[ENCODERS].blocks_bytes) > 2
    if all(rung.placement.streamed for rung in rungs) and not read_in_blocks:
        raise InvalidPlacement(
            model, "placement", "its text encoders have no repeated blocks; choose another"
        )
    lacks = state.estimates.lacks(state.models[model].facts)
    for rung in rungs:
        _check_combination(model, rung, roles, lacks)
    for_tiles = all(rung.placement.tiled and not rung.placement.on_cpu for rung in rungs)
    if for_tiles and (VAE not in roles or TILED in lacks):
        raise InvalidPlacement(
            model,
            "placement",
            "it has no VAE that could work in tiles; choose another, such as staged-streamed",
        )
    if all(rung.placement.sliced for rung in rungs) and SLICED in lacks:
        raise InvalidPlacement(
            model,
            "placement",
            "its networks have no switch for slices of attention; choose cpu-encoders-streamed",
        )


def _check_combination(
    model: str, rung: Rung, roles: Mapping[str, RoleBytes], lacks: Collection[str]
) -> None:
    """What was said of one role is meant for it: nothing of that is passed over, as the ladder's
    own rungs do with what a model has not."""
    said = read_name(rung.name) or {}
    for role, word in said.items():
        if role not in roles:
            problem = f"it has no {role}, only {' and '.join(roles)}; leave {role} out"
            raise InvalidPlacement(model, "placement", problem)
        if TILED in word and TILED in lacks:
            problem = f'its VAE cannot work in tiles; write {role} = "staged", or leave {role} out'
            raise InvalidPlacement(model, "placement", problem)
        if SLICED in word and SLICED in lacks:
            problem = f'its networks have no switch for slices of attention; leave "{SLICED}" out'
            raise InvalidPlacement(model, "placement", problem)


def _check_buffers(model: str, memory: MemorySettings, denoiser: RoleBytes) -> None:
    """Where only rungs that stream are allowed, more must come through the buffers than they hold:
    else there is no plan, and a job would wait for ever."""
    piece = denoiser.unit_bytes(buffer_bytes_for(memory))
    in_all, buffers = denoiser.streamable_bytes(buffer_bytes_for(memory)), buffers_for(memory)
    if in_all > buffers * piece:
        return
    if memory.swap_space_bytes >= in_all:
        raise InvalidPlacement(
            model,
            "swap_space_gb",
            f"{rounded_up(memory.swap_space_bytes)} hold all blocks that could be streamed through "
            f"them: at most {rounded_down(in_all - 1)}",
            most_bytes=in_all - 1,
        )
    most = (in_all - 1) // piece - 1
    if most < 1:
        raise InvalidPlacement(model, "placement", _NOTHING_TO_STREAM)
    raise InvalidPlacement(
        model,
        "prefetch",
        f"{buffers} buffers hold all blocks that could be streamed through them: at most {most}",
        most=most,
    )


def _check_any_rung(state: State, model: str, size: Size) -> None:
    """What each setting allows alone may leave nothing together, and a job would wait for ever."""
    rungs = rungs_for(state.models[model].facts.memory, size.placement)
    if not plan_all(question_for(state, model, size, 0), rungs):
        raise InvalidPlacement(
            model,
            "placement",
            f"{size.placement or 'what is allowed'} leaves nothing to stream with the model's "
            "other settings: its buffers (prefetch, swap_space_gb) hold all of it; choose "
            "another, or smaller buffers",
        )


def _check_cap(state: State, model: str, size: Size) -> None:
    memory = state.models[model].facts.memory
    cap, named = memory.max_vram_bytes, size.placement or memory.placement
    lowest = least(plans(state, model, size, 0)) if cap else None
    if lowest is None or lowest.needed_bytes <= cap:
        return
    if refusal := too_large_buffers(state, model, size, cap, "max_vram_gb allows"):
        raise refusal
    least_bytes = lowest.needed_bytes
    facts, where, otherwise = {"least_bytes": least_bytes}, "on any rung", ""
    if named != AUTO:
        where = f'placed as "{named}"'
        of_all = least(plans(state, model, size._replace(placement=AUTO), 0))
        if of_all is not None and of_all.needed_bytes < least_bytes:
            facts["any_rung_bytes"] = of_all.needed_bytes
            otherwise = f', or placement = "auto", which needs {rounded_up(of_all.needed_bytes)}'
    raise InvalidPlacement(
        model,
        "max_vram_gb",
        f"{rounded_down(cap)} are too few for a picture of {size.pixels:,} pixels {where}: "
        f"at least {rounded_up(least_bytes)}{otherwise}",
        **facts,
    )
