"""Bytes and seconds, before and after they were measured."""

import msgspec
import pytest

from workshop_gpu.conductor.estimates import Estimates, bytes_by_name, contradicts
from workshop_gpu.conductor.events import ModelFacts, PartBytes
from workshop_gpu.conductor.learned import Learned

GB = 1_000_000_000
MB = 1_000_000
MEGAPIXEL = 1_000_000


def test_weights_are_measured_until_then_explicit_then_by_file_then_by_name() -> None:
    estimates = Estimates()
    assert estimates.weights_bytes(ModelFacts("sdxl-base")) == 7 * GB
    assert estimates.weights_bytes(ModelFacts("m", file_bytes=5 * GB)) == 5 * GB
    explicit = ModelFacts("m", file_bytes=5 * GB, explicit_bytes=6 * GB)
    assert estimates.weights_bytes(explicit) == 6 * GB
    estimates.learn_weights("m", 4 * GB)
    assert estimates.weights_bytes(ModelFacts("m", file_bytes=5 * GB)) == 4 * GB


@pytest.mark.parametrize("explicit_gb", [8, 60], ids=["too small", "too large"])
def test_an_explicit_figure_is_not_believed_once_the_model_was_measured(explicit_gb: int) -> None:
    estimates = Estimates()
    estimates.learn_weights("m", 28 * GB)
    assert estimates.weights_bytes(ModelFacts("m", explicit_bytes=explicit_gb * GB)) == 28 * GB


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


def test_a_batch_that_never_ran_is_unknown_and_then_has_times_of_its_own() -> None:
    estimates = Estimates()
    estimates.learn_run("m", MEGAPIXEL, 10, 2.0)
    assert estimates.run_s("m", MEGAPIXEL, 10, batch=2) is None
    estimates.learn_run("m", MEGAPIXEL, 10, 2.5, batch=2)
    assert estimates.run_s("m", MEGAPIXEL, 20, batch=2) == pytest.approx(5.0)
    assert estimates.run_s("m", MEGAPIXEL, 10) == pytest.approx(2.0)


def test_what_was_learned_survives_as_json() -> None:
    first = Estimates()
    first.learn_weights("m", 28 * GB, 30 * GB, (PartBytes("vae", GB),))
    first.learn_working("m", MEGAPIXEL, 2, 3 * GB)
    first.learn_load("m", 28 * GB, 6.5)
    first.learn_run("m", MEGAPIXEL, 10, 2.0, batch=2)
    kept = msgspec.json.decode(msgspec.json.encode(first.learned()), type=Learned)
    second = Estimates(kept)
    facts = ModelFacts("m", file_bytes=30 * GB)
    assert second.learned() == first.learned()
    assert second.weights_bytes(facts) == 28 * GB
    assert second.parts(facts) == (PartBytes("vae", GB),)
    assert second.working_bytes("m", 28 * GB, MEGAPIXEL, 2) == int(3.3 * GB)
    assert second.load_s("m", 28 * GB) == 6.5
    assert second.run_s("m", MEGAPIXEL, 10, batch=2) == pytest.approx(2.0)


def test_a_measurement_of_other_files_than_those_on_disk_says_nothing() -> None:
    estimates = Estimates()
    estimates.learn_weights("m", 28 * GB, file_bytes=30 * GB)
    assert estimates.weights_bytes(ModelFacts("m", file_bytes=30 * GB)) == 28 * GB
    assert estimates.weights_bytes(ModelFacts("m", file_bytes=5 * GB)) == 5 * GB


def test_models_with_one_denoiser_learn_from_each_other() -> None:
    estimates = Estimates()
    for name in ("large", "turbo"):
        estimates.know(ModelFacts(name, denoiser="sd3-large"))
    estimates.learn_working("large", MEGAPIXEL, 1, GB)
    assert estimates.working_bytes("turbo", 28 * GB, MEGAPIXEL, 1) == int(1.1 * GB)
    assert estimates.working_bytes("other", 28 * GB, MEGAPIXEL, 1) > 2 * GB


def test_each_placement_has_peaks_of_its_own() -> None:
    estimates = Estimates()
    estimates.learn_working("m", MEGAPIXEL, 1, GB)
    formula = Estimates().working_bytes("m", 28 * GB, MEGAPIXEL, 1)
    assert estimates.working_bytes("m", 28 * GB, MEGAPIXEL, 1, "streamed") == formula
