"""Working memory: the formula before the first run, the fit after it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conductor.staging import stage
from workshop_gpu.conductor import effects
from workshop_gpu.conductor.rungs import RESIDENT, Placement
from workshop_gpu.conductor.working_memory import Activations, Peaks, by_formula, fit

GB = 1_000_000_000
MB = 1_000_000
MEGAPIXEL = 1_000_000


def peaks(*measured: tuple[int, int]) -> Peaks:
    made = Peaks()
    for units, peak_bytes in measured:
        made.learn(units, peak_bytes)
    return made


def test_the_formula_makes_sense_from_tiny_models_to_large_ones() -> None:
    tiny = by_formula(40 * MB, 128 * 128)
    assert 5 * MB < tiny < 20 * MB
    large = by_formula(28 * GB, MEGAPIXEL)
    assert 2 * GB < large < 2.5 * GB
    assert by_formula(28 * GB, 4 * MEGAPIXEL) > 3 * large


def test_a_measured_peak_replaces_the_formula_for_its_size_and_smaller_ones() -> None:
    one = peaks((MEGAPIXEL, GB))
    assert one.bytes_for(MEGAPIXEL) == int(1.1 * GB)
    assert one.bytes_for(MEGAPIXEL // 4) == int(1.1 * GB)


def test_a_larger_picture_than_any_measured_gets_more_by_its_pixels() -> None:
    assert peaks((MEGAPIXEL, GB)).bytes_for(2 * MEGAPIXEL) == int(2.5 * GB)


def test_the_largest_peak_of_a_size_counts() -> None:
    measured = peaks((MEGAPIXEL, 2 * GB))
    assert not measured.learn(MEGAPIXEL, GB)
    assert measured.bytes_for(MEGAPIXEL) == int(2.2 * GB)


def test_between_two_sizes_the_line_through_them_counts() -> None:
    two = peaks((MEGAPIXEL, GB), (3 * MEGAPIXEL, 2 * GB))
    assert two.bytes_for(2 * MEGAPIXEL) == int(1.5 * GB * 1.1)


def test_a_peak_off_the_line_is_added_as_safety() -> None:
    straight = peaks((1000, 10 * MB), (3000, 30 * MB), (5000, 50 * MB))
    bent = peaks((1000, 10 * MB), (3000, 45 * MB), (5000, 50 * MB))
    assert straight.bytes_for(4000) == int(44 * MB)
    assert bent.bytes_for(4000) > 49 * MB + 10 * MB


def test_only_so_many_sizes_are_kept() -> None:
    many = peaks(*((units, units) for units in range(1, 200)))
    assert len(many.measured) == 64
    assert 199 in many.measured


sizes = st.dictionaries(st.integers(1, 10**8), st.integers(1, 10**11), min_size=1, max_size=20)


@given(sizes)
def test_no_measured_size_is_ever_promised_less_than_it_took(measured: dict[int, int]) -> None:
    made = Peaks(measured)
    assert all(made.bytes_for(units) >= peak for units, peak in measured.items())


@given(sizes)
def test_the_line_never_falls_and_never_lies_below_what_was_measured(
    measured: dict[int, int],
) -> None:
    line = fit(measured)
    assert line.base_bytes >= 0
    assert line.bytes_per_unit >= 0
    for units, peak in measured.items():
        fitted = line.base_bytes + line.bytes_per_unit * units + line.residual_bytes
        assert fitted >= peak * (1 - 1e-9)


def test_what_comes_beside_a_job_is_counted_in_every_phase_and_never_learned() -> None:
    """A LoRA's bytes: the room for the model's next plain job is not taken to be smaller."""
    plain = Activations(2 * GB, 4 * MEGAPIXEL, (("resident", 3 * GB),))
    beside = Activations(2 * GB, 4 * MEGAPIXEL, (("resident", 3 * GB),), 500 * MB)
    assert beside.encode_bytes - plain.encode_bytes == 500 * MB
    for placement in (RESIDENT, Placement(tiled=True), Placement(sliced=True, tiled=True)):
        assert beside.denoise(placement) - plain.denoise(placement) == 500 * MB
        assert beside.decode(placement) - plain.decode(placement) == 500 * MB
    assert beside.measured(RESIDENT) == int(3.5 * GB)
    assert beside.measured(Placement(tiled=True)) is None


@pytest.mark.parametrize("peak_bytes", [0, 3 * GB])
def test_a_jobs_account_has_what_comes_beside_it(peak_bytes: int) -> None:
    scene = stage()
    scene.load("a")

    def working(beside_bytes: int) -> int:
        """What one job is counted with; its worker measures the peak, or nothing at all."""
        asked = msgspec.structs.replace(scene.job_submitted("a"), beside_bytes=beside_bytes)
        scene.tell(asked)
        (device,) = scene.conductor.snapshot(scene.now).devices
        held = sum(holder.bytes for holder in device.holders if holder.kind == "working")
        assert scene.take_order() == effects.RunJob("gpu0", asked.job, "a")
        measured = peak_bytes and peak_bytes + beside_bytes
        scene.finish(asked.job, 5.0, measured)
        return held

    first, beside, after = working(0), working(500 * MB), working(0)
    learned = int(1.1 * peak_bytes) or first
    assert (beside, after) == (learned + 500 * MB, learned)


def test_each_peak_that_contradicts_the_estimate_is_told_and_none_that_does_not() -> None:
    scene = stage()
    scene.load("a")

    def told(peak_bytes: int) -> list[str]:
        job = scene.submit("a")
        scene.take_order()
        said = scene.finish(job, 5.0, peak_bytes)
        return [each.text for each in said if isinstance(each, effects.Notice)]

    measured = "Working memory of a measured: %s GB, not %s GB (1 × 1048576 pixels)."
    assert told(4 * GB) == [measured % ("4.0", "2.3")]
    assert told(int(4.5 * GB)) == [], "that much was expected, with the safety"
    assert told(7 * GB) == [measured % ("7.0", "5.0")]
    assert told(4 * GB) == [], "the largest of a size counts"
