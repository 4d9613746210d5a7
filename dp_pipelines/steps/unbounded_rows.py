"""Rows as a release sees them before any of its bounds, for commands that look at raw rows. NOT private.

In: tables of events; codes; numbers of units. Out: wire tables with columns u0.. (unit), p0.. (partition), x0.. (numbers, NaN for
a null); sorted codes; sizes of partitions. Holds: the rows and partitions are those that a release sees (`kernels.layout`). Not
covered: privacy. No release may use this module.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.lattice import numbers_and_nulls
from dp_pipelines.kernels.layout import Layout

SIZES = tuple(10.0 ** (half / 2) for half in range(1, 21))
"""Numbers of units that separate the sizes of partitions: half a power of ten each. Size 0 has no units at all."""


def wire_rows(table: pa.Table, layout: Layout, columns: Sequence[str]) -> pa.Table:
    """Return the rows of a table of events that a release sees, in wire form.

    Args:
        table: events.
        layout: units, partitions and the public list, if there is one.
        columns: numbers that metrics read.
    """
    found = {n: keys.plain_unit(table.column(c)) for n, c in zip(layout.unit_names, layout.units, strict=True)}
    found |= layout.wire_keys(table)
    for i, column in enumerate(columns):
        values, nulls = numbers_and_nulls(keys.one_array(table.column(column)))
        found[f"x{i}"] = pa.array(values if nulls is None else np.where(nulls, np.nan, values))
    rows = pa.table(found)
    keep = layout.kept_rows(rows)
    return rows if keep is None else gather.filter_rows(rows, keep)


def sorted_codes(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return an order that sorts codes, and the codes in it.

    Args:
        codes: not negative.

    >>> [found.tolist() for found in sorted_codes(np.array([3, 1, 3, 2]))]
    [[1, 3, 0, 2], [1, 2, 3, 3]]
    """
    size = len(codes)
    bits = max(size - 1, 0).bit_length()
    if int(codes.max(initial=0)).bit_length() + bits > 63:
        order = np.argsort(codes, kind="stable")
        return order, codes[order]
    # Sorting words that hold the position is several times faster than sorting positions.
    packed = (codes << bits) | np.arange(size)
    packed.sort()
    return packed & ((1 << bits) - 1), packed >> bits


def size_of(units: NDArray[Any]) -> NDArray[np.int64]:
    """Return the size of each partition: its place among `SIZES`, from 1; 0 without units.

    Args:
        units: how many it has.

    >>> size_of(np.array([0, 1, 3, 4, 9, 10, 31, 32])).tolist()
    [0, 1, 1, 2, 2, 3, 3, 4]
    """
    return np.where(units > 0, np.searchsorted(SIZES, units, side="right") + 1, 0).astype(np.int64)
