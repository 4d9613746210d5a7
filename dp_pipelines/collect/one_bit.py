"""One bit for a mean: yes or no, with a chance that grows with the number.

In: a point of a public grid. Out: 0 or 1. Holds: docs/proofs/local.md, "One bit". Not covered: large epsilons, where the
piecewise mechanism tells more.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dp_pipelines.collect.coins import Coins
from dp_pipelines.collect.randomizer import Randomizer


@dataclass(frozen=True)
class OneBit(Randomizer):
    """The chance of a 1 grows by the same whole number of coins from each point of the grid to the next.

    So estimates are exactly unbiased. `size` is the number of points; one less is a power of two.

    Source: Duchi, Jordan, Wainwright, JASA 2018, section 4.2.

    >>> from decimal import Decimal
    >>> float(OneBit(Decimal(1), size=1025).ratio())
    2.7182818284...
    """

    name: ClassVar[str] = "one_bit"

    @property
    def fields(self) -> tuple[str, ...]:
        return ("bit",)

    @cached_property
    def lowest(self) -> int:
        """Outcomes of the coin that say 1 at the lowest point; as many say 0 at the highest."""
        whole = max(1, (self.size - 1) // 2)
        return -(-self.weight_for(self.exp_epsilon + 1) // whole) * whole

    @cached_property
    def step(self) -> int:
        """Further outcomes that say 1 for each point of the grid."""
        return self.chances_left() // (self.size - 1)

    def chances_left(self) -> int:
        return self.coins - 2 * self.lowest

    def ratio(self) -> Fraction:
        return Fraction(self.coins - self.lowest, self.lowest)

    def parameters(self) -> dict[str, int]:
        return {"lowest": self.lowest, "step": self.step}

    def respond(self, index: int, coins: Coins) -> tuple[int, ...]:
        return (int(coins.draw(self.bits) < self.lowest + index * self.step),)
