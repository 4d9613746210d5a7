"""Joins two tables as a run does, and notes how many rows and units of each meet one of the other.

In: what `JoinRows` gets. Out: the joined rows, and notes. Holds: the joined rows are those of a run. NOT private.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dp_pipelines.extensions.check.notes import Notes
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.columns.matches import Matches
from dp_pipelines.steps.unit_join import JoinRows


class CountMatches(JoinRows):
    """The joined rows of a shard's units, and what is counted of the two tables."""

    def seen(self, ours: pa.Table | None, theirs: pa.Table | None, found: Matches | None) -> Iterator[pa.Table]:
        """Rows after the caps, rows and units that meet, and pairs."""
        notes = Notes("join")
        for side, rows in (("left", ours), ("right", theirs)):
            notes.add(side, "capped", 0 if rows is None else rows.num_rows)
        if ours is not None and theirs is not None and found is not None:
            meets = found.counts > 0
            notes.add("pairs", int(found.counts.sum()))
            notes.add("left", "matched", int(meets.sum()))
            # Left rows with one key meet the same right rows, which begin at one place.
            _, first = np.unique(found.starts[meets], return_index=True)
            notes.add("right", "matched", int(found.counts[meets][first].sum()))
        self._note_units(ours, theirs, notes)
        yield notes.table()

    def _note_units(self, ours: pa.Table | None, theirs: pa.Table | None, notes: Notes) -> None:
        """Units of each table, and of both."""
        units = [
            [keys.one_array(rows.column(name)) for name in side.tagged(side.unit)]
            for rows, side in ((ours, self._join.left), (theirs, self._join.right))
            if rows is not None
        ]
        if not units:
            return
        codes = keys.dense([gather.joined(list(columns)) for columns in zip(*units, strict=True)]).codes
        size = int(codes.max(initial=-1)) + 1
        left = len(units[0][0]) if ours is not None else 0
        in_left, in_right = (np.bincount(part, minlength=size) > 0 for part in (codes[:left], codes[left:]))
        notes.add("left", "units", int(in_left.sum()))
        notes.add("right", "units", int(in_right.sum()))
        notes.add("units_of_both", int((in_left & in_right).sum()))
