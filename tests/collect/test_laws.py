"""What local randomizers promise: exact chances, ratios of at most e^epsilon, and no chance wasted.

In: randomizers of every kind. Out: their laws by enumeration at few bits, their ratios at full precision. Holds: the twin, a
weight that is rounded down, is found. Not covered: estimates (tests/collected).
"""

import itertools
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import flint
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dp_pipelines.collect.d_ary import DAry
from dp_pipelines.collect.exp_bound import exp_below
from dp_pipelines.collect.hadamard import HadamardResponse, nth_of_row
from dp_pipelines.collect.local_hashing import LocalHashing
from dp_pipelines.collect.one_bit import OneBit
from dp_pipelines.collect.piecewise import Piecewise
from dp_pipelines.collect.randomizer import Randomizer
from dp_pipelines.collect.unary import UnaryEncoding
from dp_pipelines.errors import RequestError
from tests.collect.enumerated import largest_ratio, law

EPSILONS = st.decimals("0.01", "12", places=2)


def small(epsilon: str) -> list[Randomizer]:
    """One of each kind whose coins can all be tried."""
    value = Decimal(epsilon)
    return [
        DAry(value, 2, bits=10),
        DAry(value, 7, bits=12),
        UnaryEncoding(value, 3, bits=5),
        LocalHashing(value, 4, bits=7, hash_bits=5),
        HadamardResponse(value, 2, bits=12),
        HadamardResponse(value, 11, bits=14),
        OneBit(value, 5, bits=10),
        Piecewise(value, 3, bits=18),
    ]


@pytest.mark.parametrize("epsilon", ["0.7", "1", "2.5"])
def test_every_report_is_at_most_e_to_the_epsilon_times_as_likely_under_another_value(epsilon: str) -> None:
    for randomizer in small(epsilon):
        ratio = largest_ratio(randomizer)
        assert ratio is not None
        assert ratio <= exp_below(Decimal(epsilon)), randomizer
        assert ratio == randomizer.ratio(), randomizer


@dataclass(frozen=True)
class RoundedDown(DAry):
    """A planted fault: the weight of other values is rounded the wrong way."""

    @cached_property
    def other(self) -> int:
        return super().weight_for(self.exp_epsilon + self.size - 1) - 1


def test_a_weight_that_is_rounded_down_is_found() -> None:
    ratio = largest_ratio(RoundedDown(Decimal(1), 7, bits=12))
    assert ratio is not None
    assert ratio > exp_below(Decimal(1))


@given(epsilon=EPSILONS, size=st.integers(2, 1000), steps=st.sampled_from([2, 16, 1024]))
def test_at_full_precision_no_ratio_exceeds_epsilon_and_hardly_any_is_given_away(
    epsilon: Decimal, size: int, steps: int
) -> None:
    exp = exp_below(epsilon)
    of_values = [kind(epsilon, size) for kind in (DAry, UnaryEncoding, LocalHashing, HadamardResponse)]
    for randomizer in (*of_values, OneBit(epsilon, steps + 1)):
        assert randomizer.ratio() <= exp
        assert randomizer.ratio() > exp * (1 - Fraction(1, 10**6)), randomizer
    # A multiple of the window is coarser: a tenth of the ratio at epsilon 12, nothing to speak of below 6.
    piecewise = Piecewise(epsilon, steps + 1)
    assert piecewise.ratio() <= exp
    assert piecewise.ratio() > exp * (Fraction(4, 5) if epsilon > 6 else Fraction(999, 1000))


@given(st.decimals("1e-9", "12", places=12))
def test_the_bound_of_the_exponential_lies_below_it_by_less_than_one_part_in_ten_to_the_forty(epsilon: Decimal) -> None:
    assume(epsilon > 0)
    below = exp_below(epsilon)
    flint.ctx.prec = 300
    number = flint.fmpq(*Fraction(epsilon).as_integer_ratio())
    exact = flint.arb(number).exp()
    bound = flint.arb(flint.fmpq(*below.as_integer_ratio()))
    assert bound < exact
    assert (exact - bound) < exact * flint.arb(10) ** -40


def test_d_ary_reports_name_each_other_value_equally_often() -> None:
    randomizer = DAry(Decimal(1), 7, bits=12)
    for index in range(7):
        found = law(randomizer, index)
        q = Fraction(randomizer.other, 2**12)
        assert {value: found[value,] for value in range(7) if value != index} == {
            value: q for value in range(7) if value != index
        }
        assert found[index,] == 1 - 6 * q


def test_bits_of_unary_reports_are_independent() -> None:
    randomizer = UnaryEncoding(Decimal(1), 3, bits=5)
    q = Fraction(randomizer.one, 2**5)
    for index in range(3):
        chances = [Fraction(1, 2) if value == index else q for value in range(3)]
        for (word,), chance in law(randomizer, index).items():
            expected = Fraction(1)
            for value in range(3):
                expected *= chances[value] if word >> value & 1 else 1 - chances[value]
            assert chance == expected


def test_unary_reports_of_many_values_have_a_word_for_each_32() -> None:
    randomizer = UnaryEncoding(Decimal(12), 70)
    assert randomizer.fields == ("ones_0", "ones_1", "ones_2")

    class Half:
        def draw(self, bits: int) -> int:
            return 2 ** (bits - 1) - 1

    assert randomizer.respond(69, Half()) == (0, 0, 1 << 5)


@pytest.mark.parametrize("epsilon", ["0.5", "1", "2"])
def test_any_two_values_fall_into_every_pair_of_buckets_equally_often(epsilon: str) -> None:
    randomizer = LocalHashing(Decimal(epsilon), 8, bits=8, hash_bits=2 + LocalHashing(Decimal(epsilon), 8).bucket_bits)
    hashes = [(a, b) for a in range(2**randomizer.hash_bits) for b in range(2**randomizer.hash_bits)]
    for x in range(8):
        for y in range(x):
            pairs = [(randomizer.bucket(a, b, x), randomizer.bucket(a, b, y)) for a, b in hashes]
            counts = {pairs.count(pair) for pair in set(pairs)}
            assert counts == {len(hashes) // randomizer.buckets**2}


def test_a_hash_with_too_few_bits_is_refused_since_it_is_not_fair() -> None:
    with pytest.raises(RequestError, match="not fair"):
        LocalHashing(Decimal(1), 8, hash_bits=3)
    unfair = LocalHashing(Decimal(1), 4, hash_bits=4)
    pairs = [(unfair.bucket(a, b, 0), unfair.bucket(a, b, 8)) for a in range(16) for b in range(16)]
    assert len(set(pairs)) < unfair.buckets**2, "a value beyond the declared ones shows what the rule is for"


@given(st.integers(1, 7), st.data())
def test_the_columns_of_a_row_are_half_of_all_each_named_once(bits: int, data: st.DataObject) -> None:
    row = data.draw(st.integers(1, 2**bits - 1))
    columns = [nth_of_row(n, row) for n in range(2 ** (bits - 1))]
    assert len(set(columns)) == 2 ** (bits - 1)
    assert all((column & row).bit_count() % 2 == 0 and column < 2**bits for column in columns)


@pytest.mark.parametrize("epsilon", ["1", "3"])
def test_a_value_of_hadamard_response_is_estimated_by_the_signs_of_its_own_row(epsilon: str) -> None:
    randomizer = HadamardResponse(Decimal(epsilon), 11, bits=14)
    half = randomizer.block_size // 2
    for index in range(11):
        found = law(randomizer, index)
        for value in range(11):
            block, row = randomizer.row(value)
            signs = sum(
                chance * (1 - 2 * ((code & row).bit_count() & 1))
                for (code,), chance in found.items()
                if code // randomizer.block_size == block
            )
            assert signs == (Fraction(half * randomizer.own_code, randomizer.coins) if value == index else 0)


@pytest.mark.parametrize("randomizer", [OneBit(Decimal(1), 5, bits=10), Piecewise(Decimal(2), 3, bits=18)], ids=repr)
def test_the_mean_of_a_report_grows_by_the_same_amount_from_point_to_point(randomizer: Randomizer) -> None:
    means = [
        sum(chance * report[0] for report, chance in law(randomizer, index).items()) for index in range(randomizer.size)
    ]
    steps = {after - before for before, after in itertools.pairwise(means)}
    assert len(steps) == 1
    assert steps.pop() > 0


def test_an_epsilon_too_small_to_say_anything_is_refused() -> None:
    with pytest.raises(RequestError, match="say nothing"):
        DAry(Decimal("0.0001"), 1000, bits=10)
