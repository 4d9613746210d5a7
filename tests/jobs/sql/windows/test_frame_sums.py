"""Exact sums and stable places: the arithmetic below windows, against Python's own whole numbers and fractions.

In: awkward numbers. Out: equal sums. Holds: floats are compared exactly. Not covered: frames (`test_unit_windows`).
"""

import decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.jobs.sql.windows import frames
from dp_pipelines.jobs.sql.windows.frame_sums import Sums, digits_of


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8))
def test_a_sum_of_integers_is_exact_and_its_float_the_nearest(numbers: list[int]) -> None:
    digits, _ = digits_of(pa.array(numbers, pa.int64()))
    sums = Sums(digits, np.array([0]), np.array([len(numbers)]))
    assert sums.decimals(pa.decimal128(38, 0), np.array([True])).to_pylist() == [decimal.Decimal(sum(numbers))]
    assert sums.floats().tolist() == [float(sum(numbers))]


@given(st.lists(st.floats(-(2.0**63), 2.0**63) | st.sampled_from([0.5, 2.0**53, 1.0, 2.0**-52]), max_size=8))
def test_a_sum_of_floats_is_the_float_nearest_to_the_exact_sum(numbers: list[float]) -> None:
    digits, _ = digits_of(pa.array(numbers, pa.float64()))
    sums = Sums(digits, np.array([0]), np.array([len(numbers)]))
    assert sums.floats().tolist() == [float(sum(round(Fraction(number) * 2**64) for number in numbers))]


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=6))
def test_a_sum_of_decimals_that_has_too_many_digits_is_null(numbers: list[int]) -> None:
    array = pa.array([decimal.Decimal(number) for number in numbers], pa.decimal128(38, 0))
    sums = Sums(digits_of(array)[0], np.array([0]), np.array([len(numbers)]))
    expected = decimal.Decimal(sum(numbers)) if abs(sum(numbers)) < 10**38 else None
    assert sums.decimals(pa.decimal128(38, 0), np.array([True])).to_pylist() == [expected]
    assert sums.floats().tolist() == [float(sum(numbers))]


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2), max_size=9))
def test_places_are_sorted_stably_whatever_fits_into_a_word(pairs: list[list[int]]) -> None:
    columns = [np.array([pair[c] for pair in pairs], np.int64) for c in (0, 1)]
    expected = sorted(range(len(pairs)), key=lambda place: (pairs[place][0], pairs[place][1]))
    assert frames.sorted_places(columns).tolist() == expected
