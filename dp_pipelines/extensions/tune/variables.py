"""The numbers that remain of a partition after bounding: rows, units, values, sums.

In: the values of a column, a number for each row. Out: for each variable a number for each row, and what becomes of
their sum. Holds: no other module asks which variable it has, except for the three constants. Not covered: what bounding
keeps of them (`bounding_moments`).
"""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Variable(abc.ABC):
    """A number that remains of a partition after bounding.

    Args:
        column: the column of the numbers; "" if there are none.
        centre: subtracted from each number, but not from nulls.
    """

    column: str = ""
    centre: float = 0.0

    by_rows: ClassVar[bool] = False
    """Whether the bound on rows affects it."""

    @abc.abstractmethod
    def numbers(self, values: Floats) -> Floats:
        """A number for each row.

        Args:
            values: of the column; NaN for a null.
        """

    def total(self, sums: Floats) -> Floats:
        """The contribution of a unit to one partition, given the sum of its numbers there."""
        return sums

    def simpler(self, has_nulls: Callable[[str], bool]) -> "Variable":
        """A simpler variable with the same values, if there is one.

        Args:
            has_nulls: whether a column has any.
        """
        return self


@dataclasses.dataclass(frozen=True)
class KeptRows(Variable):
    """The number of rows."""

    by_rows = True

    def numbers(self, values: Floats) -> Floats:
        """See `Variable`."""
        return np.ones(len(values))


@dataclasses.dataclass(frozen=True)
class KeptUnits(Variable):
    """The number of units: one for each unit, however many rows it has."""

    def numbers(self, values: Floats) -> Floats:
        """See `Variable`: no row has a part of it."""
        raise AssertionError("units are counted by pairs, not by rows")


@dataclasses.dataclass(frozen=True)
class KeptWeights(KeptUnits):
    """Of units: 1 over the square root of how many partitions they keep."""


@dataclasses.dataclass(frozen=True)
class KeptValues(Variable):
    """How many values are not null."""

    by_rows = True

    def numbers(self, values: Floats) -> Floats:
        """See `Variable`."""
        return (~np.isnan(values)).astype(np.float64)

    def simpler(self, has_nulls: Callable[[str], bool]) -> Variable:
        """See `Variable`: rows, where each has a value."""
        return self if has_nulls(self.column) else ROWS


@dataclasses.dataclass(frozen=True)
class ClampedSum(Variable):
    """The sum of numbers clamped to [low, high], less the centre; a null adds nothing.

    >>> ClampedSum("price", low=0.0, high=5.0, centre=2.0).numbers(np.array([9.0, 1.0, math.nan])).tolist()
    [3.0, -1.0, 0.0]
    """

    low: float = -math.inf
    high: float = math.inf

    by_rows = True

    def numbers(self, values: Floats) -> Floats:
        """See `Variable`."""
        clamped = np.clip(values, self.low, self.high) - self.centre
        return np.where(np.isnan(clamped), 0.0, clamped)


@dataclasses.dataclass(frozen=True)
class ClippedSum(Variable):
    """Sums of a unit's rows in the partition, each clipped to [low, high]."""

    low: float = -math.inf
    high: float = math.inf

    def numbers(self, values: Floats) -> Floats:
        """See `Variable`."""
        return np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf)

    def total(self, sums: Floats) -> Floats:
        """See `Variable`."""
        return np.clip(np.nan_to_num(sums), self.low, self.high)


ROWS, UNITS, WEIGHTS = KeptRows(), KeptUnits(), KeptWeights()
