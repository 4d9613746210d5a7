"""Numbers as a reader sees them."""

import decimal
import math

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import example, given
from hypothesis import strategies as st

from dp_pipelines.report.numbers import (
    ERROR_BAR,
    axis_numbers,
    error_bar_parts,
    exact_number,
    public_number,
    rounded_cells,
    rounded_parts,
    tick_number,
    with_error_bar,
)
from dp_pipelines.report.range_text import range_cells

ANY = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -0.0, 1e-320, 1e308, -1e308]))


@given(ANY, ANY)
def test_no_value_and_no_error_crash_it(value: float | None, stddev: float | None) -> None:
    text = with_error_bar(value, stddev, grouped=True)
    chosen = stddev is None or math.isnan(stddev)  # among candidates: it has no error bar
    known = value is not None and math.isfinite(value) and (chosen or math.isfinite(ERROR_BAR * stddev))
    assert (text == "-") != known
    assert ("±" in text) == (known and not chosen)
    assert len(text) < 60


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e9))
def test_what_is_shown_is_within_a_tenth_of_the_error_bar(value: float, stddev: float) -> None:
    parts = error_bar_parts(value, stddev)
    assert parts is not None
    bar = ERROR_BAR * stddev
    slack = max(0.06 * bar, 0.5 if bar >= 10 else 0) + 1e-9 * abs(value)
    assert abs(float(parts[0]) - value) <= slack
    assert abs(float(parts[1]) - bar) <= slack


@given(st.floats(0.5, 1e3), st.integers(-16, 5))
def test_a_bar_that_is_not_zero_never_shows_as_zero(value: float, exponent: int) -> None:
    parts = error_bar_parts(value, 10.0**exponent)
    assert parts is not None
    assert float(parts[1]) > 0
    assert abs(float(parts[0]) - value) <= max(0.06 * ERROR_BAR * 10.0**exponent, 0.5 * (exponent >= 0), 1e-14 * value)


def test_a_narrow_mean_gets_the_digits_of_its_bar() -> None:
    assert with_error_bar(1.00000004, 2e-9) == "1.0000000400 ± 0.0000000039"
    assert with_error_bar(1.0, 2e-14) == "1 ± 3.9e-14"
    assert with_error_bar(0.25, 0.0) == "0.25 ± 0"


def test_a_number_that_rounds_to_zero_has_no_sign() -> None:
    assert with_error_bar(-0.3, 100.0) == "0 ± 196"


def test_thousands_are_separated_where_asked() -> None:
    assert with_error_bar(1234567.0, 1000.0, grouped=True) == "1,234,567 ± 1,960"


@given(st.one_of(st.floats(), st.integers(), st.text(), st.none(), st.booleans()))
def test_a_public_number_is_a_number_or_a_dash(value: object) -> None:
    text = public_number(value)
    assert text == "-" or float(text.replace(",", "")) is not None


@given(st.floats(-1e99, 1e99))
def test_a_number_on_an_axis_is_short(value: float) -> None:
    assert len(tick_number(value)) <= 19


@given(st.floats(), st.floats(), st.booleans())
def test_no_value_breaks_a_headline(value: float, stddev: float, whole: bool) -> None:
    parts = rounded_parts(value, stddev, whole=whole)
    assert parts is None or all("nan" not in text and "inf" not in text for text in parts)


@given(st.floats(1.0, 1e8), st.floats(0.01, 1e7), st.booleans())
def test_a_headline_and_its_ends_are_within_a_tenth_of_the_error_bar(value: float, stddev: float, whole: bool) -> None:
    parts = rounded_parts(value, stddev, whole=whole)
    assert parts is not None
    shown, bar, low, high = (float(text.replace(",", "")) for text in parts)
    slack = 0.06 * ERROR_BAR * stddev + (1.0 if whole else 0.0) + 1e-9 * value
    assert abs(shown - value) <= slack
    assert abs(bar - ERROR_BAR * stddev) <= slack
    assert abs(low - (shown - bar)) <= 1e-6 * (value + bar)
    assert abs(high - (shown + bar)) <= 1e-6 * (value + bar)


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=6))
def test_numbers_of_an_axis_are_told_in_one_unit(values: list[float]) -> None:
    texts, word = axis_numbers(values)
    size = {"": 1.0, "million": 1e6, "billion": 1e9, "trillion": 1e12}[word]
    for value, text in zip(values, texts, strict=True):
        assert abs(float(text.replace(",", "")) * size - value) <= 1e-5 * abs(value) + 1e-9 * size


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(9999999999.5)
@example(1e10)
@example(1e-6)
@example(-0.0)
def test_an_exact_number_is_what_csv_has(value: float) -> None:
    assert exact_number(value) == pc.cast(pa.array([value]), pa.string())[0].as_py()


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([None, float("nan"), 0.0]), st.booleans())
def test_a_file_has_all_digits_of_a_number_without_an_error_bar(
    value: float, stddev: float | None, whole: bool
) -> None:
    text, _, low, high = rounded_cells(value, stddev, whole=whole)
    assert text == exact_number(value)
    assert (low, high) == ((text, text) if stddev == 0 else ("", ""))


@given(st.floats(1e15, 1e300) | st.floats(-1e300, -1e15), st.floats(1e-3, 1e300), st.booleans())
@example(1.2345678e16, 1e6, True)
@example(1e15, 1e15, False)
@example(-1.0000000000000002e17, 16.0, True)
def test_large_numbers_keep_their_digits_in_a_file(value: float, stddev: float, whole: bool) -> None:
    text, noise, low, high = rounded_cells(value, stddev, whole=whole)
    middle, bar = decimal.Decimal(value), decimal.Decimal(ERROR_BAR * stddev)
    for cell, exact in ((text, middle), (low, middle - bar), (high, middle + bar)):
        assert abs(decimal.Decimal(cell) - exact) <= (1 if whole else max(bar / 10, 1)) + abs(exact) / 2**53
        assert ("e" in cell) == (abs(exact) >= 1e17)
    assert float(noise) == float(f"{stddev:.1e}") or float(noise) == stddev or abs(float(noise) - stddev) <= 0.5
    assert rounded_cells(1.2345678e16, 1e6, whole=whole) == (
        "12345678000000000", "1000000", "12345677998040000", "12345678001960000",
    )  # fmt: skip


@given(
    st.lists(st.floats(1e-9, 1e308) | st.floats(-1e308, -1e-9), min_size=3, max_size=3).map(sorted)
    | st.lists(st.floats(9e14, 2e17), min_size=3, max_size=3).map(sorted),
    st.booleans(),
)
@example([1.2344123456e16, 1.2345e16, 1.2346123456e16], True)
@example([1e15 + 0.125, 1e15 + 0.25, 1e15 + 0.625], True)
@example([-1.7e308, 0.0, 1.7e308], False)
def test_ranges_in_a_file_are_rounded_outwards(numbers: list[float], whole: bool) -> None:
    low, estimate, high = numbers
    middle, first, last = range_cells(estimate, low, high, whole=whole)
    if high > low:
        assert float(first) <= low
        assert float(last) >= high
    width = min(decimal.Decimal(high) - decimal.Decimal(low), decimal.Decimal(10) ** 308)
    size = width if width else max(abs(low), 1.0) / 10
    for cell, exact in ((middle, estimate), (first, low), (last, high)):
        assert abs(decimal.Decimal(cell) - decimal.Decimal(exact)) <= decimal.Decimal(
            size
        ) / 9 + whole + decimal.Decimal(abs(exact)) / 2**50 + decimal.Decimal("1e-12")
