"""Numbers of partitions of each privacy unit, and of rows in one of them: one row for each unit, from its own rows.

In: the wire rows of the units of a shard. Out: their units, each once, the number of different partitions, at most as many as the
layout keeps, and the number of rows in the partition with the least keyed hash. Holds: a unit's row depends on that unit's rows
alone; a batch that was bounded before the shuffle gives the same (the first partitions by keyed hash of a union are among the
first of each part, and the summands of all rows of a kept partition travel with it).
"""

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels import contributions
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.lattice import SummandLattice
from dp_pipelines.kernels.layout import Layout

ONE = SummandLattice.for_sums(0.0, 1.0)
"""The lattice of the constant 1, of which rows are the sum."""

ONE_IN_STEPS = int(ONE.integers(np.ones(1))[0])

MOST_ROWS = 2**31 - 1
"""Rows of a unit in one partition are counted up to here."""


def partitions_of_units(wire: pa.Table, layout: Layout, salt: int) -> pa.Table:
    """Return one row for each unit.

    Args:
        wire: all (reduced) wire rows of the units of a shard.
        layout: what partitions are, and how many of a unit are counted at most. If rows are counted, its only summand is
            `ONE` in each row.
        salt: the run's own 64-bit number.

    Returns:
        The unit's columns u0.., `partitions` and, if rows are counted, `rows`, at most `MOST_ROWS`.

    >>> layout = Layout(units=("u",), partitions=("p",), max_partitions=2)
    >>> wire = layout.wire(pa.table({"u": [7, 7, 7, 8, 8], "p": ["a", "b", "c", "a", "a"]}))
    >>> partitions_of_units(wire, layout, 1).to_pydict()
    {'u0': [7, 8], 'partitions': [2, 1]}
    >>> layout = Layout(units=("u",), partitions=("p",), summands=(("one", ONE),), max_partitions=2)
    >>> wire = layout.wire(pa.table({"u": [7, 8, 8, 8], "p": ["a", "b", "b", "b"], "one": [1, 1, 1, 1]}))
    >>> partitions_of_units(wire, layout, 1).column("rows").to_pylist()
    [1, 3]
    """
    bounded = contributions.bound(wire, layout, salt).bounded
    first = np.flatnonzero(bounded.first_of_unit)
    rows = bounded.rows[bounded.starts[first]]
    columns = {name: gather.take(wire.column(name), rows) for name in layout.unit_names}
    columns["partitions"] = pa.array(bounded.partitions_of_unit()[first])
    if layout.summands:
        # A unit's partitions follow one another by keyed hash, so that the first is the one with the least.
        counted = contributions.sums_of_pairs(wire, bounded, 0)[first]
        columns["rows"] = pa.array(np.minimum(counted // ONE_IN_STEPS, MOST_ROWS))
    return pa.table(columns)
