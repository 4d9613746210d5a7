"""Cells around even points of a range, and the fixed number of values, out of their counts, that a median is taken of.

In: one Arrow array of numbers; later, counts by point. Out: int32 numbers of points, null where a value is null; the middle
values of each partition, as points. Holds: the point of a row depends on that row alone; one row more or less changes one of
the middle values at most (docs/proofs/smooth_sensitivity.md, lemma 1). Not covered: the median and its noise
(noise.smooth_sensitivity).
"""

import dataclasses

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.kernels.columns.column_types import check_value_type
from dp_pipelines.kernels.lattice import numbers_and_nulls

STEPS = 60_000
"""Steps of the range: most that fit a statistic with cells and divide decimal fractions and halves alike."""

MOST_ROWS = 2**40
"""Counts above this are taken for it: sums of them fit int64, and one row still moves one count by one at most."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Points:
    """Values rounded to the nearest of `STEPS + 1` even points of a range; what lies outside is clamped.

    Args:
        low, high: the range.
        numbers: of how many values, fixed by the plan, a median is taken.
        steps: from the lowest to the highest point.

    >>> Points(low=0.0, high=6.0, numbers=3).of(pa.array([-1.0, 0.0, 0.00014, 6.0, None])).to_pylist()
    [0, 0, 1, 60000, None]
    """

    low: float
    high: float
    numbers: int
    steps: int = STEPS

    @property
    def count(self) -> int:
        """Return the number of points."""
        return self.steps + 1

    @property
    def finest(self) -> "Points":
        """Return the cells from which these can be computed: counts do not depend on how many values there should be."""
        return dataclasses.replace(self, numbers=0)

    @property
    def name(self) -> str:
        """Return the points in words, the same for the same points only."""
        return f"{self.steps} steps of [{self.low!r}, {self.high!r}], {self.numbers} values"

    def of(self, column: pa.Array) -> pa.Array:
        """Return the point nearest to each value of a column of numbers."""
        values, nulls = numbers_and_nulls(column)
        # Halves, so that a range of almost all numbers does not overflow.
        part = (np.clip(values, self.low, self.high) / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        cells = np.clip(np.rint(part * self.steps), 0, self.steps).astype(np.int32)
        return pa.array(cells, mask=nulls)

    def check(self, kind: pa.DataType, column: str) -> None:
        """Refuse columns other than numbers. Errors as for `column_types.check_value_type`."""
        check_value_type(kind, column)

    def middle(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return exactly `numbers` values of a partition, rising: the middle ones, filled up with ends of the range.

        If there are fewer values, lowest points are added below them and highest points above them.

        Args:
            counts: of each point.

        >>> points, counts = Points(low=0.0, high=1.0, numbers=3), np.zeros(STEPS + 1, np.int64)
        >>> counts[[5, 7]] = [1, 4]
        >>> points.middle(counts).tolist(), points.middle(0 * counts).tolist()
        ([7, 7, 7], [0, 0, 60000])
        """
        upto = np.cumsum(np.minimum(counts, MOST_ROWS))
        first = (int(upto[-1]) - self.numbers) // 2 + 1  # the place of the first one, from 1; it may lie below
        places = np.searchsorted(upto, np.arange(first, first + self.numbers), side="left")
        return np.minimum(places, self.steps)

    def value(self, part: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the number at a part of the way from the lowest to the highest point."""
        values: NDArray[np.float64] = np.clip(self.low * (1 - part) + self.high * part, self.low, self.high)
        return values
