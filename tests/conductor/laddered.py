"""A model that can be placed on every rung, and a worker that does as it is told with it."""

import msgspec

from tests.conductor.staging import Stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.planner import Question, Speeds, plan_of
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, VAE, Placement, RoleBytes
from workshop_gpu.conductor.working_memory import Activations

# Stable Diffusion 3.5 Large in bf16: 27.5 GB.
ENCODER_BLOCKS = (14_000_000,) * 12 + (39_000_000,) * 32 + (386_000_000,) * 24
LARGE = (
    RoleBytes(ENCODERS, 11_160_000_000, ENCODER_BLOCKS),
    RoleBytes(DENOISER, 16_120_000_000, (415_000_000,) * 38, layer_bytes=71_000_000),
    RoleBytes(VAE, 170_000_000),
)


def scaled(scale: float) -> tuple[RoleBytes, ...]:
    return tuple(
        RoleBytes(
            role.role,
            int(role.size_bytes * scale),
            tuple(int(block * scale) for block in role.blocks_bytes),
        )
        for role in LARGE
    )


# Its text encoders have no blocks: they come as a whole.
BLOCKLESS = (
    RoleBytes(ENCODERS, 4_000_000_000),
    RoleBytes(DENOISER, 16_000_000_000, (1_000_000_000,) * 16),
    RoleBytes(VAE, 1_000_000_000),
)

SIZES = {
    "large": LARGE,
    "twin": LARGE,
    "middle": scaled(0.4),
    "small": scaled(0.15),
    "blockless": BLOCKLESS,
}


def laddered(name: str = "large", memory: MemorySettings | None = None) -> events.ModelFacts:
    roles = SIZES[name]
    return events.ModelFacts(
        name,
        file_bytes=sum(role.size_bytes for role in roles),
        roles=roles,
        memory=memory or MemorySettings(),
    )


def ordered(made: Stage, device: str = "gpu0") -> Placement:
    """The placement of the load that the device is told to do."""
    load = next(each for each in made.orders[device] if isinstance(each, effects.LoadModel))
    return load.placement


def loaded(
    made: Stage,
    device: str = "gpu0",
    encoders: tuple[events.PartBytes, ...] = (),
    beyond_bytes: int = 0,
) -> None:
    """The worker does the load as it was told; it may take some bytes beyond what was planned."""
    load = made.take_order(device, "load")
    assert isinstance(load, effects.LoadModel)
    made.now += 1.0
    roles = SIZES[load.model]
    none = Question(roles, 0, Activations(0, 1), 1, Speeds(1.0, 1e9), load.placement.buffers)
    weights_bytes = plan_of(none, load.placement).weights_bytes + beyond_bytes
    done = events.SlotLoaded(device, load.model, weights_bytes, 1.0, placement=load.placement)
    made.tell(msgspec.structs.replace(done, roles=roles, encoders=encoders))


def out_of_memory(made: Stage, phase: str, job: str, device: str = "gpu0") -> None:
    made.take_order(device, "run")
    error = ErrorReport("out_of_memory", "Out of GPU memory.", {"phase": phase})
    made.tell(events.JobFailed(job, error))


def notices(made: Stage) -> list[str]:
    return [each.text for each in made.said if isinstance(each, effects.Notice)]


def work(made: Stage, device: str) -> None:
    """The worker does what it was told next."""
    if made.order(device).startswith("load"):
        loaded(made, device)
    else:
        made.answer(device)
