"""The rows of a released table that are published, and their printed order: `having`, `order_by`, `limit`.

In: a stage's released table. Out: the rows that are published, sorted by key, and notes on them. Holds: post-processing of
released numbers, so it costs nothing; the same table gives the same rows; ties go by key, null and NaN come last. Rows that are
chosen for their numbers were chosen for their noise too, and every page says so. Not covered: the grammar of conditions (`jobs`).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns import gather
from dp_pipelines.query.order_by import SortColumn
from dp_pipelines.release import finest_rows
from dp_pipelines.release.shown_leaves import ShownLeaves
from dp_pipelines.release.staging import sorted_by_key

ENTRY = "shown"
"""The key in a stage's manifest entry for the published rows."""

LONGEST = 200
"""Characters of a condition that are repeated for readers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShownRows:
    """The rules that select the published rows of a stage.

    Args:
        keys: the partition columns.
        ranks: columns that say which partition a row is of, and hold no noise: the keys, and a rank.
        having: the condition as it was written, or None.
        words: the condition with the values of parameters, for readers.
        reads: the columns that it names.
        passing: the rows of a table for which it is true.
        order_by: in which order rows are printed, and are the first.
        limit: how many rows are published, or None.
        top: whether the stage publishes its largest partitions only, before all this.
        leaves: of a rollup, whose finest partitions alone are chosen: where the others go.
    """

    keys: tuple[str, ...]
    ranks: tuple[str, ...]
    having: str | None = None
    words: str | None = None
    reads: tuple[str, ...] = ()
    passing: Callable[[pa.Table], pa.Table] | None = None
    order_by: tuple[SortColumn, ...] = ()
    limit: int | None = None
    top: bool = False
    leaves: ShownLeaves | None = None

    @property
    def chooses_by_number(self) -> bool:
        """Return True if it leaves rows out by their released numbers, so that these are too high or low on average.

        >>> ShownRows(keys=("k",), ranks=("k",), having="n > 5", reads=("n",)).chooses_by_number
        True
        >>> ShownRows(keys=("k",), ranks=("k",), having="k > 5", reads=("k",)).chooses_by_number
        False
        """
        ordered = [one.column for one in self.order_by] if self.limit is not None else []
        return any(column not in self.ranks for column in (*ordered, *self.reads))

    def of(self, table: pa.Table, large: Mapping[str, Any] | None = None) -> tuple[pa.Table, dict[str, Any]]:
        """Return the rows that are published, sorted by key, and the manifest's entry about them.

        Args:
            table: the stage's whole released table; over a large list what of it passes the condition.
            large: what is said of that list (`planning.noise_levels.passing_noise.described`).

        >>> table = pa.table({"k": ["a", "b", "c"], "n": [2.0, 9.0, None]})
        >>> shown = ShownRows(keys=("k",), ranks=("k",), order_by=(SortColumn(column="n", descending=True),), limit=1)
        >>> rows, said = shown.of(table)
        >>> rows.to_pydict(), said["words"][0]
        ({'k': ['b'], 'n': [9.0]}, 'of all 3 groups, the largest by n is shown, which noise makes too high on average')
        """
        if self.leaves is not None:
            return self._of_levels(table, self.leaves, large)
        passed, first = self._chosen(table, passes=bool(large))
        rows = sorted_by_key(first, self.keys)
        return rows, self.entry(int(large["keys"]) if large else table.num_rows, passed.num_rows, rows.num_rows)

    def _of_levels(
        self, table: pa.Table, leaves: ShownLeaves, large: Mapping[str, Any] | None
    ) -> tuple[pa.Table, dict[str, Any]]:
        """Return the published rows of a rollup: finest partitions that are not shown are in the rest of their group."""
        finest = leaves.leaves(table)
        # Longer than the name of any other column.
        row = "/" * (1 + max(map(len, table.column_names)))
        numbered = gather.filter_rows(table, finest).append_column(row, pa.array(np.flatnonzero(finest)))
        passed, first = self._chosen(numbered, passes=bool(large))
        flags = np.zeros(table.num_rows, np.bool_)
        flags[first.column(row).to_numpy()] = True
        groups = int(large["keys"]) if large else numbered.num_rows
        return leaves.without(table, flags), self.entry(groups, passed.num_rows, first.num_rows)

    def _chosen(self, table: pa.Table, *, passes: bool = False) -> tuple[pa.Table, pa.Table]:
        """Return the rows that pass the condition, and of those the first ones."""
        passed = table if self.passing is None or not table.num_rows or passes else self.passing(table)
        first = passed
        if self.limit is not None and passed.num_rows > self.limit:
            first = gather.take_rows(passed, pa.array(in_order(passed, self.order_by, self.keys)[: self.limit]))
        return passed, first

    def entry(self, groups: int, passed: int, rows: int) -> dict[str, Any]:
        """Return the manifest's entry about the published rows.

        Args:
            groups: how many partitions are released.
            passed: how many of them pass the condition.
            rows: how many of those are published.
        """
        return {
            "having": self.having,
            "order_by": [one.text for one in self.order_by],
            "limit": self.limit,
            "groups": groups,
            "passed": passed,
            "rows": rows,
            "words": self._words(groups, passed, rows),
        }

    def _words(self, groups: int, passed: int, rows: int) -> list[str]:
        """Return what readers must know about rows that were chosen by released numbers."""
        if not groups:
            return []
        finest = "" if self.leaves is None else "finest "
        every = f"{groups:,} {finest}group{'' if groups == 1 else 's'}" + (" that `top` has chosen" if self.top else "")
        sentences = [self._of_condition(passed, every)] if self.having is not None else []
        if rows < passed:
            whole = "of these" if sentences else f"of the {every}" if self.top else f"of all {every}"
            sentences.append(f"{whole}, {self._of_limit(rows)}")
        left_out = "a group that is left out is not zero" + (
            "" if self.leaves is None else ": it is in the `rest` of the group above it"
        )
        return [*sentences, left_out] if rows < groups and self.keys else sentences

    def _of_condition(self, passed: int, every: str) -> str:
        condition = " ".join((self.words or self.having or "").split())
        quoted = f"`{condition if len(condition) <= LONGEST else condition[: LONGEST - 1] + '…'}`"
        if not self.keys:
            return f"the total passes {quoted}" if passed else f"the total does not pass {quoted}; it is not zero"
        sentence = f"{passed:,} of {every} {'passes' if passed == 1 else 'pass'} {quoted}"
        if not passed or set(self.reads) <= set(self.ranks):
            return sentence
        return f"{sentence}; numbers just above a threshold are too high on average, those just below one too low"

    def _of_limit(self, rows: int) -> str:
        first, is_are = self.order_by[0], "is" if rows == 1 else "are"
        many = "" if rows == 1 else f"{rows:,} "
        if first.column in self.ranks or first.column.endswith("_stddev"):
            sentence = f"the first {many}by {', '.join(one.text for one in self.order_by)} {is_are} shown"
            if all(one.column in self.ranks for one in self.order_by):
                return sentence
            return f"{sentence}; numbers that are chosen for their size are too high or too low on average"
        size, bias = ("largest", "high") if first.descending else ("smallest", "low")
        return f"the {many}{size} by {first.column} {is_are} shown, which noise makes too {bias} on average"


def in_order(table: pa.Table, order_by: Sequence[SortColumn], keys: Sequence[str]) -> NDArray[np.int64]:
    """Return the rows of a table in an order; of equal ones in the order of their keys; null and NaN last.

    Args:
        table: its rows.
        order_by: columns of it.
        keys: its partition columns.

    >>> table = pa.table({"k": ["b", "a", "c"], "n": [1.0, 1.0, float("nan")]})
    >>> in_order(table, [SortColumn(column="n", descending=True)], ["k"]).tolist()
    [1, 0, 2]
    """
    by = [(one.column, "descending" if one.descending else "ascending") for one in order_by]
    named = {name for name, _ in by}
    by += [(name, "ascending") for name in keys if name not in named]
    by = [(name, way) for name, way in by if not pa.types.is_null(table.schema.field(name).type)]
    if not by or not table.num_rows:
        return np.arange(table.num_rows)
    return np.asarray(pc.sort_indices(table, sort_keys=by).to_numpy()).astype(np.int64)


def order_of(stage: Mapping[str, Any]) -> tuple[SortColumn, ...]:
    """Return the order of rows that a job asks for: by `order_by`, else by the metric of `top`; nothing for a rollup.

    Args:
        stage: its entry in the manifest.

    >>> [one.text for one in order_of({"top": {"k": 5, "by": "n"}})], order_of({})
    (['n desc'], ())
    """
    if finest_rows.is_rollup(stage):
        return ()
    part, top = read_part(stage), stage.get("top")
    if part is not None and part.order_by:
        return part.order_by
    by = top.get("by") if isinstance(top, Mapping) else None
    return (SortColumn(column=by, descending=True),) if isinstance(by, str) else ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShownPart:
    """The manifest's entry about a stage whose rows were chosen.

    Args:
        groups: how many were released.
        rows: how many of them are published.
        order_by: the order in which they are printed; empty where none was asked for.
        words: what readers must know.
        chooses: True if the job may leave rows out.
    """

    groups: int
    rows: int
    order_by: tuple[SortColumn, ...]
    words: tuple[str, ...]
    chooses: bool


def are_chosen(stage: Mapping[str, Any]) -> bool:
    """Return True if a stage publishes rows that were chosen for their numbers: sums over them are too large or too small.

    Args:
        stage: its entry in the manifest.

    >>> are_chosen({}), are_chosen({"top": {"k": 5, "by": "n"}})
    (False, True)
    >>> are_chosen({"shown": {"groups": 3, "rows": 1, "order_by": [], "words": []}})
    True
    """
    part = read_part(stage)
    return (part is not None and part.rows < part.groups) or "top" in stage


def read_part(stage: Mapping[str, Any]) -> ShownPart | None:
    """Read a stage's entry about its rows; None if all of them are published in the order of their size.

    Args:
        stage: the entry; any part of it may be missing.

    >>> read_part({}) is None, read_part({"shown": {"groups": 3, "rows": 1, "order_by": ["n desc"], "words": []}}).rows
    (True, 1)
    """
    entry = stage.get(ENTRY)
    if not isinstance(entry, Mapping):
        return None
    groups, rows, order_by, words = (entry.get(key) for key in ("groups", "rows", "order_by", "words"))
    if not all(type(number) is int and 0 <= number < 10**15 for number in (groups, rows)):
        return None
    if not all(isinstance(v, list) and all(isinstance(one, str) for one in v) for v in (order_by, words)):
        return None
    assert isinstance(groups, int)
    assert isinstance(rows, int)
    try:
        read = tuple(SortColumn.read(text) for text in order_by or ())
    except RequestError:
        return None
    chooses = entry.get("having") is not None or entry.get("limit") is not None
    return ShownPart(groups=groups, rows=rows, order_by=read, words=tuple(words or ()), chooses=chooses)
