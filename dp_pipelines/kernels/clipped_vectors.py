"""Sums of one vector per unit, each clipped to a norm, released several times over: what training is made of.

In: how long the vectors are, how often a sum is released and over which part of the units. Out: a frozen description that plans
pay for. Holds: a unit moves each sum by an L2 norm of one unit of change, the norm that it is clipped to. Not covered: the
vectors (`dp_pipelines.training` computes them, sum by sum, outside of the aggregate path).
"""

import dataclasses
import math
from fractions import Fraction

from dp_pipelines.kernels.sensitivity import Shape

SCALE = 2**22
"""The standard deviation of the noise of a sum, in steps of the fine lattice on which it is drawn (training.noise)."""

LEAST_MULTIPLIER = Fraction(1, 64)
"""Of the noise of a sum over the norm of its vectors."""


def fits(size: int, multiplier: Fraction) -> bool:
    """Whether vectors of so many coordinates can be summed on the fine lattice: rounding is to be less than half of a vector.

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

    >>> ClippedVectors(size=10, times=80, rate=1.0).name
    '80 sums of 10 coordinates'
    """

    size: int
    times: int
    rate: float

    @property
    def width(self) -> int:
        """How many integers one sum has."""
        return self.size

    @property
    def name(self) -> str:
        """A name that two descriptions share only if they are the same."""
        over = "" if self.rate == 1 else f" over a sample of {self.rate!r} of the units"
        return f"{self.times} sum{'s' if self.times > 1 else ''} of {self.size} coordinates{over}"

    @property
    def shape(self) -> Shape:
        """How far one unit moves all sums together, where each takes all units: by an L2 norm of sqrt(times) units of change."""
        return Shape(unit=1 << 40, coordinates=self.size * self.times, per_coordinate=1, in_total=self.times)
