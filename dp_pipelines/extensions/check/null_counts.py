"""How many values of a column are null, as every step counts them: NaN too.

In: a column of any type. Out: a number. Holds: a null is counted wherever Arrow keeps it, in a dictionary too. NOT private.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def nulls_of(column: pa.ChunkedArray) -> int:
    """How many values are null or NaN.

    >>> nulls_of(pa.chunked_array([pa.array([1.0, float("nan"), None])]))
    2
    >>> coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    >>> nulls_of(pa.chunked_array([coded]))
    2
    """
    return sum(map(_nulls, column.chunks))


def _nulls(chunk: pa.Array) -> int:
    if isinstance(chunk.type, pa.BaseExtensionType):
        chunk = chunk.storage
    nulls = int(chunk.null_count)
    if pa.types.is_dictionary(chunk.type):
        if not _nulls(chunk.dictionary):
            return nulls
        of_entries = np.append(_flags(chunk.dictionary), True)
        codes = pc.fill_null(chunk.indices.cast(pa.int64()), len(chunk.dictionary)).to_numpy(zero_copy_only=False)
        return int(of_entries[codes].sum())
    if pa.types.is_floating(chunk.type):
        nulls += int(pc.sum(pc.is_nan(chunk.cast(pa.float64()))).as_py() or 0)
    return nulls


def rows_with_null(table: pa.Table, names: Sequence[str]) -> NDArray[np.bool_]:
    """Which rows have a null or NaN in one of some columns.

    Args:
        table: with these columns.
        names: of the columns.

    >>> rows_with_null(pa.table({"a": [1, None], "b": [None, 2]}), ["a"]).tolist()
    [False, True]
    """
    found = np.zeros(table.num_rows, np.bool_)
    for name in names:
        column = table.column(name)
        if nulls_of(column):
            found |= np.concatenate([_flags(chunk) for chunk in column.chunks])
    return found


def _flags(chunk: pa.Array) -> NDArray[np.bool_]:
    """Which values are null or NaN."""
    if isinstance(chunk.type, pa.BaseExtensionType):
        chunk = chunk.storage
    if pa.types.is_dictionary(chunk.type):
        of_entries = np.append(_flags(chunk.dictionary), True)
        codes = pc.fill_null(chunk.indices.cast(pa.int64()), len(chunk.dictionary)).to_numpy(zero_copy_only=False)
        return np.asarray(of_entries[codes])
    floats = pa.types.is_floating(chunk.type)
    flags = pc.is_null(chunk.cast(pa.float64()), nan_is_null=True) if floats else pc.is_null(chunk)
    return np.asarray(flags.to_numpy(zero_copy_only=False), np.bool_)
