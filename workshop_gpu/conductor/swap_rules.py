"""What the swap device in a model's memory settings must fulfil on this machine."""

from workshop_gpu.conductor.errors import rounded_down, rounded_up
from workshop_gpu.conductor.errors_placement import InvalidPlacement
from workshop_gpu.conductor.planner import least_elsewhere_bytes
from workshop_gpu.conductor.planning import Size, homes, kind_of, question_for, rungs_for
from workshop_gpu.conductor.records import State
from workshop_gpu.conductor.rungs import HOST

_FIELD = "swap_device"


def check_swap_device(state: State, model: str, placement: str) -> None:
    """It must be there, another one than the model's and of the same kind. Raises
    InvalidPlacement."""
    memory = state.models[model].facts.memory
    source, known = memory.swap_device, list(state.devices)
    if source in HOST:
        if any(rung.swaps for rung in rungs_for(memory, placement)):
            named = placement or memory.placement
            problem = f'"{named}" takes memory of another GPU; name one, such as "cuda:1"'
            raise InvalidPlacement(model, _FIELD, problem)
        return
    if source not in known:
        problem = f'there is no "{source}"; here: cpu, {", ".join(known)}'
        raise InvalidPlacement(model, _FIELD, problem)
    if state.devices[source].is_gone and all(rung.swaps for rung in rungs_for(memory, placement)):
        problem = f'"{source}" does not work: {state.devices[source].reason or "it is gone"}'
        raise InvalidPlacement(model, _FIELD, problem)
    others = [name for name in known if name != source]
    if not others:
        problem = f'"{source}" is the only GPU here, so it cannot be its own swap device'
        raise InvalidPlacement(model, _FIELD, f'{problem}; write "cpu"')
    if all(kind_of(name) != kind_of(source) for name in others):
        problem = f'"{source}" is of another kind than {", ".join(others)}; write "cpu"'
        raise InvalidPlacement(model, _FIELD, problem)


def check_homes(state: State, model: str, size: Size) -> None:
    """Where the model needs memory of its swap device, another one must be left that could have
    it. Raises InvalidPlacement."""
    source = state.models[model].facts.memory.swap_device
    if source in HOST:
        return
    usable = [device.name for device in state.devices.values() if not device.is_gone]
    if usable and not homes(state, model, size):
        problem = f'it needs memory of "{source}" beside its own, and no other GPU here works'
        raise InvalidPlacement(model, _FIELD, f'{problem}; write "cpu", or choose another rung')


def check_swap_room(state: State, model: str, size: Size) -> None:
    """Some rung that takes memory of it must be possible once everybody else has left. Raises
    InvalidPlacement with the bytes that would do."""
    memory = state.models[model].facts.memory
    rungs = tuple(rung for rung in rungs_for(memory, size.placement) if rung.swaps)
    question = question_for(state, model, size, 0)
    if not rungs or not question.source or question.source_room_bytes <= 0:
        return
    least = min(least_elsewhere_bytes(question, rung) for rung in rungs)
    if least > question.source_room_bytes:
        raise InvalidPlacement(
            model,
            _FIELD,
            f'"{question.source}" can give {rounded_down(question.source_room_bytes)} at most; '
            f"this model would need at least {rounded_up(least)} there",
            least_bytes=least,
        )
