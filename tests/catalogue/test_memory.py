"""What models.toml may say of a model's memory, before the model and the card are known."""

from pathlib import Path

import pytest

from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.catalogue.toml_file import parse_models

ENTRY = '[[model]]\nid = "m"\nsource = { folder = "m" }\nmemory = { KEYS }\n'


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ("virtual_vram_gb = -1", "virtual_vram_gb"),
        ("virtual_vram_gb = inf", "virtual_vram_gb"),
        ("swap_space_gb = -0.5", "swap_space_gb"),
        ("max_vram_gb = nan", "max_vram_gb"),
        ("min_free_gb = -2", "min_free_gb"),
        ("prefetch = 0", "prefetch"),
        ('placement = "turbo"', "placement"),
        ('virtual_vram_gb = 4, placement = "resident"', "virtual_vram_gb"),
        ('virtual_vram_gb = 4, placement = "aggressive"', "virtual_vram_gb"),
        ('placement = "swap-encoders"', "swap_device"),
        ('placement = "swap-both", swap_device = "cpu"', "swap_device"),
    ],
)
def test_a_value_that_cannot_be_is_a_mistake_with_its_line(keys: str, field: str) -> None:
    read = parse_models(ENTRY.replace("KEYS", keys))
    (mistake,) = read.mistakes
    assert mistake.line == 4
    assert field in mistake.reason


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ('placement = "resident", swap_space_gb = 1', "swap_space_gb"),
        ('placement = "staged", swap_space_gb = 1', "swap_space_gb"),
        ('placement = "none", prefetch = 3', "prefetch"),
        ('placement = "swap-encoders", swap_device = "cuda:1", prefetch = 3', "prefetch"),
        ('placement = "resident", swap_device = "cuda:1"', '"swap-encoders"'),
        ('placement = "all-streamed", swap_device = "cpu:1"', '"swap-streamed"'),
    ],
)
def test_a_setting_that_the_named_rung_makes_no_use_of_is_a_mistake_with_its_line(
    keys: str, said: str
) -> None:
    (mistake,) = parse_models(ENTRY.replace("KEYS", keys)).mistakes
    assert mistake.line == 4
    assert said in mistake.reason
    assert "is for" in mistake.reason


def test_a_rung_that_takes_another_gpu_goes_with_its_name() -> None:
    keys = 'placement = "swap-encoders", swap_device = "cuda:1"'
    assert not parse_models(ENTRY.replace("KEYS", keys)).mistakes


@pytest.mark.parametrize("placement", ["auto", "staged-streamed", "layer_streaming"])
def test_what_is_streamed_in_any_case_goes_with_rungs_that_stream(placement: str) -> None:
    keys = f'placement = "{placement}", virtual_vram_gb = 4'
    assert not parse_models(ENTRY.replace("KEYS", keys)).mistakes


@pytest.mark.parametrize(
    "keys",
    [
        'placement = "auto", swap_space_gb = 1, prefetch = 3, swap_device = "cuda:1"',
        'swap_space_gb = 1, prefetch = 3, swap_device = "cuda:1"',
        'placement = "streamed-encoders", swap_space_gb = 1, prefetch = 3',
        'placement = "layer_streaming", swap_space_gb = 1, swap_device = "cpu"',
        'placement = "swap-both", swap_space_gb = 1, prefetch = 3, swap_device = "cuda:1"',
        'placement = "resident", prefetch = 1, max_vram_gb = 9, min_free_gb = 1',
    ],
)
def test_settings_go_with_the_rungs_that_make_use_of_them(keys: str) -> None:
    assert not parse_models(ENTRY.replace("KEYS", keys)).mistakes


def test_all_of_them_together_are_fine() -> None:
    keys = (
        'placement = "auto", virtual_vram_gb = 4, swap_space_gb = 1.5, swap_device = "cpu", '
        "max_vram_gb = 16, prefetch = 2, min_free_gb = 0.5"
    )
    read = parse_models(ENTRY.replace("KEYS", keys))
    assert not read.mistakes
    (spec,) = read.specs
    assert spec.memory.settings().max_vram_bytes == 16_000_000_000


@pytest.mark.parametrize(
    ("keys", "placement"),
    [
        ("", "resident"),
        ("max_vram_gb = 16", "resident"),
        ("prefetch = 2, min_free_gb = 1", "resident"),
        ('swap_device = "cpu"', "resident"),
        ('placement = ""', "resident"),
        ("virtual_vram_gb = 4", "auto"),
        ('placement = "auto"', "auto"),
        ('placement = "auto", max_vram_gb = 16', "auto"),
        ('placement = "staged"', "staged"),
    ],
)
def test_the_default_placement_counts_where_models_toml_does_not_say_one(
    keys: str, placement: str, tmp_path: Path
) -> None:
    file = tmp_path / "models.toml"
    file.write_text(ENTRY.replace("KEYS", keys))
    catalogue = Catalogue(file, default_placement="resident")
    catalogue.load()
    (facts,) = catalogue.facts()
    assert not catalogue.problems
    assert facts.memory.placement == placement
    alone = Catalogue(file)
    alone.load()
    named = placement if placement != "resident" else "auto"
    assert alone.facts()[0].memory.placement == named
