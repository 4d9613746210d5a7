"""Rows that are equal to a listed one, as deletes by value need it: null equals null, NaN equals NaN, 0.0 is not -0.0.

In: rows, listed rows with as many columns. Out: a flag for each row. Holds: exact, whatever the values; values are compared under
the rows' types; a row's flag depends on that row and on single listed rows. Not covered: which pairs of types are accepted
before rows are read (`column_casts.comparable`).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import column_casts, gather


def among(rows: pa.Table, listed: pa.Table) -> npt.NDArray[np.bool_]:
    """Return a flag for each row: True if it is equal to a listed row, column by column in their order.

    Args:
        rows: the rows, in any layout.
        listed: the rows with which they are compared; at least one column.

    >>> rows = pa.table({"who": [1, 2, None], "shop": ["a", "b", None]})
    >>> among(rows, pa.table({"x": [2, None, 1], "y": ["b", None, "b"]})).tolist()
    [False, True, True]
    """
    listed = of_types(listed, [keys.plain_type(field.type) for field in rows.schema])
    # Of each row whose cells so far are a listed row's: its position, and a code that only equal cells share.
    left, codes = np.arange(rows.num_rows), np.zeros(rows.num_rows, np.int64)
    listed_codes = np.zeros(listed.num_rows, np.int64)
    for values, wanted in zip(rows.columns, listed.columns, strict=True):
        entries = column_casts.comparison_layout(gather.one_array(wanted)).unique()
        positions = _positions(values if len(left) == rows.num_rows else gather.take(values, left), entries)
        known = positions >= 0
        left, both = left[known], codes[known] * len(entries) + positions[known]
        pairs = listed_codes * len(entries) + _positions(wanted, entries)
        distinct, listed_codes = np.unique(pairs, return_inverse=True)
        codes = np.searchsorted(distinct, both)
        known = np.isin(both, distinct)
        left, codes = left[known], codes[known]
    flags = np.zeros(rows.num_rows, np.bool_)
    flags[left] = True
    return flags


def of_types(listed: pa.Table, kinds: Sequence[pa.DataType]) -> pa.Table:
    """Return the listed rows with other types. A row with a value that its type does not have equals no row and is dropped.

    Args:
        listed: the rows.
        kinds: a plain type for each column, which `column_casts.comparable` accepts for it.

    >>> of_types(pa.table({"x": [1.0, 1.5, None]}), [pa.int64()]).to_pydict()
    {'x': [1, None]}
    """
    columns, fits = [], np.ones(listed.num_rows, np.bool_)
    for column, kind in zip(listed.columns, kinds, strict=True):
        values = gather.plain(gather.one_array(column))
        columns.append(column_casts.fitting(values, kind))
        fits &= _valid(columns[-1]) | ~_valid(values)
    return gather.filter_rows(pa.table(columns, names=listed.column_names), fits)


def _valid(values: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _positions(column: pa.Array | pa.ChunkedArray, entries: pa.Array) -> npt.NDArray[np.int64]:
    """Return the position of each value among distinct entries, -1 if it is none of them. Codes are not decoded."""
    if isinstance(column, pa.ChunkedArray):
        return np.concatenate([np.empty(0, np.int64), *(_positions(chunk, entries) for chunk in column.chunks)])
    if not pa.types.is_dictionary(column.type):
        positions = pc.index_in(column_casts.comparison_layout(column), entries, skip_nulls=False)
        return np.asarray(positions.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    of_dictionary = _positions(column.dictionary, entries)
    of_null = _positions(pa.nulls(1, column.type.value_type), entries)
    # The last one is the position of null, which an index of the column's own type may be too narrow for.
    indices = column.indices.cast(pa.int64()).fill_null(len(of_dictionary))
    positions = np.concatenate([of_dictionary, of_null])
    return np.asarray(positions[indices.to_numpy()], np.int64)
