"""Groups units with a similar number of rows, so that programs meet few shapes.

In: where each unit's rows begin. Out: blocks of units that each take up the same number of rows. Holds: each unit with
a row is in one block; its place there depends on the other units, its content does not. Not covered: the rows
themselves.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """Some units.

    Args:
        rows: (units, size): the positions of the rows; a unit with fewer repeats its last one, and an empty place has
            the very first.
        used: (units, size): which of them count.
    """

    rows: Places
    used: NDArray[np.bool_]

    @property
    def size(self) -> int:
        """How many rows a unit takes."""
        return int(self.rows.shape[1])


def blocks(starts: Places, sizes: Sequence[int], units: Callable[[int], int]) -> Iterator[Block]:
    """All units with at most `sizes[-1]` rows, grouped by size.

    Args:
        starts: the rows of unit i are `starts[i]:starts[i + 1]`.
        sizes: ascending; a unit takes up the first that holds its rows.
        units: how many units are in a block, by size; the last of a size has empty places.

    >>> for block in blocks(np.array([0, 1, 4, 5]), (1, 4), lambda size: 4 // size):
    ...     block.rows.tolist(), block.used.tolist()
    ([[0], [4], [0], [0]], [[True], [True], [False], [False]])
    ([[1, 2, 3, 3]], [[True, True, True, False]])
    """
    counts = np.diff(starts)
    least = 0
    most = counts.max(initial=0)
    for size in sizes:
        if least >= most:
            return
        members = np.flatnonzero((counts > least) & (counts <= size))
        least, many, steps = size, units(size), np.arange(size)
        for first in range(0, len(members), many):
            own = members[first : first + many]
            rows, used = np.zeros((many, size), np.int64), np.zeros((many, size), np.bool_)
            used[: len(own)] = steps < counts[own, None]
            rows[: len(own)] = starts[own, None] + np.minimum(steps, counts[own, None] - 1)
            yield Block(rows, used)
