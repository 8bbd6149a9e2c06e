"""What a model may take and what stays free beside it, while it is ready and jobs come."""

import msgspec
import pytest

from tests.conductor.laddered import laddered, loaded, work
from tests.conductor.staging import GB, MEGAPIXEL, Stage, stage
from workshop_gpu.conductor import effects
from workshop_gpu.conductor.memory_settings import MemorySettings

BOUNDS = [
    MemorySettings(max_vram_bytes=31 * GB),
    MemorySettings(max_vram_bytes=20 * GB),
    MemorySettings(min_free_bytes=48 * GB),
]


def drawn_once(memory: MemorySettings) -> Stage:
    """A model that is ready and has drawn a picture of one megapixel."""
    made = stage(laddered(memory=memory))
    made.submit("large")
    loaded(made)
    made.answer()
    return made


def taken_gb(made: Stage) -> float:
    """What the model holds, its working memory included."""
    held = made.conductor.snapshot(made.now).devices[0].holders
    return sum(each.bytes for each in held if each.kind in ("weights", "working")) / GB


def kept_gb(made: Stage) -> float:
    """What stays free beside models, and is nobody else's."""
    held = made.conductor.snapshot(made.now).devices[0].holders
    return sum(each.bytes for each in held if each.kind == "kept_free") / GB


def check_bounds(made: Stage, memory: MemorySettings) -> None:
    assert made.order().startswith("run")
    if memory.max_vram_bytes:
        assert taken_gb(made) <= memory.max_vram_bytes / GB
    assert kept_gb(made) == memory.min_free_bytes / GB
    assert made.free_gb() >= 0


@pytest.mark.parametrize("memory", BOUNDS)
def test_a_larger_picture_of_a_ready_model_is_drawn_within_its_bounds(
    memory: MemorySettings,
) -> None:
    made = drawn_once(memory)
    for megapixels in (4, 9, 1):
        made.submit("large", pixels=megapixels * MEGAPIXEL)
        while not made.order().startswith("run"):
            work(made, "gpu0")
        check_bounds(made, memory)
        made.answer()


@pytest.mark.parametrize(
    "memory", [MemorySettings(max_vram_bytes=32 * GB), MemorySettings(min_free_bytes=47 * GB)]
)
def test_jobs_are_drawn_together_within_the_models_bounds(memory: MemorySettings) -> None:
    made = stage(laddered(memory=memory))
    for who in "abcdefgh":
        made.tell(msgspec.structs.replace(made.job_submitted("large", who), group="alike"))
    loaded(made)
    most = 0
    while made.order():
        check_bounds(made, memory)
        run = made.take_order()
        assert isinstance(run, effects.RunJob)
        jobs = (run.job, *run.others)
        most = max(most, len(jobs))
        for job in jobs:
            made.finish(job, 5.0 * (1 + 0.3 * (len(jobs) - 1)), batch=len(jobs))
    assert most == 2


def test_a_ready_model_whose_picture_would_take_too_much_waits_for_the_lane_that_moves_it() -> None:
    """It is not drawn as it is placed, only because that could not be changed at once."""
    memory = MemorySettings(max_vram_bytes=31 * GB)
    made = stage(laddered(memory=memory), laddered("small"))
    made.submit("large")
    loaded(made)
    made.answer()
    made.submit("small", "bob")
    made.submit("large", pixels=4 * MEGAPIXEL)
    assert made.order() == "load small"
    assert len(made.orders_of()) == 1
    made.settle()


@pytest.mark.parametrize("memory", [MemorySettings(), MemorySettings(min_free_bytes=4 * GB)])
def test_weights_a_little_larger_than_planned_do_not_keep_a_job_waiting(
    memory: MemorySettings,
) -> None:
    """As few bytes are streamed as needed, so the plan leaves nothing over."""
    streamed = msgspec.structs.replace(memory, placement="streamed")
    made = stage(laddered(memory=streamed), gb=28)
    made.submit("large")
    loaded(made, beyond_bytes=50_000_000)
    assert made.order() == "load large"
    loaded(made, beyond_bytes=50_000_000)
    check_bounds(made, memory)
