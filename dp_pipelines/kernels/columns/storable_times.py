"""Dates and times as Parquet files can hold them, so that any key which is chosen can be published.

In: plain values of any type. Out: the same; null for times in seconds and dates in milliseconds that no file can hold. Holds: a
value depends on itself alone, and one that a file can hold stays. Not covered: other types, all of whose values files hold.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MILLISECONDS_OF_A_DAY = 86_400_000


def storable(column: pa.Array) -> pa.Array:
    """Return dates (date64) of whole days and times in seconds, null beyond the range of Parquet; all else unchanged.

    Parquet has days of 32 bits, and milliseconds in place of seconds.

    >>> storable(pa.array([2**62, 0], pa.timestamp("s"))).cast(pa.int64()).to_pylist()
    [None, 0]
    """
    kind = column.type
    if pa.types.is_date64(kind):
        step, most = _MILLISECONDS_OF_A_DAY, 2**31 - 1
    elif pa.types.is_timestamp(kind) and kind.unit == "s":
        step, most = 1, 2**63 // 1000
    else:
        return column
    rounded = pc.fill_null(column.view(pa.int64()), 0).to_numpy() // step
    fits = (rounded >= -most) & (rounded <= most)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(np.where(fits, rounded, 0) * step, mask=~(fits & valid)).view(kind)
