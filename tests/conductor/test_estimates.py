"""Bytes and seconds, before and after they were measured."""

import pytest

from workshop_gpu.conductor.estimates import (
    Estimates,
    bytes_by_name,
    contradicts,
    working_by_formula,
)
from workshop_gpu.conductor.events import ModelFacts

GB = 1_000_000_000
MB = 1_000_000
MEGAPIXEL = 1_000_000


def test_weights_are_explicit_then_measured_then_by_file_then_by_name() -> None:
    estimates = Estimates()
    assert estimates.weights_bytes(ModelFacts("sdxl-base")) == 7 * GB
    assert estimates.weights_bytes(ModelFacts("m", file_bytes=5 * GB)) == 5 * GB
    estimates.learn_weights("m", 4 * GB)
    assert estimates.weights_bytes(ModelFacts("m", file_bytes=5 * GB)) == 4 * GB
    explicit = ModelFacts("m", file_bytes=5 * GB, explicit_bytes=6 * GB)
    assert estimates.weights_bytes(explicit) == 6 * GB


def test_an_explicit_figure_below_the_measured_one_is_not_believed() -> None:
    estimates = Estimates()
    estimates.learn_weights("m", 28 * GB)
    assert estimates.weights_bytes(ModelFacts("m", explicit_bytes=8 * GB)) == 28 * GB


@pytest.mark.parametrize(
    ("name", "size_bytes"),
    [
        ("llama-8b-instruct", 16 * GB),
        ("tiny-1.5B", 3 * GB),
        ("FLUX.1-dev", 34 * GB),
        ("mine", 6 * GB),
    ],
)
def test_a_name_says_something_of_the_size(name: str, size_bytes: int) -> None:
    assert bytes_by_name(name) == size_bytes


def test_the_formula_makes_sense_from_tiny_models_to_large_ones() -> None:
    tiny = working_by_formula(40 * MB, 128 * 128, 1)
    assert 5 * MB < tiny < 20 * MB
    large = working_by_formula(28 * GB, MEGAPIXEL, 1)
    assert 2 * GB < large < 2.5 * GB
    assert working_by_formula(28 * GB, MEGAPIXEL, 4) > 3 * large


def test_a_measured_peak_replaces_the_formula_for_its_size_and_smaller_ones() -> None:
    estimates = Estimates()
    assert estimates.learn_working("m", MEGAPIXEL, 1, GB)
    assert estimates.working_bytes("m", 28 * GB, MEGAPIXEL, 1) == int(1.1 * GB)
    assert estimates.working_bytes("m", 28 * GB, MEGAPIXEL // 4, 1) == int(1.1 * GB)


def test_a_larger_picture_than_any_measured_gets_more_by_its_pixels() -> None:
    estimates = Estimates()
    estimates.learn_working("m", MEGAPIXEL, 1, GB)
    assert estimates.working_bytes("m", 28 * GB, MEGAPIXEL, 2) == int(2.5 * GB)


def test_the_largest_peak_of_a_size_counts() -> None:
    estimates = Estimates()
    estimates.learn_working("m", MEGAPIXEL, 1, 2 * GB)
    assert not estimates.learn_working("m", MEGAPIXEL, 1, GB)
    assert estimates.working_bytes("m", 28 * GB, MEGAPIXEL, 1) == int(2.2 * GB)


def test_nothing_is_learned_from_what_was_not_measured() -> None:
    estimates = Estimates()
    estimates.learn_weights("m", 0)
    assert not estimates.learn_working("m", MEGAPIXEL, 1, 0)
    estimates.learn_load("m", GB, 0.0)
    estimates.learn_run("m", MEGAPIXEL, 0, 5.0)
    assert estimates.load_s("m", GB) is None
    assert estimates.run_s("m", MEGAPIXEL, 20) is None


def test_loads_of_other_models_are_expected_by_their_bytes() -> None:
    estimates = Estimates()
    estimates.learn_load("m", 10 * GB, 5.0)
    assert estimates.load_s("m", 10 * GB) == 5.0
    assert estimates.load_s("other", 20 * GB) == pytest.approx(10.0)


def test_runs_of_other_sizes_are_expected_by_their_pixels() -> None:
    estimates = Estimates()
    estimates.learn_run("m", MEGAPIXEL, 10, 2.0)
    assert estimates.run_s("m", MEGAPIXEL, 20) == pytest.approx(4.0)
    assert estimates.run_s("m", MEGAPIXEL // 4, 20) == pytest.approx(1.0)


def test_a_contradiction_is_more_than_a_tenth_either_way() -> None:
    assert contradicts(28 * GB, 8 * GB)
    assert contradicts(8 * GB, 28 * GB)
    assert not contradicts(105, 100)
