"""The median of a fixed number of whole numbers, with Laplace noise scaled to its smooth sensitivity, exactly.

In: sorted whole numbers in a known range, epsilon and delta of the release. Out: one whole number on a finer lattice.
Holds: given ideal words, the release is (epsilon, delta)-DP for neighbours that differ in one value. It has exactly
the proven law: the smooth sensitivity is an integer, and a real number is revealed bit by bit until its rounding is
certain. No decision uses a float (docs/proofs/smooth_sensitivity.md). The scale of the noise is private and must not
be shown. Not covered: running time, which may reveal it; where the numbers come from (kernels.grid_cells).
"""

# Source: Nissim, Raskhodnikova, Smith 2007; the constants are those of our note, which are sharper.
#
# INTERNAL, like `noise.samplers`: sources of words are for tests.

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.noise import entropy, interval_arithmetic
from dp_pipelines.noise.alias_tables import WordSource

if TYPE_CHECKING:
    from flint import arb

FALL_BITS = 48
"""The factor by which the sensitivity may fall from one neighbour to the next is a multiple of 2**-48."""

WEIGHT_BITS = 128
"""Weights of data some neighbours away are multiples of 2**-128, at least one of them."""

FINER = 2**16
"""The number of steps of the release in half a step of the numbers."""

WORD = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Smoothing:
    """The way in which noise follows the data.

    Args:
        alpha: the scale of the noise is the smooth sensitivity divided by this.
        fall: the sensitivity falls by at most this factor from one neighbour to the next: exp(-beta).
    """

    alpha: Fraction
    fall: Fraction


def worst_delta(epsilon: Fraction, alpha: Fraction, fall: Fraction) -> "arb":
    """Return a ball around the exact delta that noise of a falling scale costs at epsilon (theorem 4 of the note).

    That is (1 - a) exp(-(epsilon + beta) / r) cosh(alpha / r) with beta = -log a and r = 1 / a - 1. Call it inside
    `interval_arithmetic.precision`.
    """
    a, one = interval_arithmetic.ball(fall), interval_arithmetic.ball(Fraction(1))
    rise = interval_arithmetic.ball(1 / fall - 1)
    beta, shift = -a.log(), interval_arithmetic.ball(alpha)
    both = ((shift - interval_arithmetic.ball(epsilon) - beta) / rise).exp() + (
        (-shift - interval_arithmetic.ball(epsilon) - beta) / rise
    ).exp()
    return (one - a) * both / 2


@functools.lru_cache(maxsize=64)
def smoothing(epsilon: Fraction, delta: float) -> Smoothing:
    """Return the least noise that is (epsilon, delta)-DP with half of epsilon for its shift, found and proven with balls.

    Args:
        epsilon: above 0.
        delta: above 0 and below 1.

    >>> found = smoothing(Fraction(1), 1e-6)
    >>> found.alpha, round(float(1 - found.fall), 4)
    (Fraction(1, 2), 0.0516)
    """
    alpha, most, total = epsilon / 2, Fraction(delta), 1 << FALL_BITS

    def private(fall: Fraction) -> bool:
        # If the scale rises, the loss is at most alpha + beta (lemma 2); if it falls, theorem 4 applies.
        with interval_arithmetic.precision():
            beta = -interval_arithmetic.ball(fall).log()
            return bool(beta <= interval_arithmetic.ball(epsilon - alpha)) and bool(
                worst_delta(epsilon, alpha, fall) <= interval_arithmetic.ball(most)
            )

    low, high = 0, total - 1
    if not private(Fraction(high, total)):
        raise ArithmeticError("epsilon or delta is too small for noise of a falling scale")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if private(Fraction(middle, total)) else (middle, high)
    return Smoothing(alpha=alpha, fall=Fraction(high, total))


@functools.lru_cache(maxsize=16)
def weights(fall: Fraction, numbers: int) -> tuple[int, ...]:
    """Return the weights of 0 to `numbers` neighbours, in 2**-WEIGHT_BITS: the first is 1, each at least `fall` times the last.

    >>> weights(Fraction(1, 2), 3) == tuple(1 << WEIGHT_BITS - k for k in range(4))
    True
    """
    found = [1 << WEIGHT_BITS]
    for _ in range(numbers):
        found.append(-(-found[-1] * fall.numerator // fall.denominator))
    return tuple(found)


def twice_median(values: NDArray[np.int64]) -> int:
    """Return the sum of the two middle values of sorted numbers; if their number is odd, twice the middle value.

    >>> twice_median(np.array([1, 2, 9])), twice_median(np.array([1, 2, 5, 9]))
    (4, 7)
    """
    return int(values[(len(values) - 1) // 2]) + int(values[len(values) // 2])


def twice_sensitivity(values: NDArray[np.int64], highest: int, weighted: Sequence[int]) -> int:
    """Return twice the smooth sensitivity of the median, in 2**-WEIGHT_BITS.

    Args:
        values: int64 of shape (n,), sorted, from 0 to `highest`.
        highest: the largest possible value.
        weighted: `weights(fall, len(values))`.

    >>> twice_sensitivity(np.array([0, 0, 0]), 8, weights(Fraction(1, 2), 3)) / 2**WEIGHT_BITS
    8.0
    """
    number = len(values)
    below, above = np.zeros(number + 1, np.int64), np.full(number + 1, highest, np.int64)
    beside = np.concatenate([below, values, above])

    def of_place(place: int) -> int:
        return max(
            weight * int((beside[place : place + k + 2] - beside[place - k - 1 : place + 1]).max())
            for k, weight in enumerate(weighted)
        )

    # The sensitivities of the one or two middle values.
    first = of_place(number + 1 + (number - 1) // 2)
    return first + (first if number % 2 else of_place(number + 1 + number // 2))


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyMedian:
    """A median and the scale of its noise. Both are private.

    Args:
        centre: the median, in steps of the release: 2 FINER of them are one step of the values.
        scale: of the Laplace noise, in the same steps.
        highest: the largest number that can be published.
    """

    centre: int
    scale: Fraction
    highest: int

    @classmethod
    def of(cls, values: NDArray[np.int64], highest: int, smooth: Smoothing) -> "NoisyMedian":
        """Return the median of sorted values from 0 to `highest`, with the scale of its noise.

        >>> NoisyMedian.of(np.array([3, 4, 5]), 8, smoothing(Fraction(1), 1e-6)).centre == 4 * 2 * FINER
        True
        """
        sensitivity = twice_sensitivity(values, highest, weights(smooth.fall, len(values)))
        return cls(
            centre=twice_median(values) * FINER,
            scale=Fraction(sensitivity * FINER, 1 << WEIGHT_BITS) / smooth.alpha,
            highest=2 * FINER * highest,
        )

    def draw(self, *, words: WordSource = entropy.words) -> int:
        """Return the median with noise, rounded to the nearest step and clamped to the range. `words` are for tests."""
        return min(max(rounded_laplace(self.centre, self.scale, words=words), 0), self.highest)


def rounded_laplace(centre: int, scale: Fraction, *, words: WordSource = entropy.words) -> int:
    """Draw a Laplace variable rounded to the nearest whole number: exactly floor(centre + 1/2 + scale L), L of scale 1.

    Args:
        centre: the centre of the law.
        scale: above 0.
        words: where words come from; for tests.

    >>> rounded_laplace(7, Fraction(1, 10**30))
    7
    """
    sign = 1 if int(words(1)[0]) >> (WORD - 1) else -1
    drawn = 0
    for bits in itertools.count(2 * WORD, WORD):
        for word in words(2 if bits == 2 * WORD else 1).tolist():
            drawn = drawn << WORD | word
        rounded = _settled(centre, sign * scale, drawn, bits)
        if rounded is not None:
            return rounded
    raise AssertionError("an endless count has ended")


def _settled(centre: int, scale: Fraction, drawn: int, bits: int) -> int | None:
    """Return the rounded value if it is the same for all uniform numbers between `drawn` and `drawn + 1` units of 2**-bits."""
    if drawn == 0:
        return None
    with interval_arithmetic.precision(2 * bits + abs(centre).bit_length() + WEIGHT_BITS):
        start, unit = interval_arithmetic.ball(Fraction(2 * centre + 1, 2)), interval_arithmetic.ball(scale)
        # -log falls, so all numbers in between give results between the two ends; the ends have probability 0.
        ends = [start - unit * interval_arithmetic.ball(Fraction(end, 1 << bits)).log() for end in (drawn, drawn + 1)]
        floors = [end.floor().unique_fmpz() for end in ends]
    if floors[0] is None or floors[1] is None or floors[0] != floors[1]:
        return None
    return int(floors[0])
