"""Cells around declared candidates: below the first, on it, between it and the next, and so on; for exact ranks of candidates.

In: one Arrow array of numbers. Out: int32 numbers of cells, null where a value is null. Holds: the cell of a row depends on
that row alone; each value that is not null is in exactly one cell. Not covered: which candidate is chosen (selection).
"""

import dataclasses
import hashlib

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.kernels.columns.column_types import check_value_type
from dp_pipelines.kernels.lattice import numbers_and_nulls

MOST_ROWS = 2**40
"""Counts above this are taken for it, one by one, so that scores fit int64; it can only bring two of them closer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Around:
    """Cells around candidates, and the quantile that is looked for.

    Args:
        candidates: rising.
        part, whole: the quantile as a fraction.

    >>> Around(candidates=(1.0, 5.0), part=1, whole=2).of(pa.array([0.0, 1.0, 3.0, 5.0, 9.0, None])).to_pylist()
    [0, 1, 2, 3, 4, None]
    """

    candidates: tuple[float, ...]
    part: int
    whole: int

    @property
    def count(self) -> int:
        """Return the number of cells."""
        return 2 * len(self.candidates) + 1

    @property
    def finest(self) -> "Around":
        """Return the cells from which these can be computed: quantiles over the same candidates share their counts."""
        return dataclasses.replace(self, part=0, whole=1)

    @property
    def name(self) -> str:
        """Return the cells and the quantile in words."""
        short = hashlib.sha256(repr(self.candidates).encode()).hexdigest()[:16]
        return f"{len(self.candidates)} candidates, quantile {self.part}/{self.whole}, {short}"

    def of(self, column: pa.Array) -> pa.Array:
        """Return the cell of each value of a column of numbers."""
        values, nulls = numbers_and_nulls(column)
        edges = np.array(self.candidates)
        # Candidates below the value, and candidates at or below it: equal where it is none of them.
        cells = np.searchsorted(edges, values, side="left") + np.searchsorted(edges, values, side="right")
        return pa.array(np.minimum(cells, self.count - 1).astype(np.int32), mask=nulls)

    def check(self, kind: pa.DataType, column: str) -> None:
        """Refuse columns that are no numbers. Errors as for `column_types.check_value_type`."""
        check_value_type(kind, column)

    def scores(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return minus the distance of each candidate's rank from the quantile, times `whole`.

        That is -|(whole - part) less - part more|, of the values below and above the candidate.

        Args:
            counts: (partitions, cells).

        >>> Around(candidates=(1.0, 5.0), part=1, whole=2).scores(np.array([[3, 0, 1, 2, 0]])).tolist()
        [[0, -4]]
        """
        capped = np.minimum(counts, MOST_ROWS)
        # Sums of up to 2**17 cells of 2**40 would pass what scores may be: clipped again, monotonically.
        upto = np.minimum(np.cumsum(capped, axis=1), MOST_ROWS)
        onward = np.minimum(np.cumsum(capped[:, ::-1], axis=1)[:, ::-1], MOST_ROWS)
        less, more = upto[:, 0:-1:2], onward[:, 2::2]
        return -np.abs((self.whole - self.part) * less - self.part * more)
