"""What the planner thinks of each rung for a model and a size, with its reasons."""

from collections.abc import Iterator, Sequence

import msgspec

from workshop_gpu.conductor.admission import check_offered, usable_devices, why_no_device
from workshop_gpu.conductor.compiled import Blocks, blocks_of
from workshop_gpu.conductor.errors import DeviceUnknown, NoDevice, gigabytes
from workshop_gpu.conductor.eviction import Standing
from workshop_gpu.conductor.inert import inert_note, named_by
from workshop_gpu.conductor.ladder import AUTO, RUNGS, streams_nothing
from workshop_gpu.conductor.memory_rules import check_memory
from workshop_gpu.conductor.placement import Option
from workshop_gpu.conductor.placing import Placing, leaving_s
from workshop_gpu.conductor.planner import (
    Plan,
    Question,
    plan_all,
    plan_of,
    speeds_in,
    why_not_streamed,
)
from workshop_gpu.conductor.planning import (
    Size,
    has_ladder,
    kept_free_bytes,
    kind_of,
    question_for,
    room_on,
    rungs_for,
)
from workshop_gpu.conductor.records import Device, State
from workshop_gpu.conductor.room import Claim, Room
from workshop_gpu.conductor.rungs import (
    DENOISER,
    ENCODERS,
    RESIDENT,
    SLICED,
    TILED,
    Placement,
    Rung,
)
from workshop_gpu.conductor.states import DeviceState, SlotState
from workshop_gpu.conductor.stepping import words_of

_NEARLY_ALL = 0.9
_WITH_ITS_WAY = ", the way there counted"


class RungView(msgspec.Struct, frozen=True):
    """One rung. `expected_s` are seconds for a job once the model is placed; `exact`: it draws the
    same picture as everything on the GPU, to the last bit. `basis`: whether the seconds are
    "measured" on this very rung, "reckoned" from what was measured otherwise, or a "guess".
    `compiled`: whether they are those with compiled blocks. `chosen`: the next job would be drawn
    on it; `why`: in words, why it is chosen, or is not, and who would leave for it."""

    rung: str
    words: str
    weights_bytes: int
    working_bytes: int
    needed_bytes: int
    streamed_bytes: int
    expected_s: float
    exact: bool
    chosen: bool
    why: str
    basis: str = ""
    compiled: bool = False
    elsewhere_bytes: int = 0
    """What it takes of the other GPU."""


class PlanView(msgspec.Struct, frozen=True):
    """All rungs on one GPU, from best to slowest. `room_bytes` is what a plan may take now
    if nobody leaves; `placement` where the model is ("": it is not there). `warning`: where hardly
    anything would be left. `notes`: what the model cannot do, which of its settings are of no
    effect, and which numbers are guesses. `blocks`: whether the denoiser's are compiled."""

    model: str
    device: str
    room_bytes: int
    total_bytes: int
    step_s: float
    bus_bytes_per_s: float
    placement: str
    rungs: tuple[RungView, ...]
    warning: str = ""
    notes: tuple[str, ...] = ()
    blocks: Blocks = Blocks.NEVER


class _Known(msgspec.Struct, frozen=True):
    """What was measured of the numbers that plans are made from."""

    question: Question
    steps: frozenset[bool]
    """Whether a step with all of the model on the device was, for compiled blocks and without."""
    bus: bool

    @property
    def step(self) -> bool:
        """Whether the step that most rungs are reckoned from was."""
        return self.question.speeds.compiled in self.steps

    def basis(self, placement: Placement) -> str:
        """Of the seconds of a job in this placement."""
        speeds = speeds_in(self.question, placement)
        step = speeds.compiled in self.steps
        if placement == RESIDENT and step:
            return "measured"
        if any(name == placement.name for name, _ in speeds.measured_s):
            return "measured"
        return "reckoned" if step and self.bus and placement.exact else "guess"


def explain(
    state: State, now: float, model: str, size: Size, device_name: str | None = None
) -> PlanView:
    """Raises ModelUnknown, ModelDisabled, ModelUnavailable, DeviceUnknown, NoDevice or
    InvalidPlacement."""
    check_offered(state, model)
    check_memory(state, model, size)
    device = _device(state, model, device_name)
    slot = device.slots.get(model)
    ready = device.has(model, SlotState.READY)
    there = device.has(model, SlotState.READY, SlotState.LOADING)
    own_bytes = device.ledger.leaving_bytes((model,)) if there else 0
    free_bytes = device.ledger.free_for(model, kept_free_bytes(state, model))
    question = question_for(state, model, size, free_bytes + own_bytes, device)
    if not question.source:
        question = _with_neighbour(state, model, size, device, question)
    whole = RUNGS[:1]
    ladder = has_ladder(state, model)
    allowed = rungs_for(state.models[model].facts.memory, size.placement) if ladder else whole
    plans = _all_plans(question, allowed) if ladder else plan_all(question, whole)
    option = _option(state, now, model, size, device)
    chosen = None
    if option is not None:
        chosen = _plan_taken(question, [plan for plan in plans if plan.rung in allowed], option)
        plans = tuple(chosen if plan.rung is chosen.rung else plan for plan in plans)
    known = _Known(
        question,
        frozenset(
            compiled
            for compiled in (False, True)
            if state.estimates.step_is_measured(model, size.pixels, size.batch, compiled)
        ),
        device.bus_bytes_per_s > 0 or state.estimates.bus_is_measured,
    )
    plans = tuple(plan for plan in plans if plan.placement.source or not plan.rung.swaps)
    why = _why_chosen(state, model, size)
    if any(plan.rung in allowed and _looks_faster(plan, chosen) for plan in plans):
        why += _WITH_ITS_WAY
    if option is not None and option.victims:
        why += _after(option.victims, leaving_s(state, device, option.victims))
    views = tuple(_view(plan, chosen, plan.rung in allowed, known, why) for plan in plans)
    return PlanView(
        model,
        device.name,
        question.room_bytes,
        device.ledger.total_bytes,
        question.speeds.step_s,
        question.speeds.bus_bytes_per_s,
        words_of(slot.placement) if slot is not None and ready else "",
        views,
        _warning(chosen, device),
        tuple(_notes(question, known, inert_note(state, model, size.placement))) if ladder else (),
        blocks_of(state, model, device),
    )


def _all_plans(question: Question, allowed: Sequence[Rung]) -> tuple[Plan, ...]:
    """From best to slowest, behind what was put together by hand. Of rungs that come to the same
    for this model the one that was named is told, as it is asked for."""
    named = tuple(allowed) if len(allowed) == 1 else ()
    order = [*dict.fromkeys((*(rung for rung in named if rung not in RUNGS), *RUNGS))]
    found = plan_all(question, (*named, *RUNGS))
    return tuple(sorted(found, key=lambda plan: order.index(plan.rung)))


def _option(state: State, now: float, model: str, size: Size, device: Device) -> Option | None:
    """What the next job would get, of nobody in particular: for it leaves what nobody waits for.
    Once that has left there is more room than was asked for, so it is looked again."""
    claim, room = Claim(model, None, None), Room(state, now)

    def look(freed_bytes: int, worst: Standing) -> Option | None:
        def ask(needed_bytes: int) -> Option | None:
            return room.option(device, claim, needed_bytes - freed_bytes, worst)

        placing = Placing(state, now, model, size, freed_bytes=freed_bytes)
        there = device.has(model, SlotState.READY, SlotState.LOADING)
        return placing.run(device, ask) if there else placing.load(device, ask)

    first = look(0, Standing.AWAITED)
    if first is None or not first.victims:
        return first
    parts = state.estimates.parts(state.models[model].facts)
    kept_bytes = kept_free_bytes(state, model)
    freed_bytes = device.ledger.freed_bytes(first.victims, parts, model, kept_bytes)
    then = look(freed_bytes, Standing.NOBODY)
    return msgspec.structs.replace(then or first, victims=first.victims)


def _plan_taken(question: Question, plans: Sequence[Plan], option: Option) -> Plan:
    """The plan of that very placement, on the rung on which it stands in the table. A model that
    is there already may stream other bytes than it would if it came now."""
    taken = option.placement
    rungs = [plan.rung for plan in plans if plan.placement == taken]
    rungs += [plan.rung for plan in plans if plan.placement.kind == taken.kind]
    return plan_of(question, taken, next(iter(rungs), None))


def _after(victims: Sequence[str], back_s: float) -> str:
    """Who has to leave for it, and what that costs."""
    leave = "leaves" if len(victims) == 1 else "leave"
    return f", after {' and '.join(victims)} {leave} ({back_s:.1f} s to come back)"


def _with_neighbour(
    state: State, model: str, size: Size, device: Device, question: Question
) -> Question:
    """What another device could do for the model, if its settings named that one."""
    rooms = [
        (room_on(state, each, device, model, size), each.name)
        for each in usable_devices(state)
        if each is not device and kind_of(each.name) == kind_of(device.name)
    ]
    if not rooms:
        return question
    room_bytes, name = max(rooms)
    return msgspec.structs.replace(question, source=name, source_room_bytes=room_bytes)


def _device(state: State, model: str, name: str | None) -> Device:
    """The one that was named, else one that has the model, else the emptiest."""
    usable = usable_devices(state)
    if name is not None and name not in state.devices:
        raise DeviceUnknown(name, list(state.devices))
    if not usable:
        raise NoDevice(why_no_device(state))
    if name is not None:
        return state.devices[name]
    return max(usable, key=lambda each: (model in each.slots, each.ledger.free_bytes))


def _why_chosen(state: State, model: str, size: Size) -> str:
    """Of the rung that is taken: who named it, if anybody did."""
    name = size.placement or state.models[model].facts.memory.placement
    if name == AUTO:
        return "chosen: the fastest that fits"
    by = named_by(state, model, size.placement) or "in models.toml or as default_placement"
    if not has_ladder(state, model):
        return f'chosen until its parts are known; then "{name}", named {by}'
    return f"chosen: named {by}"


def _view(
    plan: Plan, chosen: Plan | None, allowed: bool, known: _Known, why_chosen: str
) -> RungView:
    return RungView(
        plan.rung.name,
        plan.rung.words,
        plan.weights_bytes,
        plan.working_bytes,
        plan.needed_bytes,
        plan.placement.streamed_bytes,
        round(plan.job_s, 4),
        plan.placement.exact,
        plan is chosen,
        why_chosen if plan is chosen else _why_not(plan, chosen, allowed, known.question),
        known.basis(plan.placement),
        speeds_in(known.question, plan.placement).compiled,
        plan.elsewhere_bytes,
    )


def _why_not(plan: Plan, chosen: Plan | None, allowed: bool, question: Question) -> str:
    source = plan.placement.source
    if question.streamed_bytes and streams_nothing(plan.rung.name):
        return "it streams nothing, and the model's memory settings say virtual_vram_gb"
    if not allowed and plan.rung.swaps:
        return f'only where the model\'s memory settings say swap_device = "{source}"'
    if not allowed:
        return "only where it is asked for by name"
    if plan.problem:
        return plan.problem
    if chosen is not None and chosen.placement.exact and not plan.placement.exact:
        return "changes the picture's last bits"
    if chosen is None:
        return "fits, and the model cannot be moved just now"
    if _looks_faster(plan, chosen):
        return "fits, and is not faster by as much as its way there takes"
    return "fits, and is no faster"


def _looks_faster(plan: Plan, chosen: Plan | None) -> bool:
    """Of the jobs alone, without the seconds until the model is placed so."""
    if chosen is None or plan.problem or plan.placement.exact < chosen.placement.exact:
        return False
    return plan.job_s < chosen.job_s


def _notes(question: Question, known: _Known, inert: str) -> Iterator[str]:
    if inert:
        yield inert
    for role, words in ((DENOISER, "its denoiser"), (ENCODERS, "its text encoders")):
        if why := why_not_streamed(question, role):
            yield f"Rungs that stream {words} are left out: {why} (prefetch, swap_space_gb)."
    if TILED in question.lacks:
        yield "Its VAE cannot work in tiles, so rungs with tiles are left out."
    if SLICED in question.lacks:
        yield "Its networks cannot slice attention, so that rung is left out."
    if not known.step:
        how = " and its blocks compiled" if question.speeds.compiled else ""
        yield (
            f"Nothing was drawn with all of it on the GPU{how} yet: the seconds of a step are a "
            "guess."
        )
    if not known.bus:
        yield (
            f"The bus was not measured: {gigabytes(int(question.speeds.bus_bytes_per_s))} a "
            "second are a guess."
        )
    if not question.speeds.measured_s:
        yield "What tiles, slices and text encoders on the CPU cost is a guess until they are used."


def _warning(chosen: Plan | None, device: Device) -> str:
    """The card is not there, or this takes more than 90 % of it: the next larger picture will not
    fit as it is."""
    if device.state is DeviceState.LOST:
        return f"{device.name} is given up: nothing can be drawn there."
    if device.state is DeviceState.STARTING:
        return f"{device.name} is starting: these figures are older; ask again when it is ready."
    total = device.ledger.total_bytes
    if chosen is None or not total or chosen.needed_bytes <= _NEARLY_ALL * total:
        return ""
    return (
        f"This takes {gigabytes(chosen.needed_bytes)} of {gigabytes(total)} on {device.name}, "
        "more than 90 %."
    )
