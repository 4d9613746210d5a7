"""The median of a public number of values, with noise scaled to its smooth sensitivity: the metric `SmoothMedian`.

In: a column, the number of its values and their range. Out: a number in the range. Holds: bounds under which its record
would not hold are refused, since the proof covers one value of each unit (docs/proofs/smooth_sensitivity.md). Not covered: job
files, which cannot ask for it; a standard deviation, which would be private.
"""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import sizes
from dp_pipelines.kernels.grid_cells import STEPS, Points
from dp_pipelines.kernels.statistics import MedianCounts, Statistic
from dp_pipelines.metrics.base import Basis, Metric, Noisy, ReleasedValues


@dataclasses.dataclass(frozen=True)
class SmoothMedian(Metric):
    """The median of a public number of values, with noise scaled to its smooth sensitivity. Made by `dp_pipelines.Blocks`.

    Args:
        column: holds the values, one of each unit.
        blocks: the number of values.
        low, high: the range of a value.

    Raises:
        RequestError: an argument is out of its range, or the range has no room for the steps of the median.

    >>> SmoothMedian(column="value", blocks=10, low=0.0, high=1.0).statistics(Basis(centred=False, nullable=True))[0].kind
    'smooth_median'
    """

    stddev_is_public = False
    has_stddev = False
    takes_delta = True
    column: str = dataclasses.field(kw_only=True)  # type: ignore[misc]  # narrows the class variable
    blocks: int = dataclasses.field(kw_only=True)
    low: float = dataclasses.field(kw_only=True)
    high: float = dataclasses.field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole(self.blocks, "blocks", low=2, high=sizes.MOST_SHARDS)
        for field in ("low", "high"):
            checks.number(getattr(self, field), field, above=-1e300, below=1e300)
        if not np.spacing(max(abs(self.low), abs(self.high))) * STEPS <= self.high - self.low:
            message = f"is too close to high for {STEPS} steps between them"
            raise RequestError(field="low", message=message, hint="widen the range, or use method ranks")

    def settled(self, *, partitions: int, rows: int) -> "SmoothMedian":
        """Return itself if its record holds under these bounds of one unit."""
        if partitions != 1 or rows != 1:
            message = "must be 1 for a median with smooth sensitivity: one unit has one value"
            raise RequestError(field="max_contributions_per_partition", message=message, hint="write 1 for both bounds")
        return self

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        points = Points(low=self.low, high=self.high, numbers=self.blocks)
        return (MedianCounts(column=self.column, cells=points),)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        (statistic,) = self.statistics(basis)
        assert isinstance(statistic.cells, Points)
        values = statistic.cells.value(noisy[statistic].values)
        return values, np.full(len(values), math.nan)
