"""Whatever an instructor writes and asks for: a job is refused, or its model comes."""

from collections import Counter
from random import Random

import msgspec

from tests.conductor.laddered import LARGE, laddered
from tests.conductor.staging import GB, stage
from workshop_gpu.conductor.errors_placement import InvalidPlacement
from workshop_gpu.conductor.ladder import names
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, RoleBytes
from workshop_gpu.conductor.states import SlotState

ENCODERS_ALIKE = (
    LARGE[0],
    RoleBytes(ENCODERS, GB),
    RoleBytes(ENCODERS, 3 * GB, (GB,) * 3),
)
BLOCKS: tuple[tuple[int, ...], ...] = (
    (),
    (GB,),
    (GB // 2,) * 2,
    (GB // 2,) * 4,
    (GB // 4, GB, GB // 3),
    (2 * GB,) * 8,
    (GB, *(GB // 10,) * 20),
)


BY_HAND = (
    "encoders=cpu,vae=tiled",
    "encoders=streamed,denoiser=staged",
    "encoders=streamed,denoiser=all-streamed,vae=staged+tiled",
    "denoiser=staged+sliced",
    "denoiser=streamed,vae=tiled",
)


def some_settings(dice: Random) -> MemorySettings:
    return MemorySettings(
        placement=dice.choice(("auto", "auto", *names(), *BY_HAND)),
        virtual_vram_bytes=dice.choice((0, 0, GB // 5, GB, 3 * GB, 8 * GB)),
        swap_space_bytes=dice.choice((0, 0, GB // 10, GB // 2, GB, 5 * GB, 20 * GB)),
        max_vram_bytes=dice.choice((0, 0, 0, GB // 2, GB, 4 * GB, 16 * GB)),
        prefetch=dice.choice((0, 1, 2, 3, 16)),
        min_free_bytes=dice.choice((0, 0, GB, 30 * GB)),
    )


def some_roles(dice: Random) -> tuple[RoleBytes, ...]:
    blocks = dice.choice(BLOCKS)
    beside = dice.choice((0, GB // 5)) or (0 if blocks else GB)
    return dice.choice(ENCODERS_ALIKE), RoleBytes(DENOISER, sum(blocks) + beside, blocks), LARGE[2]


def test_a_job_is_refused_or_its_model_comes_whatever_the_settings() -> None:
    dice, seen = Random(1), Counter[str]()
    for _ in range(900):
        facts = laddered(memory=some_settings(dice))
        made = stage(msgspec.structs.replace(facts, roles=some_roles(dice)))
        rung = dice.choice(("", "", *names(), *BY_HAND))
        request = msgspec.structs.replace(made.job_submitted("large"), placement=rung)
        try:
            made.tell(request)
        except InvalidPlacement:
            seen["refused"] += 1
            continue
        said = f"{facts.memory}, {rung or 'any rung'}: it would wait for ever"
        assert made.slot("large").state is SlotState.LOADING, said
        seen["comes"] += 1
    assert min(seen["refused"], seen["comes"]) > 50
