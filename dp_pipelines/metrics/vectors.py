"""Sums of vectors, and second moments of several columns, for each partition: metrics.

In: a column of lists and a norm; or columns of numbers with ranges or a norm. Out: the metrics `VectorSum` and `SecondMoment`,
each of which publishes a list for a partition. Holds: what one unit moves is bounded by the norm for all coordinates together,
in integers (docs/proofs/vectors.md), so that the noise of a coordinate under an L2 norm does not grow with their number. Not
covered: the error from clipping. With thousands of coordinates and a small budget the noise grows, to twice at most, because a
unit's vector is rounded on a lattice as fine as our noise tables allow; beyond that the plan is refused.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args

import numpy as np
import pyarrow as pa

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns.lists import check_lists
from dp_pipelines.kernels.moments import LARGEST, MOST_FEATURES, Moments
from dp_pipelines.kernels.statistics import ProductSums, Statistic, VectorSums
from dp_pipelines.kernels.vectors import MOST_COORDINATES, VectorLattice
from dp_pipelines.kernels.vectors import Norm as Norm
from dp_pipelines.metrics.base import Basis, Metric, Noisy, ReleasedValues
from dp_pipelines.metrics.good_from import WITHIN, GoodFrom, Level, reach

LARGEST_NORM = 2.0**900
"""The largest norm of a vector; its inverse is the smallest. Lattice steps and their inverses then fit float64."""

LARGEST_FEATURE = 1e150
"""The largest bound of a feature; its inverse is the smallest. Products then fit float64."""


@dataclasses.dataclass(frozen=True)
class VectorSum(Metric):
    """The sum of a column's lists of numbers, coordinate by coordinate.

    Args:
        column: lists of numbers, of fixed size or not, e.g. embeddings.
        size: how many numbers each list has, at most 4,096. A list of another size, or with a null or NaN in it, counts as null.
        norm: `l2`, `l1` or `linf`.
        max_norm: the sum of one unit's lists in one partition is scaled down to this norm where it exceeds it (with `linf` each
            coordinate is clamped to it by itself). All rows of a unit's kept partitions count, so rows need no bound. A single
            row is first scaled down to 64 times the norm or more; infinite coordinates outweigh all others.

    Published as a list, and as the standard deviation of the noise of each coordinate. Not with `max_contributions`, which
    bounds rows in all.

    >>> VectorSum("embedding", size=256, max_norm=1.0).statistics(Basis(centred=False, nullable=True))[0].width
    256
    """

    kind, words, shown_as = "vector_sum", "the sum of a column’s lists, number by number", "list"
    judged = "zero"
    needs_row_bound = False
    clips_partition_sums = True
    many = True
    column: str  # type: ignore[misc]  # narrows the class variable of metrics without a column
    size: Annotated[int, checks.Whole(low=1, high=MOST_COORDINATES, hint="declare how many numbers each list has")] = (
        dataclasses.field(kw_only=True)
    )
    norm: Norm = dataclasses.field(default="l2", kw_only=True)
    max_norm: float = dataclasses.field(kw_only=True)

    def __post_init__(self) -> None:
        _refuse_stddev(self)
        super().__post_init__()
        checks.name(self.column, "column")
        if not isinstance(self.norm, str) or self.norm not in get_args(Norm):
            raise RequestError(field="norm", message="must be one of " + ", ".join(get_args(Norm)))
        object.__setattr__(self, "max_norm", _max_norm(self.max_norm, LARGEST_NORM))

    def check_column(self, kind: pa.DataType) -> None:
        """Refuse a column that is not of lists of numbers, or of another fixed size. Errors as for any metric."""
        check_lists(kind, self.column, self.size)

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        lattice = VectorLattice(size=self.size, norm=self.norm, max_norm=self.max_norm)
        return (VectorSums(column=self.column, vectors=lattice),)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        sums = noisy[self.statistics(basis)[0]]
        return sums.values, np.full(sums.values.shape, sums.stddev)

    def good_from(self, levels: Mapping[Statistic, Level], basis: Basis) -> tuple[GoodFrom, ...]:
        far = reach([(1.0, levels[self.statistics(basis)[0]])]) / self.max_norm
        promise = f"each number within {WITHIN:.0%} of {self.max_norm:.4g} a user"
        return (GoodFrom(promise=promise, least=far / WITHIN, of="users", noise_below=far, guessed_by="users"),)


@dataclasses.dataclass(frozen=True)
class SecondMoment(Metric):
    """The sums over rows of x_i x_j, for each two of some columns: what a covariance matrix or a whitening is made of.

    Args:
        columns: at most 64 columns of numbers. A row with a null or NaN in one of them counts nothing.
        bounds: for each column (least, greatest): values are clamped. The noise of an entry follows its two ranges.
        max_norm: instead of bounds: each row, as a vector, is scaled down to this L2 norm where it exceeds it. The noise is the
            same for all entries, and for many columns far smaller.

    Published as a list: the upper triangle row by row, x_1 x_1, x_1 x_2, .., x_2 x_2, ..; and the standard deviation of the noise
    of each entry. Rows are bounded as for `Count`; add one for the number of rows.

    >>> SecondMoment(columns=["a", "b"], bounds={"a": (0, 1), "b": (-5, 5)}).reads
    ('a', 'b')
    """

    kind, words, shown_as = "second_moments", "sums of products of columns, two by two", "list"
    judged = "zero"
    declared = ("columns",)
    many = True
    columns: Sequence[str] = dataclasses.field(kw_only=True)
    bounds: Mapping[str, Sequence[float]] | None = dataclasses.field(default=None, kw_only=True)
    max_norm: float | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _refuse_stddev(self)
        super().__post_init__()
        columns = checks.names(self.columns, "columns")
        if len(columns) > MOST_FEATURES:
            raise RequestError(field="columns", message=f"must be at most {MOST_FEATURES}", hint="choose fewer")
        object.__setattr__(self, "columns", tuple(columns))
        if (self.bounds is None) == (self.max_norm is None):
            raise RequestError(field="bounds", message="or max_norm must be given, one of the two", hint="declare one")
        if self.max_norm is not None:
            object.__setattr__(self, "max_norm", _max_norm(self.max_norm, LARGEST_FEATURE))
        else:
            object.__setattr__(self, "bounds", self._ranges(self.bounds))

    def _ranges(self, bounds: Any) -> tuple[tuple[float, float], ...]:
        # What was checked once is a tuple in the order of the columns: copies of a metric are made from its fields.
        if isinstance(bounds, tuple) and len(bounds) == len(self.columns):
            bounds = dict(zip(self.columns, bounds, strict=True))
        if not isinstance(bounds, Mapping) or set(bounds) != set(self.columns):
            raise RequestError(
                field="bounds",
                message="must map each of the columns, and no other, to its least and greatest value",
                hint="write e.g. {age: [0, 120]}",
            )
        return tuple(self._range(column, bounds[column]) for column in self.columns)

    @staticmethod
    def _range(column: str, ends: Any) -> tuple[float, float]:
        field = f"bounds.{column}"
        if not isinstance(ends, (list, tuple)) or len(ends) != 2:
            raise RequestError(field=field, message="must be two numbers", hint="write [least, greatest]")
        low, high = (checks.number(end, field, above=-LARGEST_FEATURE, below=LARGEST_FEATURE) + 0.0 for end in ends)
        if not low <= high:
            raise RequestError(
                field=field, message="must not have its least value above the greatest", hint="swap the two"
            )
        if not max(abs(low), abs(high)) > 1 / LARGEST_FEATURE:
            raise RequestError(
                field=field, message="leaves only the value 0", hint="widen the range, or drop the column"
            )
        return low, high

    def given(self, field: str) -> Any:
        declared = super().given(field)
        return (
            dict(zip(self.columns, declared, strict=True)) if field == "bounds" and declared is not None else declared
        )

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(self.columns)

    @property
    def _moments(self) -> Moments:
        ranges: Any = self.bounds
        return Moments(columns=tuple(self.columns), ranges=ranges, max_norm=self.max_norm)

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        return (ProductSums(vectors=self._moments),)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        sums, scales = noisy[self.statistics(basis)[0]], np.array(self._moments.scales)
        first, second = np.triu_indices(len(scales))
        # One after the other: the product of two scales may leave float64 where the result does not.
        stddevs = sums.stddev / scales[first] / scales[second]
        return sums.values / scales[first] / scales[second], np.broadcast_to(stddevs, sums.values.shape)

    def good_from(self, levels: Mapping[Statistic, Level], basis: Basis) -> tuple[GoodFrom, ...]:
        # In lattice steps the largest product of one row is the same for each two features.
        far = reach([(1.0, levels[self.statistics(basis)[0]])]) / LARGEST**2
        promise = f"each sum within {WITHIN:.0%} of the largest product a row"
        return (GoodFrom(promise=promise, least=far / WITHIN, of="rows", noise_below=far, guessed_by="rows"),)


def _refuse_stddev(metric: Metric) -> None:
    if metric.stddev is not None:
        message = f"is not for {type(metric).__name__}"
        raise RequestError(field="stddev", message=message, hint="write a weight instead")


def _max_norm(value: Any, largest: float) -> float:
    hint = "declare how long a vector can be, from public knowledge: a longer one is scaled down"
    return checks.number(value, "max_norm", above=1 / largest, below=largest, hint=hint)


assert math.frexp(LARGEST_NORM)[1] < 1000
