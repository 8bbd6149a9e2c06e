"""Which placement for a model: bytes and seconds of each rung, and which one is best.

Pure arithmetic over numbers. A plan promises at most `needed_bytes` on the device: the weights
that stay there and the streaming buffers, and above them, in each phase of a job, the weights that
come for it and its activations. It expects seconds from the measured step, the bytes that have to
come and the measured speed of the bus: a step takes as long as the slower of the two.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache

import msgspec

from workshop_gpu.conductor.errors import gigabytes, rounded_down, rounded_up
from workshop_gpu.conductor.ladder import PLANNED, standing_of, tried_with
from workshop_gpu.conductor.rungs import (
    DENOISER,
    ENCODERS,
    SLICED,
    TILED,
    VAE,
    Placement,
    RoleBytes,
    Rung,
    Streams,
)
from workshop_gpu.conductor.working_memory import Activations

# A text encoder of 9.5 GB does about 5 TFLOP for a prompt and its negative; some 0.5 TFLOP/s of
# a server's cores make that a second for each GB. Corrected by what jobs really take.
_CPU_ENCODE_S_PER_BYTE = 1e-9
# Tiles overlap by a quarter, so decoding costs more: about half a denoising step.
_TILED_STEPS = 0.5
_SLICED_FACTOR = 1.3
AS_FAST = 1.02
"""Where two plans are as fast as the measurements can tell, the one that is higher up is taken."""
_CLEARLY_LESS = 0.97


class Phase(Enum):
    """A part of a job's way, or the load before it."""

    LOAD = "load"
    ENCODE = "encode"
    DENOISE = "denoise"
    DECODE = "decode"


class Speeds(msgspec.Struct, frozen=True):
    """`step_s`: one denoising step with everything on the device; `once_s`: what the job takes
    besides its steps then. `bus_bytes_per_s`: from host memory, or the source, to the device.
    `measured_s`: whole jobs of this size, by the name of the placement, where they were
    measured."""

    step_s: float
    bus_bytes_per_s: float
    measured_s: tuple[tuple[str, float], ...] = ()
    compiled: bool = False
    """Whether these are of compiled blocks."""
    once_s: float = 0.0


class Question(msgspec.Struct, frozen=True):
    """What a plan is wanted for: a model, a job of it, and the room on a device.

    `buffers` and `buffer_bytes` are the placement's. `source` is the other device that the model
    may use ("": none), with `source_room_bytes` there, beside `source_there_bytes` of its text
    encoders, which are there for other models. `streamed_bytes` above 0 are
    streamed in any case on rungs that stream. `lacks`: what of "tiled" and "sliced" the model
    cannot do. `plain`: the speeds of placements whose blocks are not compiled, where `speeds` are
    of compiled ones.
    """

    roles: tuple[RoleBytes, ...]
    room_bytes: int
    activations: Activations
    steps: int
    speeds: Speeds
    buffers: int = 2
    buffer_bytes: int = 0
    source: str = ""
    source_room_bytes: int = 0
    source_there_bytes: int = 0
    streamed_bytes: int = 0
    lacks: tuple[str, ...] = ()
    plain: Speeds | None = None


class Plan(msgspec.Struct, frozen=True):
    """One rung for one question.

    `weights_bytes` stay on the device, buffers included; `working_bytes` come on top while a job
    runs, weights of that phase included. `peaks` are all bytes in each phase. `job_s` is expected
    for one job (or batch); `problem` says why it cannot be ("": it fits). `elsewhere_bytes` lie on
    the placement's source, where `missing_elsewhere_bytes` are too few. `tried_as`: the rung that
    counts as tried with it.
    """

    rung: Rung
    placement: Placement
    weights_bytes: int
    working_bytes: int
    peaks: dict[Phase, int]
    job_s: float
    problem: str = ""
    missing_bytes: int = 0
    elsewhere_bytes: int = 0
    missing_elsewhere_bytes: int = 0
    tried_as: str = ""

    @property
    def needed_bytes(self) -> int:
        return self.weights_bytes + self.working_bytes


# An answer is about 8 kB, and of no use once a measured second has changed the question.
@lru_cache(maxsize=256)
def plan_all(question: Question, rungs: tuple[Rung, ...] = PLANNED) -> tuple[Plan, ...]:
    """Each rung for the question, in the ladder's order; those that come to the same as an
    earlier one for this model, and those for which it has nothing to stream, are left out."""
    found: dict[str, Plan] = {}
    for rung in rungs:
        plan = plan_for(question, rung)
        if plan is not None:
            found.setdefault(plan.placement.name, plan)
    return tuple(found.values())


def best(plans: Iterable[Plan]) -> Plan | None:
    """The fastest that fits, of those that only move weights; where none of them fits, the
    fastest of those that change the picture's last bits (tiles, slices, the CPU)."""
    fitting = [plan for plan in plans if not plan.problem]
    exact = [plan for plan in fitting if plan.placement.exact] or fitting
    if not exact:
        return None
    fastest_s = min(plan.job_s for plan in exact)
    return next(plan for plan in exact if plan.job_s <= fastest_s * AS_FAST)


def least(plans: Iterable[Plan]) -> Plan | None:
    """The one that needs the least room, fitting or not."""
    return min(plans, key=lambda plan: plan.needed_bytes, default=None)


def lowest_first(plans: Iterable[Plan]) -> list[Plan]:
    """Those that need the least room first, of those that only move weights; then the others:
    also what is careful draws the same picture, if it can."""
    return sorted(plans, key=lambda plan: (not plan.placement.exact, plan.needed_bytes))


def plan_for(question: Question, rung: Rung) -> Plan | None:
    """The rung with as few streamed bytes as the room asks for; None where it streams and the
    model has no blocks that would be worth it."""
    if any(not _worth_streaming(question, role) for role in rung.placement.streamed):
        return None
    if rung.swaps and not question.source:
        return None
    streamed = 0
    if rung.streams is not Streams.NOTHING:
        streamed = _streamed_bytes(question, rung)
        if not streamed:
            return None
    return plan_of(question, _placed(question, rung, streamed), rung)


def plan_of(question: Question, placement: Placement, rung: Rung | None = None) -> Plan:
    """What this very placement takes and costs; `rung` is the one that it stands on."""
    sizes = _Sizes(question, placement)
    weights = sizes.kept_bytes()
    working, peaks = sizes.above(weights)
    missing = max(0, weights + working - question.room_bytes)
    elsewhere = elsewhere_bytes(question.roles, placement)
    coming_there = elsewhere - (question.source_there_bytes if placement.elsewhere else 0)
    missing_elsewhere = max(0, coming_there - question.source_room_bytes)
    problem = f"{rounded_up(missing)} are missing" if missing else ""
    if not problem and missing_elsewhere:
        problem = f"{rounded_up(missing_elsewhere)} are missing on {placement.source}"
    stands_on = rung or standing_of(placement) or Rung(placement.name, placement.name, placement)
    return Plan(
        stands_on,
        placement,
        weights,
        working,
        peaks,
        _job_s(question, placement),
        problem,
        missing,
        elsewhere,
        missing_elsewhere,
        _tried_as(question, stands_on, placement),
    )


def _tried_as(question: Question, rung: Rung, placement: Placement) -> str:
    """A rung that streams some of the denoiser is, where it streams all of it, the one that does so
    in any case: the two cannot be told apart by what they place where."""
    in_all = _role(question.roles, DENOISER).streamable_bytes(placement.buffer_bytes)
    if 0 < in_all <= placement.streamed_bytes:
        return tried_with(rung).name
    return rung.name


def elsewhere_bytes(roles: Iterable[RoleBytes], placement: Placement) -> int:
    """What lies on the placement's source, the other device."""
    if not placement.source:
        return 0
    at_home = sum(role.size_bytes for role in roles if role.role in placement.elsewhere)
    return at_home + placement.streamed_bytes


def least_elsewhere_bytes(question: Question, rung: Rung) -> int:
    """What a rung takes of another device at the very least."""
    least = _at_home_bytes(question, rung)
    if rung.streams is not Streams.NOTHING and _worth_streaming(question, DENOISER):
        least += 2 * max(_role(question.roles, DENOISER).blocks_bytes)
    return least


def _at_home_bytes(question: Question, rung: Rung) -> int:
    """What has to come to the other device of the roles that live there."""
    roles = rung.placement.elsewhere
    in_all = sum(_role(question.roles, role).size_bytes for role in roles)
    return max(0, in_all - question.source_there_bytes) if roles else 0


def _streamed_bytes(question: Question, rung: Rung) -> int:
    """As few as the room asks for, the buffers won back first; one block at least, because a rung
    that streams nothing would be another one. 0: all blocks take no more than the buffers."""
    denoiser = _role(question.roles, DENOISER)
    if not _worth_streaming(question, DENOISER):
        return 0
    in_all = denoiser.streamable_bytes(question.buffer_bytes)
    piece = min(denoiser.unit_bytes(question.buffer_bytes), max(denoiser.blocks_bytes))
    if rung.swaps:
        # What is streamed is rounded up to whole blocks, which must be there too.
        there = question.source_room_bytes - _at_home_bytes(question, rung) - piece
        in_all = min(in_all, max(there, piece))
    if rung.streams is Streams.ALL:
        return in_all
    # With one byte streamed the buffers are there, which is what has to be won back.
    missing = plan_of(question, _placed(question, rung, 1)).missing_bytes
    return min(max(question.streamed_bytes, missing + 1, piece), in_all)


def _worth_streaming(question: Question, role: str) -> bool:
    """Whether it wins room, and no layer is larger than what a buffer may take."""
    return bool(_role(question.roles, role).blocks_bytes) and not why_not_streamed(question, role)


def why_not_streamed(question: Question, role: str) -> str:
    """In words, what the settings of the buffers have against streaming the role's blocks."""
    found, size = _role(question.roles, role), question.buffer_bytes
    if 0 < size < found.layer_bytes:
        layer, buffer = rounded_up(found.layer_bytes), rounded_down(size)
        return f"a layer takes {layer} and a buffer {buffer}"
    streamed, unit = found.streamable_bytes(size), found.unit_bytes(size)
    if not streamed or streamed > question.buffers * unit:
        return ""
    buffers = f"{question.buffers} buffers of {rounded_up(unit)}"
    return f"{buffers} hold all {gigabytes(streamed)} that would be streamed"


def _role(roles: Iterable[RoleBytes], role: str) -> RoleBytes:
    return next((each for each in roles if each.role == role), RoleBytes(role, 0))


def _placed(question: Question, rung: Rung, streamed: int) -> Placement:
    """The rung's placement for this model: without roles that it has not, nor what it cannot do."""
    here = {role.role for role in question.roles if role.size_bytes}
    want = rung.placement
    placement = msgspec.structs.replace(
        want,
        staged=tuple(role for role in want.staged if role in here),
        on_cpu=tuple(role for role in want.on_cpu if role in here),
        elsewhere=tuple(role for role in want.elsewhere if role in here),
        tiled=want.tiled and VAE in here and TILED not in question.lacks,
        sliced=want.sliced and SLICED not in question.lacks,
        streamed_bytes=streamed,
    )
    if streamed or want.streamed:
        placement = msgspec.structs.replace(
            placement, buffers=question.buffers, buffer_bytes=question.buffer_bytes
        )
    if rung.swaps and (streamed or placement.elsewhere):
        return msgspec.structs.replace(placement, source=question.source)
    return placement


class _Sizes:
    """The bytes of one placement, by role and phase."""

    def __init__(self, question: Question, placement: Placement) -> None:
        self._activations = question.activations
        self._placement = placement
        self._roles = {role.role: role for role in question.roles}

    def kept_bytes(self) -> int:
        """What stays on the device between jobs."""
        placement = self._placement
        away = {*placement.away}
        kept = sum(role.size_bytes for role in self._roles.values() if role.role not in away)
        streamed = {*placement.streamed, *((DENOISER,) if placement.streamed_bytes else ())}
        pieces = [self._role(role).unit_bytes(placement.buffer_bytes) for role in streamed]
        buffers = placement.buffers * max(pieces, default=0)
        return max(0, kept - placement.streamed_bytes) + buffers

    def above(self, kept: int) -> tuple[int, dict[Phase, int]]:
        """The working memory above the weights that stay, and all bytes in each phase."""
        placement, activations = self._placement, self._activations
        rising = {
            Phase.ENCODE: self._comes(ENCODERS) + activations.encode_bytes,
            Phase.DENOISE: self._comes(DENOISER) + activations.denoise(placement),
            Phase.DECODE: self._comes(VAE) + activations.decode(placement),
        }
        measured = activations.measured(placement)
        working = max(rising.values()) if measured is None else measured
        peaks = {phase: kept + min(each, working) for phase, each in rising.items()}
        return working, {Phase.LOAD: kept, **peaks}

    def _comes(self, role: str) -> int:
        """What comes for a phase and leaves after it."""
        if role in self._placement.streamed:
            found = self._role(role)
            return found.size_bytes - found.streamable_bytes(self._placement.buffer_bytes)
        return self._role(role).size_bytes if role in self._placement.staged else 0

    def _role(self, role: str) -> RoleBytes:
        return self._roles.get(role) or RoleBytes(role, 0)


def _job_s(question: Question, placement: Placement) -> float:
    """Seconds of a job, its weights' ways included: measured for this very placement, else
    expected."""
    speeds = speeds_in(question, placement)
    if speeds.measured_s:
        name = placement.name
        known_s = next((each_s for each, each_s in speeds.measured_s if each == name), None)
        if known_s is not None:
            return known_s
    sizes = {role.role: role.size_bytes for role in question.roles}
    bus = speeds.bus_bytes_per_s
    step_s = speeds.step_s * (_SLICED_FACTOR if placement.sliced else 1.0)
    steps_s = question.steps * max(step_s, placement.streamed_bytes / bus)
    staged_s = sum(sizes.get(role, 0) for role in placement.staged) / bus
    # A prompt and its negative may be read one after the other: then each block comes twice.
    staged_s += 2 * sum(sizes.get(role, 0) for role in placement.streamed) / bus
    cpu_s = sum(sizes.get(role, 0) for role in placement.on_cpu) * _CPU_ENCODE_S_PER_BYTE
    tiled_s = _TILED_STEPS * (question.plain or speeds).step_s if placement.tiled else 0.0
    return speeds.once_s + steps_s + staged_s + cpu_s + tiled_s


def speeds_in(question: Question, placement: Placement) -> Speeds:
    """Those of compiled blocks, where blocks run as a whole: neither their attention is sliced nor
    do their layers come one by one."""
    if question.plain is None:
        return question.speeds
    denoiser = next((role for role in question.roles if role.role == DENOISER), None)
    largest = max(denoiser.blocks_bytes, default=0) if denoiser else 0
    in_layers = placement.streamed_bytes > 0 and 0 < placement.buffer_bytes < largest
    return question.plain if placement.sliced or in_layers else question.speeds


def moving_s(question: Question, placement: Placement) -> float:
    """Seconds of a job in which the weights' ways, and encoders on the CPU, take no less."""
    speeds = msgspec.structs.replace(question.speeds, step_s=0.0, once_s=0.0, measured_s=())
    return _job_s(msgspec.structs.replace(question, speeds=speeds, plain=None), placement)


class Step(msgspec.Struct, frozen=True):
    """The device ran out of memory on a rung, in a phase in which all of that rung's bytes should
    have been `peak_bytes`. `asked`: that rung by the name that somebody gave it ("": nobody)."""

    rung: str
    phase: Phase
    peak_bytes: int
    asked: str = ""

    @property
    def name(self) -> str:
        """For people, who can write it into models.toml."""
        return self.asked or self.rung

    def allows(self, plan: Plan) -> bool:
        """Whether the plan is worth trying after this: another rung, and less in that phase."""
        return plan.tried_as != self.rung and plan.peaks[self.phase] < self.peak_bytes


def room_after(steps: Sequence[Step], room_bytes: int) -> int:
    """So much a plan may take after these steps: clearly less than what was too much."""
    return min([room_bytes, *(int(step.peak_bytes * _CLEARLY_LESS) for step in steps)])


def allowed(plans: Iterable[Plan], steps: Sequence[Step]) -> tuple[Plan, ...]:
    """The plans that are left after these steps: each rung is tried at most once."""
    return tuple(plan for plan in plans if all(step.allows(plan) for step in steps))
