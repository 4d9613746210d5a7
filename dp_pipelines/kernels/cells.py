"""From a value to the cell that counts it: bins between edges, declared categories, the nodes of a tree, the sides of a range.

In: one Arrow array of values. Out: int32 numbers of cells, null where a value is null or in no cell. Holds: the cell of a row
depends on that row alone; a row is in one cell at most, so that one row moves one count by one. Not covered: what is counted
(`accumulate`), and what the counts become (metrics).
"""

import dataclasses
import functools
import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns.column_types import check_value_type, public_column
from dp_pipelines.kernels.grid_cells import Points as Points
from dp_pipelines.kernels.lattice import numbers_and_nulls
from dp_pipelines.kernels.rank_cells import Around as Around

MOST_CELLS = 2**16
"""No statistic has more cells for one partition."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bins:
    """Cells between edges: [edge, next edge), the last one with its end. What lies outside is in no cell.

    >>> Bins(edges=(0.0, 1.0, 2.0)).of(pa.array([0.0, 1.0, 2.0, 2.5, None])).to_pylist()
    [0, 1, 1, None, None]
    """

    edges: tuple[float, ...]

    @property
    def count(self) -> int:
        """Return the number of cells."""
        return len(self.edges) - 1

    @property
    def finest(self) -> "Bins":
        """Return the cells from which these can be computed."""
        return self

    @property
    def name(self) -> str:
        """Return the cells in words, the same for the same cells only."""
        return f"{self.count} bins from {self.edges[0]!r} to {self.edges[-1]!r}, {_short(self.edges)}"

    def of(self, column: pa.Array) -> pa.Array:
        """Return the cell of each value of a column of numbers."""
        values, nulls = numbers_and_nulls(column)
        edges = np.array(self.edges)
        cells = np.searchsorted(edges, values, side="right") - 1
        cells[values == edges[-1]] = self.count - 1
        outside = (cells < 0) | (cells >= self.count)
        return pa.array(cells.astype(np.int32), mask=outside if nulls is None else outside | nulls)

    def check(self, kind: pa.DataType, column: str) -> None:
        """Refuse columns that are no numbers. Errors as for `column_types.check_value_type`."""
        check_value_type(kind, column)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Categories:
    """A cell for each declared value. Other values are in no cell.

    >>> Categories(values=("a", "b")).of(pa.array(["b", "c", None])).to_pylist()
    [1, None, None]
    """

    values: tuple[object, ...]

    @property
    def count(self) -> int:
        """Return the number of cells."""
        return len(self.values)

    @property
    def finest(self) -> "Categories":
        """Return the cells from which these can be computed."""
        return self

    @property
    def name(self) -> str:
        """Return the cells in words, the same for the same cells only."""
        return f"{self.count} categories, {_short([(type(value).__name__, value) for value in self.values])}"

    def of(self, column: pa.Array) -> pa.Array:
        """Return the cell of each value of a column."""
        plain = keys.plain(column)
        if pa.types.is_null(plain.type):
            return pa.nulls(len(plain), pa.int32())
        return pc.index_in(plain, public_column("categories", plain.type, self.values), skip_nulls=True)

    def check(self, kind: pa.DataType, column: str) -> None:
        """Refuse columns of other types than the declared values have.

        Raises:
            RequestError: a declared value is none of the column's.
        """
        plain = keys.plain_type(kind)
        if pa.types.is_floating(plain) or pa.types.is_nested(plain):
            raise RequestError(
                field=f"column {column!r}",
                message=f"has type {plain}, which has no categories",
                hint="declare edges instead, or cast it",
            )
        if not pa.types.is_null(plain):
            try:
                public_column(column, plain, self.values)
            except RequestError as error:
                raise RequestError(
                    field=f"column {column!r}", message=f"has categories: {error.message}", hint=error.hint
                ) from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeLevel:
    """One level of a tree over [low, high]: `branching ** level` cells of equal width; values outside are clamped.

    Args:
        low, high: the range.
        branching: children of each node.
        depth: levels below the root.
        level: which one, from 1.

    >>> TreeLevel(low=0.0, high=8.0, branching=2, depth=3, level=3).of(pa.array([-1.0, 0.0, 3.0, 8.0])).to_pylist()
    [0, 0, 3, 7]
    """

    low: float
    high: float
    branching: int
    depth: int
    level: int

    @property
    def count(self) -> int:
        """Return the number of cells."""
        return int(self.branching**self.level)

    @functools.cached_property
    def finest(self) -> "TreeLevel":
        """Return the leaves, from which every level can be computed."""
        return dataclasses.replace(self, level=self.depth)

    @property
    def name(self) -> str:
        """Return the cells in words, the same for the same cells only."""
        return f"tree [{self.low!r}, {self.high!r}] {self.branching}^{self.level} of {self.depth}"

    def of(self, column: pa.Array) -> pa.Array:
        """Return the cell of each value of a column of numbers."""
        values, nulls = numbers_and_nulls(column)
        # Halves, so that a range of almost all numbers does not overflow.
        part = (np.clip(values, self.low, self.high) / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        cells = np.minimum(np.floor(part * self.count), self.count - 1).astype(np.int32)
        return pa.array(np.maximum(cells, 0), mask=nulls)

    def check(self, kind: pa.DataType, column: str) -> None:
        """Refuse columns that are no numbers. Errors as for `column_types.check_value_type`."""
        check_value_type(kind, column)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sides:
    """Three cells: below a range, within it, above it.

    >>> Sides(low=0.0, high=10.0).of(pa.array([-1.0, 0.0, 10.0, 11.0, None])).to_pylist()
    [0, 1, 1, 2, None]
    """

    low: float
    high: float

    @property
    def count(self) -> int:
        """Return the number of cells."""
        return 3

    @property
    def finest(self) -> "Sides":
        """Return the cells from which these can be computed."""
        return self

    @property
    def name(self) -> str:
        """Return the cells in words."""
        return f"below, within and above [{self.low!r}, {self.high!r}]"

    def of(self, column: pa.Array) -> pa.Array:
        """Return the cell of each value of a column of numbers."""
        values, nulls = numbers_and_nulls(column)
        sides = 1 + (values > self.high).astype(np.int32) - (values < self.low).astype(np.int32)
        return pa.array(sides.astype(np.int32), mask=nulls)

    def check(self, kind: pa.DataType, column: str) -> None:
        """Refuse columns that are no numbers. Errors as for `column_types.check_value_type`."""
        check_value_type(kind, column)


Cells = Bins | Categories | TreeLevel | Around | Points | Sides


def _short(declared: Sequence[object]) -> str:
    """Return a short digest that distinguishes long declarations."""
    return hashlib.sha256(repr(list(declared)).encode()).hexdigest()[:16]
