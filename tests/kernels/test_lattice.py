"""The lattice: every float becomes an integer within its declared ends, and exact where it can be."""

import decimal
import functools
import math
import pickle
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.lattice import (
    SUMMAND_BITS,
    SUMMAND_HEADROOM_BITS,
    VALUE_BITS,
    Floats,
    Lattice,
    SummandLattice,
    logarithms,
    numbers_and_nulls,
)
from dp_pipelines.kernels.statistics import ValueSum

EXTREMES = [0.0, -0.0, 5e-324, -5e-324, 1e-300, 1.0, -1.0, 2.0**53 + 2, 1e300, -1e300, 1.7e308, math.inf, -math.inf]
VALUES = st.sampled_from(EXTREMES) | st.floats(allow_nan=False)
BOUNDS = st.sampled_from([0.0, 1e-300, -1e-300, 5e-324, 1.0, 200.0, -0.1, 1e150, -1e150, 1e300, -1e300]) | st.floats(
    min_value=-1e300, max_value=1e300
)


@st.composite
def lattices(draw: st.DrawFn) -> Lattice:
    low, high = sorted((draw(BOUNDS), draw(BOUNDS)))
    make = draw(st.sampled_from([Lattice.for_values, Lattice.for_squares]))
    try:
        return make(low, high, centred=draw(st.booleans()))
    except RequestError:
        assume(False)
        raise


def exactly(lattice: Lattice, value: float) -> Fraction:
    """What a value would be on the lattice, without rounding."""
    moved = Fraction(min(max(value, lattice.low), lattice.high)) - Fraction(lattice.centre)
    if lattice.square:
        moved = moved * moved - Fraction(lattice.square_centre)
    return moved * Fraction(2) ** lattice.exponent


@given(lattices(), st.lists(VALUES, min_size=1))
def test_integers_lie_within_their_declared_ends(lattice: Lattice, values: list[float]) -> None:
    integers = lattice.integers(np.array(values))
    assert integers.dtype == np.int64
    assert lattice.lowest <= integers.min()
    assert integers.max() <= lattice.highest
    assert lattice.largest == max(-lattice.lowest, lattice.highest, abs(lattice.lowest), abs(lattice.highest))


@given(lattices())
def test_the_largest_integer_needs_thirty_bits_and_no_more(lattice: Lattice) -> None:
    assert 1 << (VALUE_BITS - 2) <= lattice.largest <= 1 << VALUE_BITS


@given(lattices(), VALUES)
def test_an_integer_is_the_nearest_to_the_value(lattice: Lattice, value: float) -> None:
    # Moving and squaring round in float64, which is 2**23 times finer than the lattice: one step covers it all. Squares
    # of the smallest floats lose their bits before they are scaled.
    assume(not lattice.square or max(abs(lattice.low), abs(lattice.high)) > 1e-140)
    assert abs(int(lattice.integers(np.array([value]))[0]) - exactly(lattice, value)) <= 1


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(("low", "high"), [(-5.0, 3.0), (0.0, 200.0), (-3.0, -1.0), (0.1, 0.7), (-1e150, 1e150)])
def test_a_grid_of_values_is_met_to_one_step(low: float, high: float, centred: bool) -> None:
    for lattice in (Lattice.for_values(low, high, centred=centred), Lattice.for_squares(low, high, centred=centred)):
        grid = [*np.linspace(low * 1.5, high * 1.5, 61).tolist(), *EXTREMES]
        integers = lattice.integers(np.array(grid)).tolist()
        for value, integer in zip(grid, integers, strict=True):
            assert abs(integer - exactly(lattice, value)) <= 1
        ends = [exactly(lattice, end) for end in (low, high, min(max(lattice.centre, low), high))]
        assert (lattice.lowest, lattice.highest) == (round(min(ends)), round(max(ends)))


@given(lattices(), VALUES, VALUES)
def test_integers_of_values_grow_with_the_values(lattice: Lattice, one: float, other: float) -> None:
    assume(not lattice.square)
    low, high = lattice.integers(np.array(sorted((one, other))))
    assert low <= high


@given(st.lists(st.integers(-(2**29), 2**29), min_size=1), st.sampled_from([2.0**29, 2.0**28 + 1, 7.0, 100.0]))
def test_sums_of_whole_numbers_are_exact(numbers: list[int], bound: float) -> None:
    lattice = Lattice.for_values(-bound, bound)
    total = int(lattice.integers(np.array(numbers, np.float64)).sum())
    assert total * Fraction(lattice.step) == sum(max(min(n, int(bound)), -int(bound)) for n in numbers)


@given(st.lists(st.integers(0, 2**14), min_size=1))
def test_sums_of_squares_of_whole_numbers_are_exact(numbers: list[int]) -> None:
    lattice = Lattice.for_squares(0.0, 2.0**14)
    total = int(lattice.integers(np.array(numbers, np.float64)).sum())
    assert total * Fraction(lattice.step) == sum(n * n for n in numbers)


def test_a_lattice_too_coarse_for_the_numbers_would_be_found() -> None:
    lattice = Lattice.for_values(-(2.0**32), 2.0**32)
    assert int(lattice.integers(np.array([1.0]))[0]) * lattice.step != 1.0


@pytest.mark.parametrize(
    ("low", "high"),
    [(1e-300, 1e-300), (-1e-300, 1e-300), (0.0, 1e-301), (-1e300, 1e300), (1e300, 1e300), (-5e-324, 1e300), (2.0, 2.0)],
)
def test_values_at_the_ends_of_the_exponents_have_a_lattice(low: float, high: float) -> None:
    lattice = Lattice.for_values(low, high)
    ends = lattice.integers(np.array([low, high, -math.inf, math.inf]))
    assert ends.tolist() == [lattice.lowest, lattice.highest] * 2
    assert lattice.step == float(Fraction(2) ** -lattice.exponent) > 0
    assert lattice.highest * lattice.step == pytest.approx(high, rel=1e-8)


def test_equal_bounds_make_every_value_that_one() -> None:
    assert set(Lattice.for_values(3.0, 3.0).integers(np.array(EXTREMES)).tolist()) == {3 << 28}
    with pytest.raises(RequestError, match="min_value, max_value"):
        Lattice.for_values(3.0, 3.0, centred=True)


@pytest.mark.parametrize("make", [Lattice.for_values, Lattice.for_squares])
@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (math.nan, 1.0), (0.0, math.inf), (-math.inf, math.inf)])
def test_an_empty_or_endless_range_has_no_lattice(make: object, low: float, high: float) -> None:
    with pytest.raises(RequestError, match=r"min_value, max_value: .*; choose finite bounds"):
        make(low, high)  # type: ignore[operator]


def test_squares_that_overflow_are_refused_at_construction() -> None:
    for low, high in [(-1e300, 1e300), (0.0, 1e155), (-1.4e154, 1.0)]:
        with pytest.raises(RequestError, match="for a variance: its square"):
            Lattice.for_squares(low, high)
    assert Lattice.for_squares(-1.3e154, 1.0).largest > 0


def test_ranges_whose_step_would_vanish_are_refused_at_construction() -> None:
    for low, high in [(0.0, 5e-324), (-1e-302, 1e-302)]:
        with pytest.raises(RequestError, match="overflows or vanishes"):
            Lattice.for_values(low, high)
        with pytest.raises(RequestError, match="between"):
            SummandLattice.for_sums(low, high)
    with pytest.raises(RequestError, match="overflows or vanishes"):
        Lattice.for_squares(0.0, 1e-155)


def test_centred_sums_have_half_the_sensitivity_and_centred_squares_too() -> None:
    for make in (Lattice.for_values, Lattice.for_squares):
        raw, centred = make(0.0, 100.0), make(0.0, 100.0, centred=True)
        assert centred.largest * centred.step <= raw.largest * raw.step / 2
    values = Lattice.for_values(0.0, 100.0, centred=True)
    assert (values.offset, values.centre_used) == (50.0, True)
    squares = Lattice.for_squares(0.0, 100.0, centred=True)
    assert (squares.offset, squares.centre_used) == (1250.0, True)
    assert not Lattice.for_values(-1.0, 1.0, centred=True).centre_used


# Lattices of what is made of the values: logarithms.

POSITIVE = st.floats(min_value=5e-324, max_value=1.7e308)


@given(st.lists(VALUES | st.floats(0.25, 4.0), min_size=1))
def test_logarithms_are_those_of_real_numbers_to_some_units_in_the_last_place(values: list[float]) -> None:
    for value, found in zip(values, logarithms(np.array(values)).tolist(), strict=True):
        truth = decimal.Decimal(min(max(value, 5e-324), 1.7976931348623157e308)).ln(decimal.Context(prec=40))
        assert abs(decimal.Decimal(found) - truth) <= 3 * decimal.Decimal(math.ulp(float(truth)))


@given(st.lists(POSITIVE, min_size=1, max_size=40), st.integers(1, 7), st.integers(1, 3))
def test_a_logarithm_is_the_same_to_the_last_bit_wherever_its_value_stands(
    values: list[float], before: int, step: int
) -> None:
    alone = [logarithms(np.array([value]))[0] for value in values]
    among = np.repeat(np.array([*[2.0] * before, *values, *[3.0] * before]), step)[::step]
    assert logarithms(among)[before:-before].tolist() == alone
    assert logarithms(among[::-1])[before:-before].tolist() == alone[::-1]


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (0.1, "-0x1.26bb1bbb55515p+1"),
        (0.7071067811865475, "-0x1.62e42fefa39f1p-2"),
        (1.5, "0x1.9f323ecbf984cp-2"),
        (1000.0, "0x1.ba18a998fffa0p+2"),
        (5e-324, "-0x1.74385446d71c3p+9"),
    ],
)
def test_a_logarithm_has_the_same_bits_on_every_machine(value: float, bits: str) -> None:
    assert float(logarithms(np.array([value]))[0]).hex() == bits


@given(BOUNDS, BOUNDS, st.booleans(), st.lists(VALUES, min_size=1))
def test_integers_of_logarithms_lie_within_their_declared_ends(
    one: float, other: float, centred: bool, values: list[float]
) -> None:
    low, high = sorted(max(abs(bound), 1e-300) for bound in (one, other))
    assume(high > low * (1 + 1e-12))
    lattice = Lattice.for_values(low, high, centred=centred, through=logarithms)
    integers = lattice.integers(np.array([*values, low, high, 0.0, -5.0, math.inf]))
    assert lattice.lowest <= integers.min()
    assert integers.max() <= lattice.highest
    assert integers[-5:].tolist() == [lattice.lowest, lattice.highest, lattice.lowest, lattice.lowest, lattice.highest]
    assert 1 << (VALUE_BITS - 2) <= lattice.largest <= 1 << VALUE_BITS


@given(st.sampled_from([(0.5, 20.0), (1e-300, 1e300), (1.0, 1.01), (1e6, 2e6)]), st.booleans(), VALUES)
def test_an_integer_is_the_nearest_to_the_logarithm(ends: tuple[float, float], centred: bool, value: float) -> None:
    lattice = Lattice.for_values(*ends, centred=centred, through=logarithms)
    truth = decimal.Decimal(min(max(value, ends[0]), ends[1])).ln(decimal.Context(prec=40))
    exact = (Fraction(truth) - Fraction(lattice.centre)) * Fraction(2) ** lattice.exponent
    assert abs(int(lattice.integers(np.array([value]))[0]) - exact) <= 1


def test_a_lattice_of_logarithms_travels_and_is_no_lattice_of_values() -> None:
    lattice = Lattice.for_values(1.0, 9.0, through=logarithms)
    assert pickle.loads(pickle.dumps(lattice)) == lattice
    assert lattice != Lattice.for_values(lattice.low, lattice.high)
    assert (lattice.form, Lattice.for_squares(1.0, 9.0).form) == ("logarithms", "squares")


def values(numbers: Floats) -> Floats:
    """A function whose bare name is that of a plain sum."""
    return np.sqrt(numbers)


def test_a_function_of_another_module_is_named_with_it_and_one_of_no_module_is_refused() -> None:
    plain, own = Lattice.for_values(0.0, 2.0), Lattice.for_values(0.0, 4.0, through=values)
    assert (plain.low, plain.high) == (own.low, own.high)
    assert ValueSum(column="a", lattice=plain).name != ValueSum(column="a", lattice=own).name
    for nameless in (lambda numbers: numbers, functools.partial(values)):
        with pytest.raises(ValueError, match="a module holds"):
            Lattice.for_values(0.0, 4.0, through=nameless)


@given(BOUNDS, BOUNDS, st.lists(VALUES, min_size=1))
def test_summands_fit_a_batch_and_clip_bounds_fit_the_clip(one: float, other: float, values: list[float]) -> None:
    low, high = sorted((one, other))
    assume(max(-low, high) > 1e-301)
    lattice = SummandLattice.for_sums(low, high)
    assert 1 << (SUMMAND_BITS - 1) <= lattice.largest <= 1 << SUMMAND_BITS
    assert lattice.clip_bounds[0] <= lattice.clip_bounds[1]
    integers = lattice.integers(np.array(values))
    most = 1 << (SUMMAND_BITS + SUMMAND_HEADROOM_BITS)
    for value, integer in zip(values, integers.tolist(), strict=True):
        scaled = (
            Fraction(value) * Fraction(2) ** lattice.exponent if math.isfinite(value) else math.copysign(most, value)
        )
        assert integer == round(max(min(scaled, most), -most))


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (0.0, 2.0**1000), (math.nan, math.nan), (-math.inf, 0.0)])
def test_sums_without_a_range_have_no_lattice(low: float, high: float) -> None:
    with pytest.raises(RequestError, match="min_sum_per_partition, max_sum_per_partition"):
        SummandLattice.for_sums(low, high)


NUMBERS = [
    (pa.array([1, None, -128], pa.int8()), [1.0, None, -128.0]),
    (pa.array([2**64 - 1, None, 0], pa.uint64()), [2.0**64, None, 0.0]),
    (pa.array([2**53 + 1, -(2**63), None]), [2.0**53, -(2.0**63), None]),
    (
        pa.array([np.float16(0.5), np.float16("nan"), None, np.float16("-inf")], pa.float16()),
        [0.5, None, None, -math.inf],
    ),
    (pa.array([0.5, math.nan, None, math.inf], pa.float32()), [0.5, None, None, math.inf]),
    (pa.array([0.1, math.nan, None, -math.inf, 5e-324]), [0.1, None, None, -math.inf, 5e-324]),
    (pa.array([True, None, False]), [1.0, None, 0.0]),
    (pa.array([decimal.Decimal("0.10"), None], pa.decimal32(5, 2)), [0.1, None]),
    (pa.array([decimal.Decimal("0.10"), None], pa.decimal64(15, 2)), [0.1, None]),
    (pa.array([decimal.Decimal("-0.10"), None], pa.decimal128(38, 2)), [-0.1, None]),
    (pa.array([10**70, None], pa.decimal256(76, 2)), [1e70, None]),
    (pa.array([None, None]), [None, None]),
    (pa.array([], pa.float64()), []),
    (pa.array([2, None, 2]).dictionary_encode(), [2.0, None, 2.0]),
    (
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2]), pa.array([None, math.nan, 1.5])),
        [None, None, None, 1.5],
    ),
]


@pytest.mark.parametrize(("column", "expected"), NUMBERS, ids=lambda part: str(getattr(part, "type", "")))
def test_null_and_nan_are_null_in_columns_of_every_numeric_type(column: pa.Array, expected: list[float | None]) -> None:
    longer = column.take(pa.array([*range(len(column))] * 2, pa.int64())).slice(len(column), len(column))
    for array in (column, longer):
        values, nulls = numbers_and_nulls(array)
        assert values.dtype == np.float64
        assert not np.isnan(values).any()
        assert values.tolist() == pytest.approx([0.0 if value is None else value for value in expected], rel=1e-15)
        missing = [value is None for value in expected]
        assert (nulls is None and not any(missing)) or (nulls is not None and nulls.tolist() == missing)


def test_integers_without_nulls_have_no_mask() -> None:
    assert numbers_and_nulls(pa.array([1, 2]))[1] is None
