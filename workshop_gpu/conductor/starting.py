"""3a: whether a job begins where its model is ready, and with which others."""

from collections.abc import Sequence

from workshop_gpu.conductor.batching import best_size
from workshop_gpu.conductor.coming import any_can_come, can_come
from workshop_gpu.conductor.look import Look
from workshop_gpu.conductor.orders import Order, Run
from workshop_gpu.conductor.placement import best
from workshop_gpu.conductor.placing import Placing
from workshop_gpu.conductor.planning import is_within_cap, kept_free_bytes, size_of, working_bytes
from workshop_gpu.conductor.records import Activity, Device, Job
from workshop_gpu.conductor.room import Claim
from workshop_gpu.conductor.shapes import first_like
from workshop_gpu.conductor.states import SlotState


def start(look: Look, job: Job, passed: Sequence[str]) -> Order | None:
    """Runs the job if there is room, or makes room for its working memory. `passed` are models
    whose first jobs go before it."""
    places = resting_with(look, job.model)
    if not places:
        return None
    claim, devices = look.claim(job), look.state.devices
    placing = look.placing(job)
    run_s = look.state.cost_s(job)
    allowed = []
    for name in places:
        closed = look.closed.get(name)
        if closed is None or not closed.keeps_out(job, run_s):
            allowed.append(devices[name])
        else:
            look.hopeful.add((name, job.model))
    options = [placing.run(device, look.ask(device, claim)) for device in allowed]
    option = best(each for each in options if each is not None)
    if option is None:
        _wait_where_it_is(look, allowed, claim, placing)
        return None
    here = devices[option.device].slots[job.model].placement
    if option.victims or option.placement != here:
        return look.make_room_or_load(option, job.model)
    device, alone = devices[option.device], option.device in look.closed
    first = job if alone else first_like(look.state.queue, job)
    if first.is_suspect and device.activity is not Activity.IDLE:
        look.keep(device)
        return None
    jobs = (first,) if alone else _batch(look, first, device)
    return Run(option.device, jobs, (*passed, job.model))


def resting_with(look: Look, model: str) -> list[str]:
    """The devices that compute nothing and have the model ready."""
    if model not in look.rested:
        return []
    ready = look.state.slots(model, SlotState.READY)
    return [slot.device for slot in ready if slot.device in look.resting]


def _wait_where_it_is(
    look: Look, devices: Sequence[Device], claim: Claim, placing: Placing
) -> None:
    """It can get room later, or others hold it for good: then it is as good as not there."""
    later = {
        each.name for each in devices if look.room.later(each, claim, placing.least_bytes(each))
    }
    look.reserved.update(later)
    look.hopeful.update((name, claim.model) for name in later)
    look.useless.update((each.name, claim.model) for each in devices if each.name not in later)
    if devices and not later:
        look.without_room.add(claim.model)


def _batch(look: Look, job: Job, device: Device) -> tuple[Job, ...]:
    """Those that are drawn together. A batch takes longer than a job: so there is none while
    somebody is due or of a better class who could come next, and nobody who is due is overtaken by
    it. Whoever ended a worker is drawn alone: the next to die with it would be blamed too."""
    state, request = look.state, job.request
    limit = state.settings.batch_limit
    if limit < 2 or not request.group or job.is_suspect or device.in_safe_mode:
        return (job,)
    if any(any_can_come(look.room, state, look.now, model) for model in _before_all(look, job)):
        return (job,)
    waiting = [
        each
        for each in state.queue.of_model(job.model, 2 * limit)
        if (each.rank < job.rank or (each.due and each.request.group != request.group))
        and can_come(look.room, state, look.now, each)
    ]
    if any(each.rank < job.rank for each in waiting):
        return (job,)
    others = [
        each
        for each in state.queue.of_group(job.model, request.group, 2 * limit)
        if each is not job and each.rank == job.rank and _alike(each, job) and not each.is_suspect
    ]
    if waiting:
        others = [each for each in others if each.key < waiting[0].key]

    def each_s(size: int) -> float | None:
        together_s = state.run_s(job, size)
        return None if together_s is None else together_s / size

    size = best_size(min(limit, len(others) + 1), each_s)
    while size > 1 and not _has_room(look, job, size, device):
        size -= 1
    return (job, *others[: size - 1])


def _has_room(look: Look, job: Job, together: int, device: Device) -> bool:
    """Whether so many such jobs can be drawn together as the model is placed, within what its
    settings let it take and leave free."""
    state, placement = look.state, device.slots[job.model].placement
    kept_bytes = kept_free_bytes(state, job.model)
    room_bytes = device.ledger.free_for(job.model, kept_bytes) - kept_bytes
    if working_bytes(state, job, together, placement) > room_bytes:
        return False
    return is_within_cap(state, job.model, size_of(job, together), placement)


def _before_all(look: Look, job: Job) -> list[str]:
    """Other models for which jobs wait that are due, or of a better class."""
    queue = look.state.queue
    due = queue.due_models()
    return [
        model
        for model in queue.models()
        if model != job.model and (model in due or queue.first_of(model).rank < job.rank)
    ]


def _alike(one: Job, other: Job) -> bool:
    """Whether two jobs of a group are of the same size, and neither ran out of memory."""
    return size_of(one) == size_of(other) and not (one.steps or other.steps)
