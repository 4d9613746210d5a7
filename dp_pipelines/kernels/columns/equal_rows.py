"""Which rows are equal to one of a list, as deletes by values need it: null equals null, NaN equals NaN.

In: rows, listed rows with as many columns. Out: a flag for each row. Holds: exact, whatever the values; a row's flag depends
on that row and the list alone.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather


def among(rows: pa.Table, listed: pa.Table) -> npt.NDArray[np.bool_]:
    """Whether each row is one of the listed ones, column by column in their order.

    >>> rows = pa.table({"who": [1, 2, None], "shop": ["a", "b", None]})
    >>> among(rows, pa.table({"x": [2, None, 1], "y": ["b", None, "b"]})).tolist()
    [False, True, True]
    """
    pairs = [_alike(_plain(ours), _plain(others)) for ours, others in zip(rows.columns, listed.columns, strict=True)]
    # Few rows are listed: most are told by their first cell, which is no listed one's.
    left = np.arange(rows.num_rows)
    for values, wanted in pairs:
        seen = values if len(left) == rows.num_rows else gather.take(values, left)
        left = left[pc.is_in(seen, wanted.unique()).to_numpy(zero_copy_only=False)]
    flags = np.zeros(rows.num_rows, np.bool_)
    flags[left] = _among([(gather.take(values, left), wanted) for values, wanted in pairs], len(left), listed.num_rows)
    return flags


def _among(pairs: list[tuple[pa.Array, pa.ChunkedArray]], rows: int, listed: int) -> npt.NDArray[np.bool_]:
    """The same of rows whose cells are all listed, each in its column."""
    # Codes of the columns so far: the place of a row's values among the listed ones, -1 where they are not.
    mine, theirs = np.zeros(rows, np.int64), np.zeros(listed, np.int64)
    for values, wanted in pairs:
        entries = wanted.unique()
        found, known = (_places(column, entries) for column in (values, wanted))
        distinct, theirs = np.unique(theirs * len(entries) + known, return_inverse=True)
        # Below zero, as no listed pair is, where the cells before this one are no listed ones together.
        both = np.where(mine >= 0, mine * len(entries) + found, -1)
        at = np.minimum(np.searchsorted(distinct, both), max(len(distinct) - 1, 0))
        mine = np.where(distinct[at] == both, at, -1) if len(distinct) else np.full(rows, -1)
    return mine >= 0


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return column.cast(keys.plain_type(kind))


def _alike(ours: pa.ChunkedArray, others: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Both with one type: one may have been written before the column was widened."""
    if ours.type == others.type:
        return ours, others
    try:
        return ours.cast(others.type), others
    except pa.ArrowException:
        return ours, others.cast(ours.type)


def _places(column: pa.Array | pa.ChunkedArray, entries: pa.Array) -> npt.NDArray[np.int64]:
    places = pc.index_in(column, entries, skip_nulls=False)
    return pc.fill_null(places.cast(pa.int64()), -1).to_numpy()
