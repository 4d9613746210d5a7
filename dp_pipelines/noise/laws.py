"""The laws of the noise, each written once: probabilities, tails, standard deviation.

In: a scale, a rational number of lattice steps. Out: the law of a whole number X, and the `offset` at which it
is published: a release of the integer statistic a is a + X + offset. Holds: every tail is a float at or above
the true probability, so a threshold computed from it keeps its delta; both laws are symmetric about -offset, so a
release is unbiased. Not covered: what a law costs (dp_pipelines.planning) and how it is drawn (noise.samplers, within
2**-100 of these laws).
"""

# Why these two? Both are continuous laws, rounded to the lattice after the addition: for an integer a,
# round(a + N) = a + round(N) and floor(a + L) = a + floor(L). So a release is post-processing of the continuous
# mechanism and costs no more than that, at every scale and for any number of partitions, by the closed forms and loss
# distributions known for the continuous laws. Laws that are discrete by definition have no such rule: at a scale of one
# lattice step, 64 releases of the plain discrete Laplace law cost 15 % more epsilon than those of the continuous one;
# the discrete Gaussian law has no exact loss distribution under an L2 bound over many partitions; and the time to
# compute an exact loss distribution grows with the scale. Flooring instead of rounding puts Laplace noise on the
# half-integers: there it is the discrete Laplace law itself, P(y) ~ exp(-|y| / t), without the special case at zero, so
# one sign bit and one geometric number draw it.
#
# A third law, `DiscreteGaussian`, is never released by itself: a multiple of it and a rounded Gaussian add up to a
# rounded Gaussian of a scale that no table holds (`dp_pipelines.training.gaussian_noise`), and are accounted as that.
#
# Proofs: docs/proofs/noise.md; docs/proofs/training.md for the third.

import abc
import dataclasses
import math
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from dp_pipelines import checks
from dp_pipelines.errors import RequestError

if TYPE_CHECKING:
    from flint import arb

LARGEST_SCALE = 2**62
"""Noise is added to int64 statistics; a scale above this or below its inverse must be a mistake."""


@dataclasses.dataclass(frozen=True)
class Law(abc.ABC):
    """A law of integer noise.

    Args:
        scale: a positive `Fraction` (or int), in lattice steps. No float: the records of a plan are integers.

    Raises:
        RequestError: `scale` is not such a number.
    """

    scale: Fraction
    offset: ClassVar[Fraction]
    """The number added to a drawn integer when it is published."""

    def __post_init__(self) -> None:
        """Refuse anything but a positive rational number."""
        if isinstance(self.scale, bool) or not isinstance(self.scale, (int, Fraction)):
            raise RequestError(
                field="scale",
                message=f"must be a fractions.Fraction or an int, not {type(self.scale).__name__}",
                hint="write e.g. Fraction(1024)",
            )
        if not Fraction(1, LARGEST_SCALE) <= self.scale <= LARGEST_SCALE:
            raise RequestError(field="scale", message="must be above 0: from 2**-62 to 2**62 lattice steps")
        object.__setattr__(self, "scale", Fraction(self.scale))

    @abc.abstractmethod
    def upper_tail(self, x: int) -> "arb":
        """Return a ball around P(X >= x), for x >= 0. Call it inside `interval_arithmetic.precision`."""

    @property
    @abc.abstractmethod
    def stddev(self) -> float:
        """Return the standard deviation of X, in lattice steps."""

    def mirrored(self, x: int) -> int:
        """Return the integer on the other side that is as probable as `x`: -x - 2 * offset."""
        return -x - int(2 * self.offset)

    def pmf(self, x: int) -> float:
        """Return P(X = x), to the nearest float; 0.0 if it is below the smallest float.

        >>> RoundedGaussian(Fraction(1)).pmf(0)
        0.3829249225480262
        """
        from dp_pipelines.noise import interval_arithmetic

        with interval_arithmetic.precision():
            m = max(x, self.mirrored(x))
            return float(self.upper_tail(m) - self.upper_tail(m + 1))

    def tail(self, x: int) -> float:
        """Return P(X >= x), rounded up: never below the true value, and at most two units in the last place above it.

        If it is below the smallest float, the answer is that float, never zero.

        >>> FlooredLaplace(Fraction(1)).tail(1) >= math.exp(-1) / 2
        True
        """
        from dp_pipelines.noise import interval_arithmetic

        with interval_arithmetic.precision():
            if x > 0:
                return interval_arithmetic.float_above(self.upper_tail(x))
            # P(X >= x) = P(X <= mirrored(x)) = 1 - P(X >= mirrored(x) + 1).
            return min(1.0, interval_arithmetic.float_above(1 - self.upper_tail(self.mirrored(x) + 1)))

    def smallest_x_with_tail_at_most(self, delta: float | Fraction) -> int:
        """Return the smallest integer x with `tail(x) <= delta`: noise alone reaches it with probability at most delta.

        Args:
            delta: a probability, above 0 and below 1.

        Raises:
            RequestError: `delta` is not such a number.

        >>> FlooredLaplace(Fraction(10)).smallest_x_with_tail_at_most(1e-6)
        132
        """
        checks.number(delta, "delta", above=0, below=1)
        # Doubling finds a bracket: tail(low) > delta >= tail(high).
        low, high = 0, 1
        while self.tail(high) > delta:
            low, high = high, 2 * high
        step = 1
        while self.tail(low) <= delta:
            low, high, step = low - step, low, 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            if self.tail(middle) > delta:
                low = middle
            else:
                high = middle
        return high


@dataclasses.dataclass(frozen=True)
class RoundedGaussian(Law):
    """X = round(N(0, scale^2)): P(X = x) = Phi((x + 1/2) / s) - Phi((x - 1/2) / s). Published as it is.

    Source: post-processing of the Gaussian mechanism (Dwork and Roth 2014, prop. 2.1 and app. A), see
    docs/proofs/noise.md.

    >>> law = RoundedGaussian(Fraction(1024))
    >>> round(law.stddev, 4), law.offset
    (1024.0, Fraction(0, 1))
    """

    offset: ClassVar[Fraction] = Fraction(0)

    def upper_tail(self, x: int) -> "arb":
        """Return a ball around P(X >= x) = erfc((x - 1/2) / (s sqrt 2)) / 2."""
        from flint import arb

        from dp_pipelines.noise import interval_arithmetic

        return (interval_arithmetic.ball(Fraction(2 * x - 1, 2) / self.scale) / arb(2).sqrt()).erfc() / 2

    @property
    def stddev(self) -> float:
        """Return the standard deviation of X: the square root of s^2 + 1/12, for s >= 2 to within a part in 10^30.

        By Poisson summation the variance of a rounded normal is s^2 + 1/12 and terms of at most
        (4 s^2 + 1) exp(-2 pi^2 s^2); for s < 2 it is summed: E X^2 is the sum over m >= 1 of (2 m - 1) P(|X| >= m).

        >>> RoundedGaussian(Fraction(1, 10)).stddev < 0.001
        True
        """
        s = float(self.scale)
        if s >= 2:
            return math.sqrt(s * s + 1 / 12)
        # Forty standard deviations leave out less than exp(-800).
        terms = ((2 * m - 1) * math.erfc((m - 0.5) / s / math.sqrt(2)) for m in range(1, math.ceil(40 * s) + 2))
        return math.sqrt(math.fsum(terms))


@dataclasses.dataclass(frozen=True)
class FlooredLaplace(Law):
    """X = floor(Laplace(t)): P(X = m) = P(X = -(m + 1)) = (1 - r) r^m / 2, r = exp(-1 / t). Published at X + 1/2.

    X + 1/2 has the discrete Laplace law on the half-integers, P(y) ~ exp(-|y| / t): symmetric, unbiased, and released
    integers shifted by c differ in probability by at most exp(c / t), as for the continuous law.

    Source: post-processing of the Laplace mechanism (Dwork et al. 2006; Dwork and Roth 2014, thm. 3.6 and prop.
    2.1), see docs/proofs/noise.md.

    >>> law = FlooredLaplace(Fraction(2))
    >>> law.pmf(0) == law.pmf(-1), law.offset
    (True, Fraction(1, 2))
    """

    offset: ClassVar[Fraction] = Fraction(1, 2)

    def upper_tail(self, x: int) -> "arb":
        """Return a ball around P(X >= x) = exp(-x / t) / 2."""
        from dp_pipelines.noise import interval_arithmetic

        return interval_arithmetic.ball(-x / self.scale).exp() / 2

    @property
    def stddev(self) -> float:
        """Return the standard deviation of X: the square root of 1/4 + 2 r / (1 - r)^2, about sqrt(2 t^2 + 1/12).

        With M geometric, E (M + 1/2)^2 = r (1 + r) / (1 - r)^2 + r / (1 - r) + 1/4.

        >>> round(FlooredLaplace(Fraction(1000)).stddev, 3)
        1414.214
        """
        u = float(1 / self.scale)
        return math.sqrt(0.25 + 2 * math.exp(-u) / math.expm1(-u) ** 2)


@dataclasses.dataclass(frozen=True)
class DiscreteGaussian(Law):
    """P(X = x) ~ exp(-x^2 / (2 s^2)) on the integers. A part of wider noise, never released by itself (see above).

    Source: Canonne, Kamath, Steinke 2020.

    >>> law = DiscreteGaussian(Fraction(1))
    >>> round(law.pmf(1) / law.pmf(0), 12) == round(math.exp(-1 / 2), 12)
    True
    """

    offset: ClassVar[Fraction] = Fraction(0)

    def weights(self, x: int, least: "arb") -> "tuple[list[arb], arb]":
        """Return balls around exp(-y^2 / (2 s^2)) for y = x, x + 1, ..., and one around the sum of all later ones.

        The last ball is below `least`. Call it inside `interval_arithmetic.precision`.

        Args:
            x: from 0.
            least: above 0.
        """
        from flint import arb

        from dp_pipelines.noise import interval_arithmetic

        # Quotients of neighbours fall by a constant factor, so less than w r / (1 - r) follows a weight w with quotient
        # r.
        unit = interval_arithmetic.ball(1 / (2 * self.scale**2))
        weight, quotient, factor = (-unit * x * x).exp(), (-unit * (2 * x + 1)).exp(), (-2 * unit).exp()
        found = [weight]
        while not (rest := weight * quotient / (1 - quotient)) < least:
            weight, quotient = weight * quotient, quotient * factor
            found.append(weight)
        return found, arb(0).union(rest)

    def upper_tail(self, x: int) -> "arb":
        """Return a ball around P(X >= x): the sum of the weights from x on over the sum of all."""
        from flint import arb

        from dp_pipelines.noise import interval_arithmetic

        tiny = arb(2) ** -200
        above, below = self.weights(0, tiny)
        total = 2 * (sum(above, arb(0)) + below) - 1
        first = interval_arithmetic.ball(-(x * x) / (2 * self.scale**2)).exp()
        tail, rest = self.weights(x, first * tiny)
        return (sum(tail, arb(0)) + rest) / total

    @property
    def stddev(self) -> float:
        """Return the standard deviation of X: s, for s >= 2 to within a part in 10^30 (Poisson summation); below it is summed.

        >>> DiscreteGaussian(Fraction(1, 10)).stddev < 1e-10
        True
        """
        s = float(self.scale)
        if s >= 2:
            return s
        weights = [math.exp(-((m / s) ** 2) / 2) for m in range(math.ceil(40 * s) + 2)]
        square = math.fsum(2 * m * m * weight for m, weight in enumerate(weights))
        return math.sqrt(square / (2 * math.fsum(weights) - 1))
