"""Columns of lists of numbers: which types they may have, and the numbers of those lists that have the declared size.

In: one Arrow column, of any of Arrow's lists, plain, sliced or of codes. Out: a matrix of floats, or an error that names the
column. Holds: refusals depend only on the type; lists that are null or of another size are left out one by one.
"""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.columns.column_types import check_value_type
from dp_pipelines.kernels.lattice import Flags, numbers_and_nulls


def check_lists(kind: pa.DataType, column: str, size: int) -> None:
    """Refuse columns that are not lists of numbers, or are lists of another declared size.

    Raises:
        RequestError: as said.

    >>> check_lists(pa.list_(pa.float32(), 3), "embedding", 4)
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: column 'embedding': holds lists of 3 numbers, not of 4; declare size: 3
    """
    plain = _unwrapped(kind)
    if pa.types.is_null(plain):
        return
    if not _is_list(plain):
        raise RequestError(
            field=f"column {column!r}",
            message=f"has type {plain}, which is no list of numbers",
            hint="name a list column",
        )
    check_value_type(plain.value_type, column)
    if pa.types.is_fixed_size_list(plain) and plain.list_size != size:
        raise RequestError(
            field=f"column {column!r}",
            message=f"holds lists of {plain.list_size} numbers, not of {size}",
            hint=f"declare size: {plain.list_size}",
        )


def _unwrapped(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _unwrapped(kind.storage_type)
    return _unwrapped(kind.value_type) if pa.types.is_dictionary(kind) else kind


def _is_list(kind: pa.DataType) -> bool:
    views = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
    return views or pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def numbers_of_lists(column: pa.Array, size: int) -> tuple[NDArray[Any], Flags | None]:
    """Return the lists of a column that have `size` numbers.

    Returns:
        them as rows of float32 or float64, NaN for nulls; and which lists of the column these are, None where all are.

    >>> numbers_of_lists(pa.array([[1.0, None], [2.0]]), 2)
    (array([[ 1., nan]]), array([ True, False]))
    """
    while isinstance(column.type, pa.BaseExtensionType) or pa.types.is_dictionary(column.type):
        column = column.storage if isinstance(column.type, pa.BaseExtensionType) else gather.decoded(column)
    if pa.types.is_null(column.type):
        return np.zeros((0, size)), np.zeros(len(column), np.bool_)
    good = None
    lengths = pc.fill_null(pc.list_value_length(column), -1)
    even = pc.equal(lengths, size)
    if not pc.all(even, min_count=0).as_py():
        good, column = even.to_numpy(zero_copy_only=False), gather.filtered(column, even)
    values = column.flatten()
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = gather.decoded(values)
    if pa.types.is_float16(values.type):
        values = values.cast(pa.float32())
    if not (pa.types.is_float32(values.type) or pa.types.is_float64(values.type)):
        numbers, nulls = numbers_and_nulls(values)
        numbers = numbers if nulls is None else np.where(nulls, np.nan, numbers)
    else:
        numbers = (values.fill_null(math.nan) if values.null_count else values).to_numpy(zero_copy_only=False)
    return numbers.reshape(-1, size), good
