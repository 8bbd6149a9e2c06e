"""Memory settings that change while a model is ready count from its next job on."""

import pytest

from tests.conductor.laddered import laddered, loaded, ordered
from tests.conductor.staging import GB, MEGAPIXEL, Stage, stage
from workshop_gpu.conductor import events
from workshop_gpu.conductor.memory_settings import MemorySettings

NONE = MemorySettings()
STREAMED = MemorySettings(placement="all-streamed")


def ready_under(before: MemorySettings, after: MemorySettings, gb: float = 80) -> Stage:
    """A model that has drawn, and whose settings were others then."""
    made = stage(laddered(memory=before), gb=gb)
    made.submit("large")
    loaded(made)
    made.answer()
    made.tell(events.CatalogueChanged((laddered(memory=after),)))
    return made


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (NONE, MemorySettings(max_vram_bytes=16 * GB)),
        (MemorySettings(max_vram_bytes=16 * GB), MemorySettings(max_vram_bytes=8 * GB)),
        (MemorySettings(max_vram_bytes=16 * GB), NONE),
        (MemorySettings(virtual_vram_bytes=3 * GB), MemorySettings(virtual_vram_bytes=8 * GB)),
        (MemorySettings(virtual_vram_bytes=8 * GB), MemorySettings(virtual_vram_bytes=3 * GB)),
        (STREAMED, MemorySettings(placement="all-streamed", prefetch=3)),
        (STREAMED, MemorySettings(placement="all-streamed", swap_space_bytes=2 * GB)),
        (NONE, MemorySettings(min_free_bytes=60 * GB)),
    ],
)
def test_the_next_job_has_the_model_placed_as_if_it_had_just_come(
    before: MemorySettings, after: MemorySettings
) -> None:
    made = ready_under(before, after)
    anew = stage(laddered(memory=after))
    for each in (made, anew):
        each.submit("large")
    assert made.order() == "load large", "in place: nothing leaves for it"
    assert ordered(made) == ordered(anew)
    loaded(made)
    assert made.order().startswith("run"), "once"
    made.answer()
    made.submit("large", pixels=MEGAPIXEL)
    assert made.order().startswith("run")


@pytest.mark.parametrize(
    "after",
    [
        MemorySettings(max_vram_bytes=60 * GB),
        MemorySettings(min_free_bytes=4 * GB),
        MemorySettings(placement="resident"),
        MemorySettings(prefetch=3, swap_space_bytes=2 * GB, swap_device="cpu"),
    ],
)
def test_settings_under_which_it_would_be_placed_as_it_is_move_nothing(
    after: MemorySettings,
) -> None:
    made = ready_under(NONE, after)
    for _ in range(2):
        made.submit("large")
        assert made.order().startswith("run")
        made.answer()
