"""Working memory: the formula before the first run, the fit after it."""

from hypothesis import given
from hypothesis import strategies as st

from workshop_gpu.conductor.working_memory import Peaks, by_formula, fit

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
