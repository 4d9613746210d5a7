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
        parts: of each sum, how many times less noise it has than the one with the most; None: all have the same. Only where each
            sum takes all units.

    >>> ClippedVectors(size=10, times=80, rate=1.0).name
    '80 sums of 10 coordinates'
    """

    size: int
    times: int
    rate: float
    parts: tuple[Fraction, ...] | None = None

    def __post_init__(self) -> None:
        if self.parts is not None and (len(self.parts) != self.times or self.rate != 1 or min(self.parts) < 1):
            raise ValueError("each sum over all units has a part, the smallest of which is 1")

    @property
    def squares(self) -> Fraction:
        """The sum of the squares of the parts: what all sums together cost, in those of the one with the most noise."""
        return Fraction(self.times) if self.parts is None else sum((part * part for part in self.parts), Fraction(0))

    def steps_of_sums(self, steps: int) -> tuple[int, ...]:
        """The norm of a unit's vector in steps of the noise, sum by sum: less noise is a longer vector beside the same noise.

        Args:
            steps: of the sum with the most noise.

        >>> ClippedVectors(size=10, times=2, rate=1.0, parts=(Fraction(1), Fraction(3, 2))).steps_of_sums(5)
        (5, 8)
        """
        return (steps,) * self.times if self.parts is None else tuple(math.ceil(steps * part) for part in self.parts)

    @property
    def width(self) -> int:
        """How many integers one sum has."""
        return self.size

    @property
    def name(self) -> str:
        """A name that two descriptions share only if they are the same."""
        over = "" if self.rate == 1 else f" over a sample of {self.rate!r} of the units"
        noise = "" if self.parts is None else f" with noise by 1 / ({', '.join(str(part) for part in self.parts)})"
        return f"{self.times} sum{'s' if self.times > 1 else ''} of {self.size} coordinates{over}{noise}"

    @property
    def shape(self) -> Shape:
        """How far one unit moves all sums together, where each takes all units: by an L2 norm of sqrt(times) units of change."""
        whole = math.ceil(self.squares)
        return Shape(unit=1 << 40, coordinates=self.size * self.times, per_coordinate=1, in_total=whole)
