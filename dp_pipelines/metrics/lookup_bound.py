"""Bounds that differ by partition: a column of a public table gives each partition a clamp of its own.

In: a column of values, two ends of which at least one is a `LookupBound`, rows that have the table's columns. Out: the same
values as numbers of one range, alike in every partition; the values of released numbers. Holds: the number of a row
depends on that row and the public table alone, and lies within the range, whatever the row; a released number is multiplied
and moved by public numbers. Not covered: joining the table (`jobs.sources.lookup`).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.keys import one_array
from dp_pipelines.kernels.lattice import Flags, Floats, numbers_and_nulls

Join = Callable[[pa.Table], pa.Table]
"""Adds the columns of a public table to rows that have its key, each row by itself; null where the table lacks the key."""

LARGEST, NARROWEST = 1e100, 1e-100
"""The largest bound, and the narrowest range: no product or quotient overflows or vanishes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LookupBound:
    """A bound that differs by partition: a column of the job's public lookup table.

    Args:
        lookup: the column of the lookup table that holds the bound; the table's key must be in `partition_by`.
        default: the bound of partitions whose key the table lacks.

    >>> LookupBound(lookup="max_price", default=1000)
    LookupBound(lookup='max_price', default=1000.0)
    """

    lookup: str
    default: float

    def __post_init__(self) -> None:
        checks.name(self.lookup, "lookup")
        hint = "write the bound of a partition whose key the table lacks"
        default = checks.number(self.default, "default", above=-LARGEST, below=LARGEST, hint=hint) + 0.0
        object.__setattr__(self, "default", default)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartitionScale:
    """A scaling by which numbers mean the same in every partition, and its inverse for released numbers.

    Args:
        column: the column of values.
        low, high: where values are clamped.
        of_range: whether a value counts as its share of the range, from 0 to 1; else as a multiple of the larger bound, from
            -1 to 1, so that the sum of the multiples gives the sum of the values.

    >>> scale = PartitionScale(column="price", low=0.0, high=LookupBound(lookup="most", default=10), of_range=True)
    >>> scale.scaled(pa.table({"price": [3, 3, 90], "most": [5.0, None, 30.0]})).to_pylist()
    [0.6, 0.3, 1.0]
    """

    column: str
    low: float | LookupBound
    high: float | LookupBound
    of_range: bool

    @property
    def name(self) -> str:
        """Return the name of the column that `scaled` makes: two have the same name only if they are the same."""
        words = "as a share of" if self.of_range else "in units of"
        return f"{self.column} {words} [{_said(self.low)}, {_said(self.high)}]"

    @property
    def words(self) -> str:
        """Return the clamp, for readers.

        >>> PartitionScale(column="a", low=0.0, high=LookupBound(lookup="most", default=10), of_range=True).words
        '0 … most (10 by default)'
        """
        return f"{_told(self.low)} … {_told(self.high)}"

    @property
    def lookups(self) -> tuple[str, ...]:
        """Return the columns of the public table."""
        return tuple(dict.fromkeys(end.lookup for end in (self.low, self.high) if isinstance(end, LookupBound)))

    def ends(self, rows: pa.Table) -> tuple[Floats, Floats]:
        """Return the clamp of each row, two float64 arrays of shape (rows,).

        Args:
            rows: with the columns of the public table, null where its key is unknown.
        """
        return _end(self.low, rows), _end(self.high, rows)

    def scaled(self, rows: pa.Table) -> pa.Array:
        """Return the number of each row, between the same ends in every partition; null if its value is null.

        Args:
            rows: with `column` and the columns of the public table.
        """
        values, nulls = numbers_and_nulls(one_array(rows.column(self.column)))
        low, high = self.ends(rows)
        with np.errstate(all="ignore"):  # a table with wrong clamps is refused before; no warning may tell of a row
            clamped = np.clip(values, low, high)
            shares = (clamped - low) / (high - low) if self.of_range else clamped / _larger(low, high)
        return pa.array(shares, pa.float64(), mask=nulls)

    def unit(self, low: Floats, high: Floats) -> Floats:
        """Return the value of a scaled number of 1 in each partition.

        Args:
            low, high: float64 of shape (partitions,).
        """
        return high - low if self.of_range else _larger(low, high)

    @staticmethod
    def wrong(low: Floats, high: Floats) -> Flags:
        """Return True for clamps that are not valid: not finite, the lower end not below the upper one, or too close to it.

        Args:
            low, high: float64 of shape (n,); the result is bool of the same shape.
        """
        with np.errstate(invalid="ignore"):
            finite = (np.abs(low) < LARGEST) & (np.abs(high) < LARGEST)
            return np.asarray(~(finite & (high - low >= NARROWEST)))

    def refuse_defaults(self) -> None:
        """Refuse default ends that are not a valid clamp.

        Raises:
            RequestError: with the field of the metric that is wrong.
        """
        low, high = (end.default if isinstance(end, LookupBound) else end for end in (self.low, self.high))
        if self.wrong(np.array([low]), np.array([high]))[0]:
            field = "max_value.default" if isinstance(self.high, LookupBound) else "min_value.default"
            rule = f"above min_value, {low:g}" if isinstance(self.high, LookupBound) else f"below max_value, {high:g}"
            raise RequestError(field=field, message=f"must be {rule}", hint="a clamp of no width leaves nothing to add")

    def to_json(self) -> dict[str, Any]:
        """Return the scale as JSON values, for manifests and `plan --json`."""
        ends = {"min_value": self.low, "max_value": self.high}
        values = {k: dataclasses.asdict(end) if isinstance(end, LookupBound) else end for k, end in ends.items()}
        return {**values, "words": self.words}

    @property
    def grows_with(self) -> str:
        """Return in words the quantity to which the noise of a partition is proportional.

        >>> PartitionScale(column="a", low=0.0, high=LookupBound(lookup="most", default=10), of_range=True).grows_with
        'most'
        """
        if self.of_range and self.low == 0:
            return str(self.lookups[0])
        return "max_value - min_value" if self.of_range else "the larger of |min_value| and |max_value|"


def _larger(low: Floats, high: Floats) -> Floats:
    return np.maximum(np.abs(low), np.abs(high))


def _end(bound: float | LookupBound, rows: pa.Table) -> Floats:
    if not isinstance(bound, LookupBound):
        return np.full(rows.num_rows, bound)
    values, nulls = numbers_and_nulls(one_array(rows.column(bound.lookup)))
    return values if nulls is None else np.where(nulls, bound.default, values)


def _said(bound: float | LookupBound) -> str:
    return f"{bound.lookup!r} or {bound.default!r}" if isinstance(bound, LookupBound) else repr(bound)


def _told(bound: float | LookupBound) -> str:
    if isinstance(bound, LookupBound):
        return f"{bound.lookup} ({bound.default:g} by default)"
    return f"{bound:g}"
