"""Sums of one vector per unit, each clipped to a norm, released several times over: what training is made of.

In: how long the vectors are, how often a sum is released and over which part of the units. Out: a frozen description that plans
pay for. Holds: a unit moves each sum by an L2 norm of one unit of change, the norm that it is clipped to. Not covered: the
vectors (`dp_pipelines.training` computes them, sum by sum, outside of the aggregate path).
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from dp_pipelines.kernels.sensitivity import Shape

SCALE = 2**22
"""The standard deviation of the noise of a sum, in steps of the fine lattice on which it is drawn (training.noise)."""

COEFFICIENT_BITS = 16
"""Coefficients of noise are whole numbers of 2**-16 (noise.correlation)."""

LEAST_MULTIPLIER = Fraction(1, 64)
"""The least noise multiplier: the noise of a sum over the norm of its vectors."""


def fits(size: int, multiplier: Fraction) -> bool:
    """Return True if rounding on the fine lattice is less than half of a vector of so many coordinates.

    >>> fits(89, Fraction(34)), fits(2**25, Fraction(2000))
    (True, False)
    """
    return LEAST_MULTIPLIER <= multiplier <= SCALE and Fraction(SCALE) / multiplier > 2 * (math.isqrt(size - 1) + 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClippedVectors:
    """A sequence of sums, each of which may depend on what was released of those before.

    Args:
        size: coordinates of a vector.
        times: how many sums.
        rate: each sum takes each unit with this probability, independently; 1 takes all.
        parts: of each sum, how many times less noise it has than the one with the most; None: all have the same. Only where each
            sum takes all units.
        separation: a unit is in one of so many sums, always the same of them; None: in all that take it.
        coefficients: how the noise of the sums before counts in that of a sum, the last one first, in 2**-16: fewer than
            `separation`. None: noise is independent.

    >>> ClippedVectors(size=10, times=80, rate=1.0).name
    '80 sums of 10 coordinates'
    """

    size: int
    times: int
    rate: float
    parts: tuple[Fraction, ...] | None = None
    separation: int | None = None
    coefficients: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.separation is not None and (self.separation < 1 or self.rate != 1):
            raise ValueError("sums that take samples have no fixed participants")
        if self.coefficients and (
            self.parts is not None or len(self.coefficients) >= (self.separation or 1) or min(self.coefficients) < 0
        ):
            raise ValueError(
                "the noise of a sum counts in fewer sums than lie between two of one unit, and in all alike"
            )
        if self.parts is not None and (len(self.parts) != self.times or self.rate != 1 or min(self.parts) < 1):
            raise ValueError("each sum over all units has a part, the smallest of which is 1")

    @property
    def squares(self) -> Fraction:
        """Return the sum of the squares of the parts: the cost of all sums in costs of the one with the most noise."""
        return self._together(self.parts or (Fraction(1),), Fraction(0))

    def together(self, steps: int, rounding: Fraction) -> Fraction:
        """Return the square of how far one unit moves all sums together, in steps of the noise that each draws anew.

        The noise of earlier sums follows from what was published and what their units add: where a unit comes or leaves, it moves
        later sums too, and is rounded anew in each (docs/proofs/correlated_noise.md).

        Args:
            steps: the norm of a unit's vector, in the sum with the most noise.
            rounding: the norm of a vector of as many coordinates as a sum has, each one fine step long.

        >>> two = ClippedVectors(size=1, times=2, rate=1.0, separation=2, coefficients=(1 << 15,))
        >>> two.together(4, Fraction(0)), two.together(4, Fraction(1))
        (Fraction(20, 1), Fraction(25, 1))
        """
        if self.parts is None:
            return self._together([Fraction(steps)], rounding)
        return self._together([Fraction(own) for own in self.steps_of_sums(steps)], rounding)

    def _together(self, norms: Sequence[Fraction], rounding: Fraction) -> Fraction:
        """Return `together` for the norm in each sum; a single norm counts for all sums."""
        apart = self.separation or 1
        full = self._reached(len(self.coefficients), rounding)
        columns = []
        for first in range(min(apart, self.times)):
            # Only its last sum can have fewer sums after it than there are coefficients: a unit's sums are further apart.
            last = first + (self.times - 1 - first) // apart * apart
            cut = self._reached(min(len(self.coefficients), self.times - 1 - last), rounding)
            if len(norms) == 1:
                columns.append((last - first) // apart * full(norms[0]) + cut(norms[0]))
            else:
                columns.append(sum((full(norms[at]) for at in range(first, last, apart)), cut(norms[last])))
        return max(columns)

    def _reached(self, sums: int, rounding: Fraction) -> Callable[[Fraction], Fraction]:
        """Return a function from the norm of a unit's vector to its cost, if it moves so many later sums, rounded in each."""
        whole = [Fraction(each, 1 << COEFFICIENT_BITS) for each in self.coefficients[:sums]]
        squares, linear = sum((each * each for each in whole), Fraction(1)), sum(whole, Fraction(0))
        return lambda norm: norm * norm * squares + 2 * norm * rounding * linear + sums * rounding * rounding

    def steps_of_sums(self, steps: int) -> tuple[int, ...]:
        """Return the norm of a unit's vector in steps of the noise, sum by sum. With less noise, the norm has more steps.

        Args:
            steps: of the sum with the most noise.

        >>> ClippedVectors(size=10, times=2, rate=1.0, parts=(Fraction(1), Fraction(3, 2))).steps_of_sums(5)
        (5, 8)
        """
        return (steps,) * self.times if self.parts is None else tuple(math.ceil(steps * part) for part in self.parts)

    @property
    def width(self) -> int:
        """Return the number of integers of one sum."""
        return self.size

    @property
    def name(self) -> str:
        """Return a name that two descriptions share only if they are the same."""
        over = "" if self.rate == 1 else f" over a sample of {self.rate!r} of the units"
        if self.separation is not None:
            over = f" over one of {self.separation} groups of units"
        noise = "" if self.parts is None else f" with noise by 1 / ({', '.join(str(part) for part in self.parts)})"
        if self.coefficients:
            digest = hashlib.sha256(",".join(map(str, self.coefficients)).encode()).hexdigest()[:16]
            noise = f" with noise that counts in the {len(self.coefficients)} sums after it ({digest})"
        return f"{self.times} sum{'s' if self.times > 1 else ''} of {self.size} coordinates{over}{noise}"

    @property
    def shape(self) -> Shape:
        """Return how far one unit moves all sums together, if each takes all units: an L2 norm of sqrt(times) units of change."""
        whole = math.ceil(self.squares)
        return Shape(unit=1 << 40, coordinates=self.size * self.times, per_coordinate=1, in_total=whole)
