"""How many partitions each privacy unit has: one row of each unit, made of its own rows.

In: the wire rows of the units of a shard. Out: their units, each once, and the number of different partitions, at most as many
as the layout keeps. Holds: a unit's row depends on that unit's rows alone; a batch that was bounded before the shuffle gives the
same (the first partitions by keyed hash of a union are among the first of each part).
"""

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels import contributions
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.layout import Layout


def partitions_of_units(wire: pa.Table, layout: Layout, salt: int) -> pa.Table:
    """One row for each unit.

    Args:
        wire: all (reduced) wire rows of the units of a shard.
        layout: what partitions are, and how many of a unit are counted at most.
        salt: the run's own 64-bit number.

    Returns:
        The unit's columns u0.., and `partitions`.

    >>> layout = Layout(units=("u",), partitions=("p",), max_partitions=2)
    >>> wire = layout.wire(pa.table({"u": [7, 7, 7, 8, 8], "p": ["a", "b", "c", "a", "a"]}))
    >>> partitions_of_units(wire, layout, 1).to_pydict()
    {'u0': [7, 8], 'partitions': [2, 1]}
    """
    bounded = contributions.bound(wire, layout, salt).bounded
    first = np.flatnonzero(bounded.first_of_unit)
    rows = bounded.rows[bounded.starts[first]]
    columns = {name: gather.take(wire.column(name), rows) for name in layout.unit_names}
    return pa.table({**columns, "partitions": pa.array(bounded.partitions_of_unit()[first])})
