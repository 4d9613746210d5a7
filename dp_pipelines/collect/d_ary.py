"""D-ary randomized response: the true value, or any of them at random. With two values, Warner's randomized response.

In: an index. Out: an index. Holds: docs/proofs/local.md, "D-ary randomized response". Not covered: long lists of values, for
which the others say more.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dp_pipelines.collect.coins import Coins
from dp_pipelines.collect.randomizer import Randomizer


@dataclass(frozen=True)
class DAry(Randomizer):
    """One coin decides all: its first `size * other` outcomes name each value equally often, all others the true one.

    So every other value has the chance q = other / coins, and the true one has p = q + (coins - size * other) / coins.

    Source: Warner, JASA 1965; Kairouz, Bonawitz, Ramage, ICML 2016 (k-ary randomized response).

    >>> from decimal import Decimal
    >>> yes_or_no = DAry(Decimal(1), size=2)
    >>> round(yes_or_no.other / yes_or_no.coins, 12)  # 1 / (e + 1)
    0.26894142137
    """

    name: ClassVar[str] = "d_ary"

    @property
    def fields(self) -> tuple[str, ...]:
        return ("value",)

    @cached_property
    def other(self) -> int:
        """Outcomes of the coin that name one certain value which is not the true one."""
        return self.weight_for(self.exp_epsilon + self.size - 1)

    def chances_left(self) -> int:
        return self.coins - self.size * self.other

    def ratio(self) -> Fraction:
        return Fraction(self.other + self.chances_left(), self.other)

    def parameters(self) -> dict[str, int]:
        return {"other": self.other}

    def respond(self, index: int, coins: Coins) -> tuple[int, ...]:
        coin = coins.draw(self.bits)
        return (coin // self.other if coin < self.size * self.other else index,)
