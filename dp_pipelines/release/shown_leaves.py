"""The shown ones among the finest partitions of a rollup, and a row for the rest of each group.

In: the whole released table of a rollup, which of its finest rows stay. Out: the table that is published. Holds: groups above the
finest level stay, and equal the sum of their shown parts and their rest exactly; post-processing of released numbers, so it costs
nothing. Not covered: which rows pass a condition (`shown_rows`); large lists, whose rests are made with the rollup (`rolled_up`).
"""

import dataclasses
import math

import numpy as np
import pyarrow as pa

from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.keys import Codes
from dp_pipelines.kernels.lattice import Flags, Floats
from dp_pipelines.metrics.base import RAW
from dp_pipelines.query.query import Query
from dp_pipelines.query.rollup import LEVEL, REST
from dp_pipelines.release.staging import sorted_by_key


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShownLeaves:
    """The columns needed to add the finest partitions that are not shown to the rest of their group.

    Args:
        finest: the number of the finest level, from 0.
        columns: of the partition.
        parents: those of the level above the finest.
        sums: the metrics that add up, so that they have a rest.

    >>> shown = ShownLeaves(finest=1, columns=("k",), parents=(), sums=("n",))
    >>> bars = {"n_stddev": [1.0] * 3, "n_raw": [7.5, 4.5, 2.0], "n_raw_stddev": [1.0] * 3}
    >>> table = pa.table({"level": [0, 1, 1], "k": [None, "a", "b"], "n": [7.0, 4.0, 3.0], **bars})
    >>> found = shown.without(table, np.array([False, True, False]))
    >>> [found.column(name).to_pylist() for name in ("level", "k", "rest", "n", "n_raw")]
    [[0, 1, 1], [None, 'a', None], [False, False, True], [7.0, 4.0, 3.0], [7.5, 4.5, 3.0]]
    """

    finest: int
    columns: tuple[str, ...]
    parents: tuple[str, ...]
    sums: tuple[str, ...]

    @classmethod
    def of(cls, query: Query) -> "ShownLeaves | None":
        """Return the object for a query; None for one without levels."""
        if query.rolled is None:
            return None
        levels = query.rolled.levels
        return cls(
            finest=len(levels) - 1,
            columns=query.partition_columns,
            parents=tuple(name for name in query.partition_columns if name in levels[-2]),
            sums=tuple(name for name, metric in query.metrics.items() if metric.rolls_up == "sum"),
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the columns by which published rows are sorted."""
        return (LEVEL, *self.columns, REST)

    def leaves(self, table: pa.Table) -> Flags:
        """Return True for rows of finest partitions that are not a rest."""
        finest: Flags = table.column(LEVEL).to_numpy() == self.finest
        return finest & ~self._rests(table)

    def without(self, table: pa.Table, shown: Flags) -> pa.Table:
        """Return the table with the shown finest partitions, the others in the rest of their group, sorted by key.

        Args:
            table: all that is released; `rest` is one of its columns where partitions are private.
            shown: which of its rows are finest partitions that are shown.
        """
        leaves, old = self.leaves(table), self._rests(table)
        if REST in table.column_names and not (leaves & ~shown).any():
            return table
        above = np.flatnonzero((table.column(LEVEL).to_numpy() == self.finest - 1) & ~old)
        parent = self._parents(table, above)
        size = len(above)
        hidden = np.bincount(parent[leaves & ~shown], minlength=size)
        last = old & (table.column(LEVEL).to_numpy() == self.finest)
        had = np.bincount(parent[last], minlength=size) > 0
        known = (
            REST in table.column_names
        )  # parts that were not selected are in the rest, besides those that are not shown
        of = np.flatnonzero((hidden > 0) | had)
        stay = gather.filter_rows(table, (~leaves | shown) & ~last)
        rests = {LEVEL: pa.array(np.full(len(of), self.finest)), REST: pa.array(np.ones(len(of), np.bool_))}
        for name in self.columns:
            column = table.column(name)
            of_parent = gather.take(gather.one_array(column), above[of])
            rests[name] = of_parent if name in self.parents else pa.nulls(len(of), column.type)
        for name in self.sums:
            rests |= self._sums(table, name, _Groups(above, parent, leaves, shown), of, measured=known)
        if not known:
            stay = stay.append_column(REST, pa.array(np.zeros(stay.num_rows, np.bool_)))
        named = [name for name in table.column_names if name != REST]
        place = max(named.index(name) for name in (LEVEL, *self.columns)) + 1
        named.insert(place, REST)
        kinds = {name: stay.schema.field(name).type for name in named}
        added = pa.table({name: rests.get(name, pa.nulls(len(of), kinds[name])) for name in named})
        return sorted_by_key(pa.concat_tables([stay.select(named), added]), self.keys)

    def _sums(self, table: pa.Table, name: str, groups: "_Groups", of: Codes, *, measured: bool) -> dict[str, pa.Array]:
        """Return the columns of a metric in the rests: numbers without the published ones, and their deviations."""
        values, bars, raw, raw_bars = (
            table.column(column).to_numpy()
            for column in (name, f"{name}_stddev", f"{name}{RAW}", f"{name}{RAW}_stddev")
        )
        fitted = groups.variances_apart(bars) if measured else groups.variances_fitted(bars, raw_bars)
        return {
            name: pa.array(groups.left(values)[of]),
            f"{name}_stddev": pa.array(np.sqrt(fitted[of])),
            f"{name}{RAW}": pa.array(groups.left(raw)[of]),
            f"{name}{RAW}_stddev": pa.array(np.sqrt(groups.variances_apart(raw_bars)[of])),
        }

    def _rests(self, table: pa.Table) -> Flags:
        if REST not in table.column_names:
            return np.zeros(table.num_rows, np.bool_)
        flags: Flags = table.column(REST).to_numpy().astype(np.bool_)
        return flags

    def _parents(self, table: pa.Table, above: Codes) -> Codes:
        """Return the place of each row's group among those above the finest level; arbitrary for rows of other levels."""
        if not self.parents:
            return np.zeros(table.num_rows, np.int64)
        codes = keys.dense([keys.plain(table.column(name)) for name in self.parents]).codes
        place = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
        place[codes[above]] = np.arange(len(above))
        parents: Codes = place[codes]
        return parents


@dataclasses.dataclass(frozen=True)
class _Groups:
    """The groups above the finest level, and which rows are their parts.

    Args:
        above: the row of each group.
        parents: of each row the group.
        leaves: which rows are finest partitions.
        shown: which of them are shown.
    """

    above: Codes
    parents: Codes
    leaves: Flags
    shown: Flags

    def left(self, values: Floats) -> Floats:
        """Return the rest of each group without its shown parts, rounded once: exact if a float64 can hold it."""
        rows = np.flatnonzero(self.shown)
        rows = rows[np.argsort(self.parents[rows], kind="stable")]
        ends = np.searchsorted(self.parents[rows], np.arange(len(self.above) + 1))
        parts, whole = (-values[rows]).tolist(), values[self.above].tolist()
        pairs = zip(whole, ends[:-1], ends[1:], strict=True)
        return np.array([math.fsum([total, *parts[begin:end]]) for total, begin, end in pairs], np.float64)

    def variances_apart(self, bars: Floats) -> Floats:
        """Return the variances of the rests that the shown parts leave, if numbers are independent."""
        return np.square(bars[self.above]) + self._added(np.square(bars), self.shown)

    def variances_fitted(self, bars: Floats, raw_bars: Floats) -> Floats:
        """Return the variances of the sums of parts that are not shown, if numbers are the least squares of the whole tree.

        Those parts together are one part whose own number has the sum of their variances (docs/proofs/rollup.md, section 4).
        """
        own = np.square(raw_bars)
        every, hidden = self._added(own, self.leaves), self._added(own, self.leaves & ~self.shown)
        share = np.divide(hidden, every, out=np.zeros_like(every), where=every > 0)
        # Rounding alone could take it below zero.
        return np.maximum(hidden * (1 - share) + share**2 * np.square(bars[self.above]), 0.0)

    def _added(self, values: Floats, rows: Flags) -> Floats:
        return np.bincount(self.parents[rows], values[rows], minlength=len(self.above)).astype(np.float64)
