"""What all local randomizers share: chances in whole multiples of 2^-bits, rounded so that epsilon holds.

In: an index of the public alphabet, and coins. Out: a report of whole numbers. Holds: `ratio` is the largest ratio of the
chances of one report under two indices, exactly, and `weight_for` never lets it exceed e^epsilon. Not covered: estimates from
reports.
"""

import abc
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dp_pipelines.collect.coins import Coins
from dp_pipelines.collect.exp_bound import exp_below
from dp_pipelines.errors import RequestError

BITS = 52
"""Bits of a coin: JavaScript counts with 53."""


@dataclass(frozen=True)
class Randomizer(abc.ABC):
    """A mechanism that a device applies to its own value.

    Args:
        epsilon: the guarantee of one report: whatever the value, each report is at most e^epsilon times as likely as under
            another.
        size: how many values there are, at least 2; they are called by their index from 0.
        bits: bits of each coin. Fewer are for tests, which enumerate all coins.

    >>> from dp_pipelines.collect.d_ary import DAry
    >>> randomizer: Randomizer = DAry(Decimal(1), 3)
    >>> randomizer.ratio() <= randomizer.exp_epsilon
    True
    """

    epsilon: Decimal
    size: int
    bits: int = BITS

    name: ClassVar[str]
    """What question files call it."""

    def __post_init__(self) -> None:
        if self.chances_left() <= 0:
            raise RequestError(
                field="epsilon",
                message=f"is too small for {self.size} values: a report would say nothing at a precision of 2^-{self.bits}",
                hint="take a larger epsilon or fewer values",
            )

    @property
    @abc.abstractmethod
    def fields(self) -> tuple[str, ...]:
        """Names of the numbers of a report, in their order."""

    @cached_property
    def coins(self) -> int:
        """How many outcomes one coin has."""
        return 1 << self.bits

    def weight_for(self, outcomes: Fraction) -> int:
        """The least number of outcomes that is at least the share of one in `outcomes`, a lower bound of the true number."""
        return math.ceil(self.coins / outcomes)

    @cached_property
    def exp_epsilon(self) -> Fraction:
        """A lower bound of e^epsilon."""
        return exp_below(self.epsilon)

    @abc.abstractmethod
    def chances_left(self) -> int:
        """Coins by which a report tells about its value; not above 0 if it cannot tell anything."""

    @abc.abstractmethod
    def ratio(self) -> Fraction:
        """The largest ratio of the chances of a report under two values, exactly. It is at most e^epsilon."""

    @abc.abstractmethod
    def parameters(self) -> dict[str, int]:
        """The public whole numbers by which any device can answer, e.g. one that runs JavaScript."""

    @abc.abstractmethod
    def respond(self, index: int, coins: Coins) -> tuple[int, ...]:
        """The report of a device whose value has `index`.

        Args:
            index: 0 to `size` - 1.
            coins: fresh coins.

        Returns:
            As many whole numbers as `fields` has names.
        """
