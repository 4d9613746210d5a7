"""The partial aggregates of coarser groups, out of those of the finest partitions of a shard.

In: partial aggregates, the kept (unit, partition) pairs behind them. Out: a table of the same columns for each level, with that
level's keys. Holds: all levels are about the same kept rows; sums of groups are sums of integers, so a group's equals the sum of
its partitions'; a unit counts once in each group, which no sum of its partitions gives (docs/proofs/rollup.md).
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.keys import Codes
from dp_pipelines.kernels.lattice import Flags, Integers
from dp_pipelines.kernels.layout import everything
from dp_pipelines.kernels.statistics import Statistic, UnitCount

MARKS = 32
"""Bytes for each kept pair that may be spent on marks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeptPairs:
    """The kept (unit, partition) pairs of a shard, those of a unit together.

    Args:
        rows: the row of the partial aggregates in which each pair's partition stands.
        first_of_unit: whether a pair is the first of its unit.
    """

    rows: Codes
    first_of_unit: Flags

    def units_of(self, groups: Codes, size: int) -> Integers:
        """How many different units each group has.

        Args:
            groups: of each row of the partial aggregates.
            size: how many groups there are.
        """
        if size == 1:
            return np.array([np.count_nonzero(self.first_of_unit)])
        unit, of_pairs = np.cumsum(self.first_of_unit) - 1, groups[self.rows]
        units = int(unit[-1]) + 1 if len(unit) else 0
        both = unit * np.int64(size) + of_pairs
        if units * size <= MARKS * len(both):  # a mark for each unit and group is less work than an order of them
            marked = np.zeros(units * size, np.bool_)
            marked[both] = True
            different = np.flatnonzero(marked)
        else:
            both.sort()
            different = both[np.diff(both, prepend=-1) > 0]
        return np.bincount(different % max(size, 1), minlength=size)


def of_level(leaves: pa.Table, places: Sequence[int], statistics: Sequence[Statistic], pairs: KeptPairs) -> pa.Table:
    """The partial aggregates of one level.

    Args:
        leaves: those of the finest partitions, as `accumulate.partials` gives them.
        places: of the level's columns among the partition columns; none: one group holds everything.
        statistics: of the columns a0..: each one integer for a partition.
        pairs: behind `leaves`.

    Returns:
        A table with p0.. and a0... Sums of a shard's partitions are sums of a shard, so that they stay within int64.
    """
    if places:
        found = keys.dense([keys.plain(leaves.column(f"p{place}")) for place in places])
        groups, size = found.codes, len(found)
        columns = {f"p{i}": column for i, column in enumerate(found.columns)}
    else:
        groups, size = np.zeros(leaves.num_rows, np.int64), min(leaves.num_rows, 1)
        columns = {"p0": gather.take(everything(), np.zeros(size, np.int64))}
    for i, statistic in enumerate(statistics):
        if isinstance(statistic, UnitCount):
            totals = pairs.units_of(groups, size)
        else:
            assert statistic.adds_up
            assert not statistic.in_lists
            totals = np.zeros(size, np.int64)
            np.add.at(totals, groups, keys.one_array(leaves.column(f"a{i}")).to_numpy())
        columns[f"a{i}"] = pa.array(totals)
    return pa.table(columns)
