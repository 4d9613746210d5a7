"""The total amount of a column for each privacy unit, including rows that the bounds drop: whole numbers, in any order.

In: values of rows, the end to which a sum clamps them (its other end is 0). Out: the amount of each row in parts of that end, and
sums of amounts. Holds: a value on the other side of 0 counts as 0; an amount is rounded down; sums are exact below
`MOST_OF_UNIT`, and stay there from then on, in any order. Not covered: the counted part of it (`unit_facts`).
"""

import math

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.kernels.keys import Codes
from dp_pipelines.kernels.lattice import Floats

PARTS_OF_END = 2**24
"""The end of a clamp is so many parts."""

MOST_OF_ROW = 2**12 * PARTS_OF_END
"""A row has no larger amount: 2**20 rows of a batch, and a hundred million of a shard, add up within int64."""

MOST_OF_UNIT = 2**20 * PARTS_OF_END
"""From here on all amounts of a unit are one."""

FIRST_EDGE = 2**12
"""Smaller amounts have a cell together; who has none has another one, for nothing of it can be cut off."""

LARGEST_END = MOST_OF_ROW // PARTS_OF_END
"""The last cell begins at no more than so many times the end of the clamp: a row with a larger value is in it."""


def of_values(values: Floats, end: float) -> NDArray[np.int64]:
    """Return the amounts of rows.

    Args:
        values: without NaN.
        end: that of the clamp which is not 0.

    >>> (of_values(np.array([5.0, -1.0, 20.0, 1e300]), 10.0) / PARTS_OF_END).tolist()
    [0.5, 0.0, 2.0, 4096.0]
    >>> (of_values(np.array([5.0, -1.0]), -2.0) / PARTS_OF_END).tolist()
    [0.0, 0.5]
    """
    with np.errstate(over="ignore"):
        parts = np.clip(values / end, 0.0, MOST_OF_ROW / PARTS_OF_END) * PARTS_OF_END
    return parts.astype(np.int64)


def sums(codes: Codes, amounts: Codes, size: int) -> Codes:
    """Return the sum of the amounts of each code.

    >>> (sums(np.array([0, 0, 1]), np.array([MOST_OF_UNIT, 1, 3]), 2) == [MOST_OF_UNIT, 3]).all()
    np.True_
    """
    totals = np.zeros(size, np.int64)
    np.add.at(totals, codes, amounts)
    return np.minimum(totals, MOST_OF_UNIT)


def edges(most: int) -> tuple[int, ...]:
    """Return where the cells of amounts begin: at 0, at the least amount, and at amounts that grow by factors of sqrt(2).

    Args:
        most: the last cell begins at so many times the end of the clamp, or at `LARGEST_END` times.

    >>> [edge / PARTS_OF_END for edge in edges(2)[-3:]], len(edges(1))
    ([1.0, 1.4142135381698608, 2.0], 27)
    """
    last = min(most, LARGEST_END) * PARTS_OF_END
    steps = range(2 * (last // FIRST_EDGE).bit_length())
    growing = (math.isqrt(FIRST_EDGE**2 << power) for power in steps)
    return (0, 1, *(edge for edge in growing if edge < last), last)
