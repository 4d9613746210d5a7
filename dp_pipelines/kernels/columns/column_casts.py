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
        kind: the type of the column, without maps and without dictionaries inside.

    >>> column([1, "x", None], pa.int64()).to_pylist()
    [1, None, None]
    """
    if pa.types.is_dictionary(kind):  # Arrow crashes on some cells that it should encode, so they become plain first
        return encoded(column(cells, kind.value_type), kind)
    try:
        return pa.array(cells if kind in _QUICK else [_moderate(cell) for cell in cells], kind)
    except Exception:  # a cell has another type, or raises on access with a message that may quote it
        if len(cells) == 1:
            return _single(cells[0], kind)
        middle = len(cells) // 2
        return gather.joined([column(cells[:middle], kind), column(cells[middle:], kind)])


def encoded(plain: pa.Array, kind: pa.DataType) -> pa.Array:
    """Plain values as a dictionary, whose indices have 32 bits at least: how many values there are must not decide types.

    Args:
        plain: the values.
        kind: of the dictionary; any other type leaves the values as they are.

    >>> encoded(pa.array(["a", "a"]), pa.dictionary(pa.int8(), pa.string())).type
    DictionaryType(dictionary<values=string, indices=int32, ordered=0>)
    """
    if not pa.types.is_dictionary(kind):
        return plain
    codes = plain.dictionary_encode()
    indices = codes.indices.cast(kind.index_type) if kind.index_type.bit_width >= 32 else codes.indices
    return pa.DictionaryArray.from_arrays(indices, codes.dictionary, ordered=kind.ordered)


def plain_kind(kind: pa.DataType) -> pa.DataType:
    """The type of a column before it is encoded."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _single(cell: Any, kind: pa.DataType) -> pa.Array:
    """A column of one cell that does not convert: a scalar of Arrow by its value, anything else null."""
    if issubclass(type(cell), pa.Scalar):
        try:
            return column([cell.as_py()], kind)
        except Exception:  # noqa: S110 - it has no value that Python knows
            pass
    return pa.nulls(1, kind)


def _moderate(cell: Any) -> Any:
    """The cell; null for a decimal of more digits than any column has: Arrow would write them all out, or crash.

    A scalar of Arrow is its value: Arrow also crashes on some of those.
    """
    if issubclass(type(cell), pa.Scalar):
        return cell.as_py()
    if not isinstance(cell, decimal.Decimal) or not cell.is_finite():
        return cell
    return cell if -400 < int(cell.as_tuple().exponent) <= cell.adjusted() < 400 else None
