"""Pins of models whose memory settings cannot work: refused, or told of and not loaded."""

import msgspec
import pytest

from tests.conductor.laddered import LARGE, laddered, notices, ordered
from tests.conductor.staging import GB, Stage, model, stage
from workshop_gpu.conductor import events
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.records import TYPICAL_PIXELS
from workshop_gpu.conductor.rungs import RESIDENT

PINNED = Policy(pinned={"large": True})

IMPOSSIBLE = [
    (MemorySettings(virtual_vram_bytes=20 * GB), "virtual_vram_gb"),
    (MemorySettings(swap_device="gpu7"), "swap_device"),
    (MemorySettings(swap_space_bytes=100 * GB), "swap_space_gb"),
    (MemorySettings(swap_space_bytes=GB // 10), "swap_space_gb"),
    (MemorySettings(max_vram_bytes=GB // 2), "max_vram_gb"),
    (MemorySettings(placement="swap-encoders"), "swap_device"),
]
impossible = pytest.mark.parametrize(("memory", "field"), IMPOSSIBLE)


def pinned(memory: MemorySettings) -> events.ModelFacts:
    """As models.toml has it."""
    return msgspec.structs.replace(laddered(memory=memory), pinned=True)


def words_for_a_job(made: Stage) -> str:
    """For as large a picture as is supposed for a pin."""
    job = made.job_submitted("large", pixels=TYPICAL_PIXELS)
    return made.refused(job).message.rstrip(".")


@impossible
def test_a_pin_of_a_model_that_could_draw_nothing_is_refused_with_the_words_for_jobs(
    memory: MemorySettings, field: str
) -> None:
    made = stage(laddered(memory=memory), model("a"))
    report = made.refused(events.PolicyChanged(PINNED))
    assert (report.kind, report.facts["field"]) == ("invalid_policy", "pinned")
    assert words_for_a_job(made) in report.message
    assert field in report.message
    made.tell(events.PolicyChanged(Policy(pinned={"a": True})))
    assert made.order() == "load a"


@impossible
def test_a_pin_in_models_toml_of_such_a_model_is_told_of_once_and_not_loaded(
    memory: MemorySettings, field: str
) -> None:
    made = stage(pinned(memory), model("a"))
    (told,) = notices(made)
    assert words_for_a_job(made) in told
    assert field in told
    assert made.order() == ""
    made.tell(events.CatalogueChanged((pinned(memory), model("a"), model("b"))))
    assert notices(made) == [told]
    made.tell(events.PolicyChanged(Policy(pinned={"a": True}, patience_s=15.0)))
    assert made.order() == "load a", "it forbids no other pin"


def test_the_pin_holds_as_soon_as_the_settings_are_mended() -> None:
    made = stage(pinned(MemorySettings(virtual_vram_bytes=20 * GB)))
    assert made.order() == ""
    made.tell(events.CatalogueChanged((pinned(MemorySettings()),)))
    assert made.order() == "load large"


def test_a_pin_that_turns_out_to_be_of_no_use_once_it_is_loaded_keeps_nobody_out() -> None:
    """Only the load tells what the model's blocks are."""
    memory = MemorySettings(virtual_vram_bytes=20 * GB)
    unknown = msgspec.structs.replace(pinned(memory), roles=())
    made = stage(unknown, model("a", 70))
    assert ordered(made) == RESIDENT
    made.take_order("gpu0", "load")
    made.tell(events.SlotLoaded("gpu0", "large", unknown.file_bytes, 3.0, roles=LARGE))
    (told,) = notices(made)
    assert "virtual_vram_gb" in told
    made.submit("a")
    assert made.order() == "evict large"


def test_an_impossible_pin_keeps_no_memory_of_another_gpu_from_those_who_borrow() -> None:
    """It would be waited for for ever."""
    borrows = laddered("twin", MemorySettings(placement="swap-encoders", swap_device="gpu1"))
    useless = pinned(MemorySettings(virtual_vram_bytes=20 * GB))
    made = stage(borrows, useless, devices=("gpu0", "gpu1"), gb=24)
    made.submit("twin")
    assert ordered(made).elsewhere


def test_a_rung_that_spoils_a_pin_is_refused() -> None:
    made = stage(pinned(MemorySettings(max_vram_bytes=8 * GB)))
    assert made.order() == "load large"
    policy = Policy(placements={"large": "resident"})
    assert "max_vram_gb" in made.refused(events.PolicyChanged(policy)).message


def test_a_pin_with_too_much_that_stays_free_is_refused_or_told_of_with_the_number() -> None:
    memory = MemorySettings(min_free_bytes=40 * GB)
    made = stage(laddered(memory=memory), gb=24)
    refused = made.refused(events.PolicyChanged(PINNED)).message
    assert "40.0 GB free beside it (min_free_gb)" in refused
    would_do = float(refused.split("lower that to ")[1].split(" GB")[0])
    (told,) = notices(stage(pinned(memory), gb=24))
    assert "min_free_gb" in told
    mended = stage(pinned(MemorySettings(min_free_bytes=int(would_do * GB))), gb=24)
    assert not notices(mended)
    assert mended.order() == "load large"


def test_pins_that_leave_no_room_beside_what_one_of_them_wants_to_stay_free_are_told_of() -> None:
    whole = MemorySettings("resident")
    small = msgspec.structs.replace(laddered("small", whole), pinned=True)

    def told(free_gb: int) -> list[str]:
        memory = MemorySettings("resident", min_free_bytes=free_gb * GB)
        middle = msgspec.structs.replace(laddered("middle", memory), pinned=True)
        return notices(stage(small, middle, gb=40))

    assert not told(20)
    (said,) = told(24)
    assert "cannot be ready together" in said
