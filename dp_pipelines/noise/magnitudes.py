"""Tails of a law's magnitude as exact integers, from which the tables are built.

The magnitude M of a draw is |X| for `RoundedGaussian` and `DiscreteGaussian`, and X or -(X + 1), whichever is not negative, for
`FlooredLaplace`. In all of them P(M >= m) = 2 P(X >= m) for m >= 1, and a fair sign bit turns M into X.

In: a law and a number of bits B. Out: integers e_0 >= e_1 >= ... >= e_last = 0, where e_m is off from 2**B *
P(M > m) by less than one. Holds: that bound, rigorously (it computes with balls; a ball that is too wide raises). It
keeps the total variation distance of a table with n entries below n * 2**-B (docs/proofs/noise.md, lemma 2). Not
covered: how large a table may be (noise.samplers).
"""

import itertools
from fractions import Fraction
from typing import TYPE_CHECKING

from dp_pipelines.noise import interval_arithmetic
from dp_pipelines.noise.laws import DiscreteGaussian, FlooredLaplace, Law, RoundedGaussian

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flint import arb

_TAYLOR_TERMS = 24
_TAYLOR_RADIUS = Fraction(1, 32)
_TAYLOR_REMAINDER_BITS = (
    150  # 24 terms at a distance of 1/32 leave out less than 2**-150: docs/proofs/noise.md, lemma 3
)


def support(law: Law, bits: int) -> int:
    """Return the smallest n with 2**bits * P(M >= n) < 1: magnitudes from n on carry less than one unit and are left out.

    >>> support(FlooredLaplace(Fraction(1)), 127)
    89
    """

    def negligible(n: int) -> bool:
        return bool(2 * law.upper_tail(n) * scaling < 1)

    with interval_arithmetic.precision():
        from flint import arb

        scaling = arb(2) ** bits
        high = 1
        while not negligible(high):
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if negligible(middle) else (middle, high)
        return high


def tails(law: Law, bits: int) -> list[int]:
    """Return the integers e_m for all magnitudes m below `support(law, bits)`.

    >>> tails(FlooredLaplace(Fraction(1)), 8)  # 256 exp(-1), 256 exp(-2), ..., and the rest is left out
    [94, 35, 13, 5, 2, 0]
    """
    if isinstance(law, DiscreteGaussian):
        with interval_arithmetic.precision():
            all_tails = _discrete_gaussian(law, bits)
            return _settled(all_tails, len(all_tails), bits)
    n = support(law, bits)
    with interval_arithmetic.precision():
        if isinstance(law, RoundedGaussian):
            return _settled(_gaussian(law, n), n, bits)
        if isinstance(law, FlooredLaplace):
            return _settled(_powers(law, 1, n), n, bits)
    raise TypeError("only RoundedGaussian, FlooredLaplace and DiscreteGaussian are drawn from tables")


def low_digit_tails(law: FlooredLaplace, columns: int, bits: int) -> list[int]:
    """Return the tails of M modulo `columns`, for a geometric M: P(D > d) = (r^(d + 1) - r^columns) / (1 - r^columns)."""
    with interval_arithmetic.precision():
        left_out = interval_arithmetic.ball(-columns / law.scale).exp()
        remaining = 1 - left_out
        return _settled(((power - left_out) / remaining for power in _powers(law, 1, columns)), columns, bits)


def high_digit_tails(law: FlooredLaplace, columns: int, bits: int) -> list[int]:
    """Return the tails of M divided by `columns` without rest, for a geometric M: P(D > d) = r^(columns (d + 1))."""
    n = -(-support(law, bits) // columns)
    with interval_arithmetic.precision():
        return _settled(_powers(law, columns, n), n, bits)


def _settled(values: "Iterable[arb]", n: int, bits: int) -> list[int]:
    """Return the first n - 1 tails as integers, and zero for the last one: it is below one unit by the choice of n."""
    rounded = interval_arithmetic.units(itertools.islice(values, n - 1), bits)
    # The true tails fall. If two are so close that rounding swapped them, the smaller one is less than one unit from
    # both.
    return [*itertools.accumulate(rounded, min), 0]


def _powers(law: FlooredLaplace, step: int, n: int) -> "Iterable[arb]":
    """Yield r^step, r^(2 step), ..., n of them. The balls widen by a few units of 2**-256 a step, far less than allowed."""
    factor = interval_arithmetic.ball(-step / law.scale).exp()
    power = factor
    for _ in range(n):
        yield power
        power = power * factor


def _discrete_gaussian(law: DiscreteGaussian, bits: int) -> "list[arb]":
    """Return P(|X| > m) for m = 0, 1, ..., up to the first that is below one unit.

    They are sums from the far end over the sum of all.
    """
    from flint import arb

    scaling = arb(2) ** bits
    weights, rest = law.weights(0, 1 / (16 * scaling))
    sums = list(itertools.accumulate(reversed(weights), initial=rest))[::-1]  # sums[m]: all weights from m on
    total = 2 * sums[0] - 1
    result = []
    for above in sums[1:]:
        result.append(2 * above / total)
        if result[-1] * scaling < 1:
            return result
    raise AssertionError("the weights ended before their tail did")


def _gaussian(law: RoundedGaussian, n: int) -> "Iterable[arb]":
    """Return P(|X| > m) for m = 0 .. n - 1.

    One value of erfc takes 16 microseconds. So it is computed only at the centres of blocks of columns; a matrix product
    of Taylor coefficients and powers of the distances gives the columns in between: ten times as fast, and rigorous.
    """
    from flint import arb, arb_mat

    # A column is 1 / (s sqrt 2) wide; half a block is at most 1/32 wide, and 99/70 < sqrt 2.
    half = int(law.scale * _TAYLOR_RADIUS * Fraction(99, 70))
    if half == 0:
        return (2 * law.upper_tail(m + 1) for m in range(n))
    width = 1 / (interval_arithmetic.ball(law.scale) * arb(2).sqrt())
    blocks = range(half, n + half, 2 * half)
    coefficients = arb_mat([_erfc_taylor(2 * law.upper_tail(m + 1), (m + arb(1) / 2) * width) for m in blocks])
    distances = [j * width for j in range(-half, half)]
    powers = [[arb(1)] * len(distances)]
    for _ in range(_TAYLOR_TERMS - 1):
        powers.append([power * distance for power, distance in zip(powers[-1], distances, strict=True)])
    remainder = arb(0, arb(2) ** -_TAYLOR_REMAINDER_BITS)
    return (value + remainder for value in (coefficients * arb_mat(powers)).entries()[:n])


def _erfc_taylor(value: "arb", z: "arb") -> "list[arb]":
    """Return the Taylor coefficients of erfc at z, where it is `value`.

    The k-th is -2 / sqrt(pi) exp(-z^2) (-1)^(k - 1) H_(k - 1)(z) / k!, with Hermite's polynomials H.
    """
    from flint import arb

    hermite = [arb(1), 2 * z]
    for k in range(2, _TAYLOR_TERMS - 1):
        hermite.append(2 * (z * hermite[-1] - (k - 1) * hermite[-2]))
    result = [value]
    factor = -2 / arb.pi().sqrt() * (-(z * z)).exp()
    for k in range(1, _TAYLOR_TERMS):
        result.append(factor * hermite[k - 1])
        factor = -factor / (k + 1)
    return result
