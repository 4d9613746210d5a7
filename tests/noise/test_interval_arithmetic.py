"""Balls as integers: never further off than a half for rounding and a quarter for the ball."""

from fractions import Fraction

import pytest
from flint import arb

from dp_pipelines.noise import interval_arithmetic


@pytest.mark.parametrize("bits", [0, 1, 7])
def test_an_integer_is_within_three_quarters_of_its_ball(bits: int) -> None:
    values = [Fraction(eighths, 8) for eighths in range(-40, 41)]
    with interval_arithmetic.precision():
        found = interval_arithmetic.units((interval_arithmetic.ball(value) for value in values), bits)
    assert all(abs(whole - value * 2**bits) <= Fraction(3, 4) for whole, value in zip(found, values, strict=True))
    assert [whole for whole, value in zip(found, values, strict=True) if value == 3] == [3 << bits]


def test_a_ball_that_is_too_wide_for_an_integer_raises() -> None:
    with interval_arithmetic.precision(), pytest.raises(ArithmeticError, match="too wide"):
        interval_arithmetic.units([arb(3, 0.3)], 0)
