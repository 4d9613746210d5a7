"""Optimised unary encoding: one bit for each value, each answered at random by itself.

In: an index. Out: words of 32 bits; bit v % 32 of word v // 32 says yes or no to value v. Holds: docs/proofs/local.md, "Unary
encoding". Not covered: the length of a report, which grows with the number of values.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dp_pipelines.collect.coins import Coins
from dp_pipelines.collect.randomizer import Randomizer

WORD = 32
"""Values that share a number of a report: every reader of JSON keeps 32 bits."""


@dataclass(frozen=True)
class UnaryEncoding(Randomizer):
    """The bit of the true value is one in half of all cases, any other with chance q = one / coins, about 1 / (e^epsilon + 1).

    Source: Wang, Blocki, Li, Jha, USENIX Security 2017 (optimized unary encoding).

    >>> from decimal import Decimal
    >>> unary = UnaryEncoding(Decimal(1), size=32)
    >>> round(unary.one / unary.coins, 12)
    0.26894142137
    """

    name: ClassVar[str] = "unary"

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(f"ones_{word}" for word in range(-(-self.size // WORD)))

    @cached_property
    def one(self) -> int:
        """Outcomes of a coin for which the bit of a value that is not the true one is one."""
        return self.weight_for(self.exp_epsilon + 1)

    def chances_left(self) -> int:
        return self.coins // 2 - self.one

    def ratio(self) -> Fraction:
        # Two values differ in two bits: (1/2) (1 - q) against (1/2) q.
        return Fraction(self.coins - self.one, self.one)

    def parameters(self) -> dict[str, int]:
        return {"one": self.one}

    def respond(self, index: int, coins: Coins) -> tuple[int, ...]:
        half, one, words = self.coins // 2, self.one, [0] * len(self.fields)
        for value in range(self.size):
            words[value // WORD] |= (coins.draw(self.bits) < (half if value == index else one)) << value % WORD
        return tuple(words)
