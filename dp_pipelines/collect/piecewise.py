"""The piecewise mechanism: a number near the true one, more often than one elsewhere.

In: a point of a public grid. Out: a point of a finer and wider one. Holds: docs/proofs/local.md, "Piecewise". Not covered: small
epsilons, where one bit tells more.
"""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dp_pipelines.collect.coins import Coins
from dp_pipelines.collect.exp_bound import exp_below
from dp_pipelines.collect.randomizer import Randomizer

FINER = 64
"""Points of the window for each step of the grid: the window's share of all points is right within one in 64."""


@dataclass(frozen=True)
class Piecewise(Randomizer):
    """The first coins name any point; all further ones a point of a window that begins at `shift` times the index.

    `size` is the number of points of the grid; one less is a power of two. The mean of a report grows by the same amount from
    point to point, so estimates are exactly unbiased.

    Source: Wang, Xiao, Yang, Zhao, Hui, Shin, Shin, Yu, ICDE 2019, algorithm 2, with points instead of densities; the window has
    the share 1 / (e^(epsilon/2) + 1) of all points, as there.

    >>> from decimal import Decimal
    >>> float(Piecewise(Decimal(4), size=1025).ratio()) <= 54.598150033144236
    True
    """

    name: ClassVar[str] = "piecewise"

    @property
    def fields(self) -> tuple[str, ...]:
        return ("point",)

    @cached_property
    def window(self) -> int:
        """A power of two: how many points the window has."""
        return FINER * (self.size - 1)

    @cached_property
    def shift(self) -> int:
        """Points by which the window moves from one point of the grid to the next."""
        return max(1, round(FINER * exp_below(self.epsilon / Decimal(2))))

    @cached_property
    def points(self) -> int:
        """How many points a report may name."""
        return self.window + self.shift * (self.size - 1)

    @cached_property
    def any_point(self) -> int:
        """Outcomes of the coin that name one certain point, whatever the value: a multiple of the window, as is the rest."""
        needed = self.weight_for(self.window * self.exp_epsilon + self.points - self.window)
        return -(-needed // self.window) * self.window

    @cached_property
    def near_point(self) -> int:
        """Further outcomes that name one certain point of the window."""
        return self.chances_left() // self.window

    def chances_left(self) -> int:
        return self.coins - self.points * self.any_point

    def ratio(self) -> Fraction:
        return Fraction(self.any_point + self.near_point, self.any_point)

    def parameters(self) -> dict[str, int]:
        return {
            "points": self.points,
            "shift": self.shift,
            "any_point": self.any_point,
            "near_point": self.near_point,
        }

    def respond(self, index: int, coins: Coins) -> tuple[int, ...]:
        coin = coins.draw(self.bits)
        shared = self.points * self.any_point
        if coin < shared:
            return (coin // self.any_point,)
        return (self.shift * index + (coin - shared) // self.near_point,)
