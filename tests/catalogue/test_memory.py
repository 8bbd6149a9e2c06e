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


@pytest.mark.parametrize(
    ("table", "placement"),
    [
        ('encoders = "cpu", vae = "tiled"', "encoders=cpu,vae=tiled"),
        ('vae = "tiled", encoders = "cpu"', "encoders=cpu,vae=tiled"),
        ('encoders = "staged", vae = "staged"', "staged"),
        ('encoders = "cpu"', "cpu-encoders"),
        ('vae = "resident"', "resident"),
        ("", "resident"),
        ('denoiser = "staged+sliced"', "denoiser=staged+sliced"),
    ],
)
def test_a_table_says_for_each_role_how_it_is_placed(table: str, placement: str) -> None:
    read = parse_models(ENTRY.replace("KEYS", f"placement = {{ {table} }}, max_vram_gb = 9"))
    assert not read.mistakes
    assert read.specs[0].memory.settings().placement == placement


def test_such_a_table_may_have_a_header_of_its_own(tmp_path: Path) -> None:
    text = '[[model]]\nid = "m"\nsource = { folder = "m" }\n[model.memory.placement]\n'
    read = parse_models(f'{text}encoders = "cpu"\nvae = "tiles"\n')
    (mistake,) = read.mistakes
    assert mistake.line == 6
    assert mistake.reason == (
        'vae = "tiles" is not known; it is resident, staged, tiled, staged+tiled'
    )


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ('placement = { encoder = "cpu" }', 'unknown key "encoder" (did you mean "encoders"?)'),
        ("placement = { encoders = 1 }", "encoders must be text, not a whole number"),
        ("placement = 7", "placement must be text or a table, not a whole number"),
        ('placement = { denoiser = "cpu" }', 'denoiser = "cpu" is not known; it is resident, st'),
        ('placement = { vae = "staged+sliced" }', 'vae = "staged+sliced" is not known'),
        ('placement = { encoders = "swap" }', 'name it too, such as swap_device = "cuda:1"'),
        (
            'placement = { encoders = "swap", denoiser = "streamed" }, swap_device = "cuda:1"',
            'write denoiser = "swap"',
        ),
        ('placement = { vae = "tiled" }, prefetch = 2', "prefetch is for the buffers"),
        ('placement = { encoders = "cpu" }, virtual_vram_gb = 3', "streams nothing"),
        ('placement = { vae = "tiled" }, swap_device = "cuda:1"', '"swap-encoders"'),
        ('placement = "encoders=gpu"', "or a table of roles such as { encoders"),
    ],
)
def test_a_mistake_of_such_a_table_has_its_line_and_what_would_do(keys: str, said: str) -> None:
    (mistake,) = parse_models(ENTRY.replace("KEYS", keys)).mistakes
    assert mistake.line == 4
    assert said in mistake.reason


def test_what_the_words_of_a_table_make_use_of_goes_with_it() -> None:
    for keys in (
        'placement = { denoiser = "streamed", vae = "tiled" }, prefetch = 2, virtual_vram_gb = 3',
        'placement = { encoders = "streamed" }, swap_space_gb = 1',
        'placement = { encoders = "swap", vae = "tiled" }, swap_device = "cuda:1"',
        'placement = { encoders = "cpu", denoiser = "swap" }, swap_device = "cuda:1", prefetch = 2',
    ):
        assert not parse_models(ENTRY.replace("KEYS", keys)).mistakes, keys
