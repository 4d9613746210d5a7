"""Sums in two words lose nothing of numbers on one lattice, in any order."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_pipelines.training.kernels.exact_sums import Total


def added(numbers: list[float]) -> float:
    total = Total(1)
    for number in numbers:
        total.add(np.array([number]))
    return float(total.value()[0])


@given(st.lists(st.tuples(st.integers(-(2**53), 2**53), st.integers(-20, 25)), max_size=200))
def test_a_sum_of_numbers_on_one_lattice_is_rounded_once(parts: list[tuple[int, int]]) -> None:
    numbers = [float(digits) * 2.0**exponent for digits, exponent in parts]
    exact = sum(map(Fraction, numbers), Fraction(0))
    assert added(numbers) == float(exact)


def test_a_sum_is_in_float64_and_of_its_own_size_whatever_comes_first() -> None:
    total = Total(3)
    total.add(np.ones(3, np.float32))
    total.add(np.full(3, 2.0**-40))
    assert total.value().dtype == np.float64
    assert total.value().tolist() == [1 + 2.0**-40] * 3
    with pytest.raises(ValueError, match="shape"):
        Total(3).add(np.ones(5))


def test_plain_addition_would_lose_what_the_second_word_keeps() -> None:
    numbers = [1.0, *[2.0**-53] * 1000, -1.0]
    assert added(numbers) == 1000 * 2.0**-53
    assert sum(numbers) == 0


@given(st.permutations([float(3**i) * (-1) ** i for i in range(30)] + [2.0**60, -(2.0**60)]))
def test_the_order_of_whole_numbers_changes_nothing(numbers: list[float]) -> None:
    assert added(numbers) == float(sum(map(Fraction, numbers), Fraction(0)))
