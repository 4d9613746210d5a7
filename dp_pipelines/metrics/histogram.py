"""Counts of a column's values by declared bins or categories: a metric with one count for each.

In: declared edges or values. Out: the metric `Histogram`. Holds: a row is in one bin at most, so that a unit moves as many
counts as it has rows, by as much in all.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.cells import MOST_CELLS, Bins, Categories
from dp_pipelines.kernels.statistics import CellCounts, Statistic
from dp_pipelines.metrics.base import Basis, Metric, Noisy, ReleasedValues
from dp_pipelines.metrics.good_from import GoodFrom, Level, of_count

ENDS = "no values beyond the ends are counted: write numbers that no value passes, e.g. -1.0e+9 and 1.0e+9"
"""A hint if an edge is infinite."""

MOST_BINS = 4096
assert MOST_BINS <= MOST_CELLS


@dataclasses.dataclass(frozen=True)
class Histogram(Metric):
    """The number of rows in each bin, or of each category.

    Args:
        column: the column whose values are counted.
        edges: rising; bin i holds edges[i] <= value < edges[i + 1], the last one its end too. Values outside, nulls and NaN
            are in no bin.
        categories: instead of edges, the values that are counted.

    Published as a list of counts, and as the standard deviation of the noise of each.

    >>> Histogram("amount", edges=[0, 10, 100]).statistics(Basis(centred=False, nullable=True))[0].width
    2
    """

    kind, words = "histogram", "the number of rows in each bin, or of each category"
    declared = ("edges", "categories")
    shown_as, judged, ranks, has_cells = "histogram", "zero", True, True
    many, whole = True, True
    column: str  # type: ignore[misc]  # narrows the class variable of metrics without a column
    edges: Sequence[float] | None = dataclasses.field(default=None, kw_only=True)
    categories: Sequence[Any] | None = dataclasses.field(default=None, kw_only=True)
    category_kind: str = dataclasses.field(default="", init=False)
    """Distinguishes the categories True and 1, which are equal in Python."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.name(self.column, "column")
        if (self.edges is None) == (self.categories is None):
            raise RequestError(field="edges", message="or categories must be given, one of the two", hint="declare one")
        field = "edges" if self.edges is not None else "categories"
        declared = self.edges if self.edges is not None else self.categories
        if isinstance(declared, (str, bytes)) or not isinstance(declared, (list, tuple)):
            raise RequestError(field=field, message="must be a list")
        most = MOST_BINS + (self.edges is not None)
        if not (2 if self.edges is not None else 1) <= len(declared) <= most:
            raise RequestError(
                field=field, message=f"must be a list of at least {most - MOST_BINS + 1} and at most {most}"
            )
        object.__setattr__(self, field, self._edges(declared) if self.edges is not None else self._values(declared))
        if self.categories is not None:
            object.__setattr__(self, "category_kind", type(declared[0]).__name__)

    @staticmethod
    def _edges(declared: Sequence[Any]) -> tuple[float, ...]:
        edges: list[float] = []
        for index, edge in enumerate(declared):
            value = checks.number(edge, f"edges[{index}]", hint=ENDS) + 0.0
            if edges and not value > edges[-1]:
                raise RequestError(
                    field=f"edges[{index}]", message="must be above the edge before it", hint="sort the edges"
                )
            edges.append(value)
        return tuple(edges)

    @staticmethod
    def _values(declared: Sequence[Any]) -> tuple[Any, ...]:
        kinds = {type(value) for value in declared}
        if (
            any(value is None or isinstance(value, (list, dict, tuple, set, float)) for value in declared)
            or len(kinds) > 1
        ):
            raise RequestError(
                field="categories",
                message="must be values of one kind, no nulls and no floats",
                hint="use edges for numbers",
            )
        try:
            different = len(set(declared))
        except TypeError:
            raise RequestError(
                field="categories", message="must be plain values", hint="write text or numbers"
            ) from None
        if different != len(declared):
            raise RequestError(field="categories", message="lists a value twice", hint="list each once")
        return tuple(declared)

    def check_column(self, kind: pa.DataType) -> None:
        """Refuse a column that is not of numbers for edges, or not of the type of the categories. Errors as for any metric."""
        for statistic in self.statistics(Basis(centred=False, nullable=True)):
            assert statistic.cells is not None
            statistic.cells.check(kind, self.column)

    def statistics(self, basis: Basis) -> tuple[Statistic, ...]:
        if self.edges is not None:
            return (CellCounts(column=self.column, cells=Bins(edges=tuple(self.edges))),)
        assert self.categories is not None
        return (CellCounts(column=self.column, cells=Categories(values=tuple(self.categories))),)

    def finish(self, noisy: Mapping[Statistic, Noisy], basis: Basis) -> ReleasedValues:
        counts = noisy[self.statistics(basis)[0]]
        return counts.values, np.full(counts.values.shape, counts.stddev)

    def good_from(self, levels: Mapping[Statistic, Level], basis: Basis) -> tuple[GoodFrom, ...]:
        counts = self.statistics(basis)[0]
        each = 1 / (counts.width or 1)  # a guess: rows are spread evenly
        what = "a bin" if self.edges is not None else "a category"
        return (of_count(levels[counts], "rows in it", "rows", each=each, what=what),)
