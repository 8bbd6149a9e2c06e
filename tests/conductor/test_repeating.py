"""Pictures that are made again: in the manner in which they were made, or not at all."""

import msgspec
import pytest

from tests.conductor.laddered import laddered, loaded, ordered
from tests.conductor.staging import GB, MEGAPIXEL, Stage, stage
from workshop_gpu.conductor import events
from workshop_gpu.conductor.ladder import RUNGS
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.rungs import (
    ENCODERS,
    EXACT,
    MANNERS,
    RESIDENT,
    Placement,
    is_manner,
    manner_in_words,
)


def repeat(manner: str, model: str = "large", pixels: int = MEGAPIXEL) -> events.JobSubmitted:
    request = events.JobSubmitted("again", "ada", "k-ada", model, 28, pixels)
    return msgspec.structs.replace(request, manner=manner)


def placed_as(made: Stage, rung: str, device: str = "gpu0") -> None:
    """The model is ready on this rung."""
    made.tell(msgspec.structs.replace(made.job_submitted("large"), placement=rung))
    loaded(made, device)
    made.answer(device)


def test_each_rung_has_a_manner_that_can_be_asked_for() -> None:
    for rung in RUNGS:
        assert is_manner(rung.placement.manner)
        assert rung.placement.exact == (rung.placement.manner == EXACT)
    assert Placement(on_cpu=(ENCODERS,), tiled=True).manner == "tiled+cpu-encoders"
    assert not any(map(is_manner, ("", "tiles", "tiled+", "cpu-encoders+tiled", "tiled+tiled")))


def test_a_manner_is_told_in_words() -> None:
    assert manner_in_words("tiled+sliced") == "with VAE tiling and attention slicing"
    assert all(words in manner_in_words(EXACT) for words in MANNERS.values())


@pytest.mark.parametrize("rung", ["resident", "all-streamed", "tiled", "cpu-encoders", "sliced"])
def test_the_model_is_placed_for_it_wherever_it_is(rung: str) -> None:
    """A placement that is as good already is kept."""
    made = stage(laddered())
    placed_as(made, rung)
    before = made.conductor.snapshot(made.now).slots[0].placement
    made.tell(repeat("cpu-encoders"))
    if rung == "cpu-encoders":
        assert made.order() == "run again", before
        return
    assert ordered(made).manner == "cpu-encoders"
    loaded(made)
    assert made.order() == "run again"


@pytest.mark.parametrize("manner", ["cpu-encoders", ""], ids=["repeated", "named"])
def test_a_model_on_a_card_too_small_for_it_so_is_loaded_on_a_larger_one(manner: str) -> None:
    """There is room to run where the model is ready, but not in the way that is asked for."""
    made = stage(laddered(), devices=("gpu0", "gpu1"), gb=12)
    made.tell(events.WorkerDied("gpu0", "it was killed"))
    placed_as(made, "streamed-both", "gpu1")
    made.ready("gpu0", 80.0)
    job = repeat(manner, pixels=MEGAPIXEL // 16)
    made.tell(job if manner else msgspec.structs.replace(job, placement="cpu-encoders"))
    assert ordered(made, "gpu0").manner == "cpu-encoders"
    loaded(made, "gpu0")
    assert made.order("gpu0") == "run again"


def test_a_placement_that_only_moves_weights_repeats_all_others_like_it() -> None:
    made = stage(laddered())
    placed_as(made, "all-streamed")
    made.tell(repeat(EXACT))
    loaded(made) if made.order().startswith("load") else None
    assert made.order() == "run again"


def test_after_tiles_an_exact_picture_brings_the_model_back() -> None:
    made = stage(laddered())
    placed_as(made, "tiled")
    made.tell(repeat(EXACT))
    assert ordered(made) == RESIDENT


def test_a_model_that_is_placed_otherwise_by_the_instructor_repeats_nothing_else() -> None:
    made = stage(laddered(memory=MemorySettings(placement="tiled")))
    report = made.refused(repeat(EXACT))
    assert report.kind == "not_repeatable"
    assert 'placed as "tiled" only' in report.message
    assert "exactly=False" in report.message
    made.tell(repeat("tiled"))
    assert ordered(made).tiled


def test_what_needs_more_memory_so_than_there_is_is_refused_with_the_numbers() -> None:
    made = stage(laddered(), gb=20)
    large = 16 * MEGAPIXEL
    report = made.refused(repeat(EXACT, pixels=large))
    assert report.kind == "not_repeatable"
    needed, most = report.facts["needed_bytes"], report.facts["largest_bytes"]
    assert isinstance(needed, int)
    assert isinstance(most, int)
    assert needed > most > 0
    made.tell(repeat("tiled+cpu-encoders", pixels=large))
    assert ordered(made).manner == "tiled+cpu-encoders"


def test_what_the_models_cap_leaves_no_room_for_so_can_be_drawn_otherwise() -> None:
    """It is not the settings that are wrong: with them the model draws in other manners."""
    made = stage(laddered(memory=MemorySettings(max_vram_bytes=12 * GB)))
    report = made.refused(repeat("cpu-encoders"))
    assert report.kind == "not_repeatable"
    assert "max_vram_gb of the model allows 12.0 GB" in report.message
    assert "exactly=False" in report.message
    made.tell(repeat(EXACT))
    assert ordered(made).manner == EXACT


def test_a_cap_too_small_for_it_so_is_told_to_one_that_waits() -> None:
    made = stage(laddered(), laddered("small"))
    made.submit("small")
    made.tell(repeat("cpu-encoders"))
    memory = MemorySettings(max_vram_bytes=12 * GB)
    made.tell(events.CatalogueChanged((laddered(memory=memory), laddered("small"))))
    error = made.job("again").error
    assert error is not None
    assert error.kind == "not_repeatable"


def test_a_rung_that_was_named_with_the_job_is_told_to_be_what_draws_otherwise() -> None:
    made = stage(laddered())
    asked = msgspec.structs.replace(repeat("tiled"), placement="staged")
    assert '"staged", which was named with the job' in made.refused(asked).message
    made.tell(msgspec.structs.replace(asked, placement=""))
    assert ordered(made).manner == "tiled"


def test_a_model_with_one_placement_repeats_what_was_drawn_in_it() -> None:
    made = stage(events.ModelFacts("plain", file_bytes=GB))
    assert made.refused(repeat("tiled", "plain")).kind == "not_repeatable"
    made.tell(repeat(EXACT, "plain"))
    made.settle()
    assert made.state("again") == "done"


def test_one_that_waits_is_told_when_it_can_never_be() -> None:
    """Its model is placed by name from now on, and nothing of the kind is possible any more."""
    made = stage(laddered(), laddered("small"))
    made.submit("small")
    made.tell(repeat("tiled"))
    memory = MemorySettings(placement="resident")
    made.tell(events.CatalogueChanged((laddered(memory=memory), laddered("small"))))
    error = made.job("again").error
    assert error is not None
    assert error.kind == "not_repeatable"
