"""The truncated geometric strategy: the closed form against 60 digits, and the coin's table against the law itself."""

import decimal
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.errors import RequestError
from dp_pipelines.selection.truncated_geometric import half_keep_users, keep_probability, keep_table

epsilons = st.floats(-2, 1.3).map(lambda x: 10**x)
deltas = st.floats(-12, -0.5).map(lambda x: 10**x)


def recursion(epsilon: float, delta: float, last: int) -> list[Decimal]:
    """The most probable way to keep that is (epsilon, delta)-DP, in 60 digits: Desfontaines et al. 2022, section 3."""
    with decimal.localcontext(decimal.Context(prec=60)):
        e, d = Decimal(epsilon).exp(), Decimal(delta)
        kept = [Decimal(0)]
        for _ in range(last):
            kept.append(min(e * kept[-1] + d, 1 - (1 - kept[-1] - d) / e, Decimal(1)))
        return kept


@settings(max_examples=150)
@given(epsilon=epsilons, delta=deltas)
def test_the_closed_form_is_the_optimum_but_for_its_margin(epsilon: float, delta: float):
    last = min(400, math.ceil(2 * math.log(1 / delta) / epsilon) + 3)
    truth = recursion(epsilon, delta, last)
    computed = keep_probability(np.arange(last + 1), epsilon, delta)
    for kept, optimum in zip(computed.tolist(), truth, strict=True):
        # The margin of 1e-12 in epsilon is raised to the power of the number of units.
        assert kept <= optimum
        assert kept >= float(optimum) * (1 - 1e-11 - 1e-12 * epsilon * last) - 1e-15


def test_a_closed_form_with_a_crossover_one_too_late_would_be_found():
    epsilon, delta = 0.5, 1e-4
    rising = [math.expm1(n * epsilon) / math.expm1(epsilon) * delta for n in range(40)]
    truth = recursion(epsilon, delta, 39)
    assert any(late > optimum for late, optimum in zip(rising, truth, strict=True))


@pytest.mark.parametrize(
    ("epsilon", "delta", "most"),
    [(1.0, 1e-6, 100), (0.01, 1e-10, 6000), (3.0, 1e-3, 20), (20.0, 1e-12, 10), (1e-3, 0.01, 500), (500.0, 1e-9, 5)],
)
def test_the_table_follows_the_closed_form(epsilon: float, delta: float, most: int):
    table = keep_table(epsilon, delta)
    assert len(table) <= most
    exact = keep_probability(np.arange(len(table)), epsilon, delta)
    drawn = table.astype(np.float64) / 2**64
    # Rounding down by a 2^-64 at each step is what the table loses.
    assert (drawn <= exact * (1 + 1e-9) + 1e-18).all()
    assert (drawn >= exact * (1 - 1e-6) - 1e-9).all()
    assert keep_probability(len(table), epsilon, delta) == 1


def holds(table: list[int], epsilon: float, delta: float) -> bool:
    """Whether a coin with this table is (epsilon, delta)-DP between all numbers of units next to each other, exactly."""
    with decimal.localcontext(decimal.Context(prec=120)):
        e, d, one = Decimal(epsilon).exp(), Decimal(delta) * 2**64, 2**64
        for fewer, more in zip(table, [*table[1:], one], strict=True):
            pairs = [(more, fewer), (fewer, more), (one - more, one - fewer), (one - fewer, one - more)]
            if not all(p <= e * q + d for p, q in pairs):
                return False
    return table[0] == 0


@settings(max_examples=60)
@given(epsilon=st.floats(-1.5, 1.5).map(lambda x: 10**x), delta=deltas)
def test_the_coin_is_private_exactly(epsilon: float, delta: float):
    assert holds(keep_table(epsilon, delta).tolist(), epsilon, delta)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 1e-6), (0.05, 1e-9), (1e-4, 0.03), (50.0, 1e-15), (0.5, 2.0**-63)]
)
def test_the_coin_is_private_exactly_at_the_ends_of_the_range(epsilon: float, delta: float):
    assert holds(keep_table(epsilon, delta).tolist(), epsilon, delta)


def test_a_coin_that_keeps_a_2_to_the_64th_more_often_would_be_found():
    table = keep_table(1.0, 1e-6).tolist()
    for n in range(1, len(table) - 1):
        # Rounded down, an entry leaves room for little more than one unit. (Only the last one may lie lower.)
        assert not holds([*table[:n], table[n] + 2, *table[n + 1 :]], 1.0, 1e-6)
        assert not holds([*table[:n], table[n] - 4, *table[n + 1 :]], 1.0, 1e-6)


def test_a_table_of_rounded_floats_would_be_found():
    exact = recursion(1.0, 1e-6, 27)
    table = [min(2**64 - 1, int(float(p) * 2**64)) for p in exact]
    assert not holds(table, 1.0, 1e-6)


@given(epsilon=epsilons, delta=deltas)
def test_more_units_are_kept_more_often(epsilon: float, delta: float):
    kept = keep_probability(np.arange(500), epsilon, delta)
    assert (np.diff(kept) >= 0).all()
    assert kept[0] == 0
    assert 0 < kept[1] <= delta
    assert (keep_probability(np.arange(500), epsilon * 1.01, delta) >= kept * (1 - 1e-9)).all()
    assert (keep_probability(np.arange(500), epsilon, delta * 1.01) >= kept * (1 - 1e-9)).all()


@pytest.mark.parametrize(
    ("partitions", "users"), [(1, 14), (2, 27), (3, 40), (4, 53), (8, 106), (50, 657), (200, 2625), (16, 211)]
)
def test_half_of_the_partitions_are_kept_where_was_measured_before(partitions: int, users: int):
    # Epsilon 1, delta 1e-6, shared by the partitions of a unit.
    delta = -math.expm1(math.log1p(-1e-6) / partitions)
    assert half_keep_users(1 / partitions, delta) == users


@given(epsilon=epsilons, delta=deltas)
def test_the_half_way_number_is_the_smallest_that_is_kept_half_the_time(epsilon: float, delta: float):
    half = half_keep_users(epsilon, delta)
    assert keep_probability(half - 1, epsilon, delta) < 0.5 <= keep_probability(half, epsilon, delta)


def test_huge_and_negative_numbers_of_units_are_no_trouble():
    counts = np.array([-(2**62), -1, 0, 2**62, 10**6])
    assert keep_probability(counts, 0.1, 1e-9).tolist() == [0, 0, 0, 1, 1]
    assert keep_probability(np.uint8(200), 1.0, 1e-6) == 1
    assert keep_probability([[1], [2]], 1.0, 1e-6).shape == (2, 1)


def test_an_epsilon_so_small_that_units_hardly_count_is_refused_for_the_table_only():
    assert float(keep_probability(10**9, 1e-9, 1e-12)) < 0.01
    with pytest.raises(RequestError, match="millions of units"):
        keep_table(1e-9, 1e-12)


def test_a_delta_that_no_coin_of_64_bits_can_show_is_refused():
    with pytest.raises(RequestError, match=r"at least 2\*\*-64"):
        keep_table(1.0, 2.0**-65)
    assert int(keep_table(1.0, 2.0**-64)[1]) == 1


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, True, "1", None])
def test_an_epsilon_that_is_none_is_refused(wrong: object):
    for function in (keep_table, half_keep_users):
        with pytest.raises(RequestError, match=r"selection\.epsilon"):
            function(wrong, 1e-6)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"selection\.epsilon"):
        keep_probability([1], wrong, 1e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [0, 1, -1e-9, 2, math.nan, True, "1", None])
def test_a_delta_that_is_no_probability_is_refused(wrong: object):
    for function in (keep_table, half_keep_users):
        with pytest.raises(RequestError, match=r"selection\.delta"):
            function(1.0, wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [[1.0], [True], ["1"], [None]])
def test_numbers_of_units_that_are_not_whole_are_refused(wrong: object):
    with pytest.raises(RequestError, match="users"):
        keep_probability(wrong, 1.0, 1e-6)  # type: ignore[arg-type]


def test_a_table_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        keep_table(1.0, 1e-6)[1] = 0


def test_a_coin_flipped_a_million_times_keeps_as_often_as_it_says():
    # The comparison itself, on words of a generator with a known state; false alarm below 1e-9.
    words = np.random.default_rng(7).integers(0, 2**64, 10**6, np.uint64)
    table = keep_table(1.0, 1e-6)
    for n in (1, 10, 14, 20):
        p = float(Fraction(int(table[n]), 2**64))
        kept = int((words < table[n]).sum())
        assert abs(kept - 10**6 * p) <= 6.2 * math.sqrt(10**6 * p * (1 - p)) + 10


def test_a_table_a_little_longer_than_two_million_entries_is_refused() -> None:
    assert float(keep_probability(2**21, 1e-9, 4.6e-7)) < 1
    with pytest.raises(RequestError, match="millions of units"):
        keep_table(1e-9, 4.6e-7)
