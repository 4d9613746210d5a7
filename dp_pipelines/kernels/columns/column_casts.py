"""Cells of any kind as a column of a declared type: a cell that does not fit is null and affects nothing else.

In: Python objects or an Arrow array, a public type. Out: an Arrow array of that type. Holds: no cells cause an error, and no cell
affects another; values of Arrow keep their exact value, and only the two types decide how they are converted. Not covered: speed;
a Python object that does not fit costs some tens of conversions; text as other types (`csv_cells`).
"""

import decimal
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines import interrupts
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather

_QUICK = (pa.float32(), pa.float64(), pa.string(), pa.bool_())
"""Types of cells to which any number is quickly converted, or which quickly refuse it."""

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DIGITS = decimal.Context(prec=200)
"""More digits than any decimal of Arrow has, with a scale on either side."""


def column(cells: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Convert cells to a column.

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
    except BaseException:  # a cell has another type, or raises on access with a message that may quote it
        interrupts.end_if_asked()
        if len(cells) == 1:
            return _single(cells[0], kind)
        middle = len(cells) // 2
        return gather.joined([column(cells[:middle], kind), column(cells[middle:], kind)])


def encoded(plain: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return plain values as a dictionary with indices of at least 32 bits, so that the type does not depend on their number.

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
    """Return the type of a column before it is encoded."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _single(cell: Any, kind: pa.DataType) -> pa.Array:
    """Return a column of one cell that does not convert: a scalar of Arrow by its value, anything else null."""
    if issubclass(type(cell), pa.Scalar):
        try:
            return column([cell.as_py()], kind)
        except BaseException:  # it has no value that Python knows
            interrupts.end_if_asked()
    return pa.nulls(1, kind)


def _moderate(cell: Any) -> Any:
    """Return the cell, or null for a decimal with more digits than any column has: Arrow would write them all out, or crash.

    A scalar of Arrow is its value: Arrow also crashes on some of those.
    """
    if issubclass(type(cell), pa.Scalar):
        return cell.as_py()
    if not isinstance(cell, decimal.Decimal) or not cell.is_finite():
        return cell
    return cell if -400 < int(cell.as_tuple().exponent) <= cell.adjusted() < 400 else None


def comparable(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return True if values of the two types can be equal: of one plain type, both numbers, both decimals or both timestamps.

    >>> comparable(pa.int64(), pa.int32()), comparable(pa.string(), pa.large_string()), comparable(pa.string(), pa.binary())
    (True, True, False)
    """
    kind, other = keys.plain_type(kind), keys.plain_type(other)
    if kind == other:
        return not pa.types.is_nested(kind)
    both = (kind, other)
    return bool(
        pa.types.is_null(other)
        or all(map(_is_number, both))
        or all(map(pa.types.is_decimal, both))
        or all(map(pa.types.is_timestamp, both))
    )


def loses_digits(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return True for times that another type has in a coarser unit.

    >>> loses_digits(pa.timestamp("ns"), pa.timestamp("us", "UTC")), loses_digits(pa.timestamp("us"), pa.timestamp("us"))
    (True, False)
    """
    times = pa.types.is_timestamp(kind) and pa.types.is_timestamp(other)
    return bool(times and _PER_SECOND[kind.unit] > _PER_SECOND[other.unit])


def rounded_down(times: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return timestamps in another unit: rounded down if it is coarser (Arrow rounds towards 1970), null if they do not fit.

    >>> rounded_down(pa.array([-1, 1999], pa.timestamp("ns")), pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    [-1, 1]
    """
    if not loses_digits(times.type, kind):
        return fitting(times, kind)
    ratio = _PER_SECOND[times.type.unit] // _PER_SECOND[kind.unit]
    return _array(_numpy(times.view(pa.int64())) // ratio, np.ones(len(times), np.bool_), times).view(kind)


def fitting(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values as another type, null if that type does not have them.

    Args:
        values: plain values, without codes.
        kind: a plain type that `comparable` accepts for theirs.

    >>> fitting(pa.array([1.0, 1.5, float("nan"), 2.0**63]), pa.int64()).to_pylist()
    [1, None, None, None]
    """
    values = comparison_layout(values)
    if keys.plain_type(values.type) == kind:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    if pa.types.is_decimal(kind):
        return _decimals(values, kind)
    return _timestamps(values, kind) if pa.types.is_timestamp(kind) else _numbers(values, kind)


def comparison_layout(values: pa.Array) -> pa.Array:
    """Return the same values in the one layout of their plain type that Arrow compares, and that holds any number of bytes.

    All NaN have the same bits, since Arrow compares those.

    >>> comparison_layout(pa.array(["a"], pa.string_view())).type
    DataType(large_string)
    """
    if isinstance(values, pa.ExtensionArray):
        return comparison_layout(values.storage)
    plain = keys.plain_type(values.type)
    if pa.types.is_floating(plain):
        values = values.cast(plain)  # Arrow compares no floats of 16 bits
        return pc.if_else(pc.is_nan(values), pa.scalar(math.nan, plain), values)
    if pa.types.is_string(plain):
        return values.cast(pa.large_string())
    if pa.types.is_binary(plain):
        return values.cast(pa.large_binary())
    return values if values.type == plain else values.cast(plain, safe=False)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _numbers(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert whole numbers and floats of any width; numbers that do not fit become null."""
    numbers, target = _numpy(values), np.dtype(kind.to_pandas_dtype())
    if _holds(target, numbers.dtype):
        return values.cast(kind)
    with np.errstate(all="ignore"):
        if target.kind == "f":
            made = numbers.astype(target)
            if numbers.dtype.kind == "f":
                fits = (made == numbers) | np.isnan(numbers)
            else:  # the largest float that a whole number becomes is one too large to convert back
                back = np.where(made < 2.0 ** _bits(numbers.dtype), made, 0).astype(numbers.dtype)
                fits = back == numbers
        else:
            if numbers.dtype.kind == "f":
                least = -(2.0 ** _bits(target)) if target.kind == "i" else 0.0
                fits = (np.trunc(numbers) == numbers) & (numbers >= least) & (numbers < 2.0 ** _bits(target))
            else:
                limits, own = np.iinfo(target), np.iinfo(numbers.dtype)
                fits = (numbers >= max(limits.min, own.min)) & (numbers <= min(limits.max, own.max))
            made = np.where(fits, numbers, 0).astype(target)
    return _array(made, fits, values).cast(kind)


def _timestamps(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert times to another unit. A zone changes only how an instant is shown; without one, times are in UTC."""
    numbers = _numpy(values.view(pa.int64()))
    ours, theirs = _PER_SECOND[values.type.unit], _PER_SECOND[kind.unit]
    if theirs < ours:
        converted, rest = np.divmod(numbers, ours // theirs)
        fits = rest == 0
    else:
        most = np.iinfo(np.int64).max // (theirs // ours)
        fits = (numbers >= -most) & (numbers <= most)
        converted = np.where(fits, numbers, 0) * (theirs // ours)
    return _array(converted, fits, values).view(kind)


def _decimals(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert decimals to another precision.

    One with more digits than its own type declares, as a file may have, becomes null.
    """
    of = values.type
    most = _DIGITS.scaleb(decimal.Decimal(10**of.precision - 1), -of.scale)
    within = pc.and_(
        pc.less_equal(values, pa.scalar(most, of)), pc.greater_equal(values, pa.scalar(_DIGITS.minus(most), of))
    )
    values = pc.replace_with_mask(values, pc.invert(within).fill_null(False), pa.scalar(None, of))
    if kind.scale >= of.scale and kind.precision - kind.scale >= of.precision - of.scale:
        return values.cast(kind)
    converted = [None if value is None else _decimal(value, kind) for value in values.to_pylist()]
    return pa.array(converted, kind)


def _decimal(value: decimal.Decimal, kind: pa.DataType) -> decimal.Decimal | None:
    rounded = value.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_DIGITS)
    whole = rounded.scaleb(kind.scale, context=_DIGITS)
    return rounded if rounded == value and whole.copy_abs() < 10**kind.precision else None


def _holds(kind: "np.dtype[Any]", other: "np.dtype[Any]") -> bool:
    """Return True if a type has all values of another one."""
    if kind.kind == "f" and other.kind != "f":
        return bool(_bits(other) <= np.finfo(kind).nmant + 1)
    return bool(np.can_cast(other, kind))


def _bits(kind: "np.dtype[Any]") -> int:
    """Return the exponent of the first power of two beyond a whole type."""
    return int(np.iinfo(kind).bits) - (kind.kind == "i")


def _numpy(values: pa.Array) -> npt.NDArray[Any]:
    """Return the values as numpy, with zeros in place of nulls."""
    zeros = values.fill_null(0) if values.null_count else values
    numbers: npt.NDArray[Any] = zeros.to_numpy(zero_copy_only=False)
    return numbers


def _array(made: npt.NDArray[Any], fits: npt.NDArray[np.bool_], values: pa.Array) -> pa.Array:
    """Return converted values as an array, null where they do not fit and where values are null."""
    return pa.array(made, mask=~fits | values.is_null().to_numpy(zero_copy_only=False))
