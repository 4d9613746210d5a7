"""Cells of any kind as a column of a declared type: a cell that does not fit is null and affects nothing else.

In: Python objects, a public type. Out: an Arrow array of that type. Holds: no cells cause an error, and no cell affects
another. Not covered: speed; a cell that does not fit costs some tens of conversions.
"""

import decimal
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dp_pipelines.kernels.columns import gather

_QUICK = (pa.float32(), pa.float64(), pa.string(), pa.bool_())
"""Types of cells to which any number is quickly converted, or which quickly refuse it."""


def column(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Cells as a column.

    Args:
        cells: anything.
        kind: the type of the column.

    >>> column([1, "x", None], pa.int64()).to_pylist()
    [1, None, None]
    """
    try:
        return pa.array(cells if kind in _QUICK else [_moderate(cell) for cell in cells], kind)
    except Exception:  # a cell has another type, or raises on access with a message that may quote it
        if len(cells) == 1:
            return pa.nulls(1, kind)
        middle = len(cells) // 2
        return gather.joined([column(cells[:middle], kind), column(cells[middle:], kind)])


def _moderate(cell: Any) -> Any:
    """The cell; null for a decimal of more digits than any column has: Arrow would write them all out, or crash."""
    if not isinstance(cell, decimal.Decimal) or not cell.is_finite():
        return cell
    return cell if -400 < int(cell.as_tuple().exponent) <= cell.adjusted() < 400 else None
