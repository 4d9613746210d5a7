"""Shapes rows as a run does, and notes what becomes of them: nulls, what `where` keeps, rows without a match or a unit.

In: tables of rows as they are read. Out: the shaped rows, and notes (`notes`) as tables of their own. Holds: the
rows are those that `ShapeRows` gives; each expression is evaluated once. NOT private.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.extensions.check.notes import Notes
from dp_pipelines.extensions.check.null_counts import nulls_of, rows_with_null
from dp_pipelines.jobs.run.row_facts import PASSES
from dp_pipelines.jobs.sources.event_window import RowWindow
from dp_pipelines.jobs.sources.lookup import NOTHING, Lookup
from dp_pipelines.jobs.sources.lookups import Lookups
from dp_pipelines.jobs.sql.row_expressions import RowExpressions
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.lattice import numbers_and_nulls
from dp_pipelines.metrics.lookup_bound import PartitionScale
from dp_pipelines.steps.step import Step


class LookAtRows(Step):
    """Filter, define and look up, row by row, and count.

    Args:
        name: of the table; empty for the rows that stages read.
        window: of event time, or None.
        rows: `where` and `columns`.
        lookup: the joined tables, or None.
        columns: of the shaped rows that are read.
        read: columns of the rows as they come, whose nulls are counted.
        unit: columns of the privacy unit.
        on: columns by which rows meet those of another table.
    """

    def __init__(
        self,
        name: str,
        *,
        window: RowWindow | None,
        rows: RowExpressions,
        lookup: Lookups | None,
        columns: Sequence[str],
        read: Sequence[str],
        unit: Sequence[str],
        on: Sequence[str] = (),
    ) -> None:
        self._name, self._window, self._lookup = name, window, lookup
        self._columns, self._read, self._unit, self._on = list(columns), list(read), list(unit), list(on)
        self._passes: RowExpressions | None = None
        if rows.where is not None:  # which rows it keeps is a column, so that nulls can be told from what is false
            condition = dataclasses.replace(rows.where, name=PASSES)
            self._passes = dataclasses.replace(rows, where=None, defined=(condition,))
        self._defined = dataclasses.replace(rows, where=None)

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The shaped rows in one table or more, then the notes."""
        notes = Notes("rows", self._name)
        table = element if self._window is None else self._window.apply(element)
        notes.add("read", element.num_rows)
        notes.add("in_window", table.num_rows)
        for name in self._read:
            notes.add("nulls", name, nulls_of(table.column(name)))
        for kept in self._kept(table, notes):
            for rows in self._defined.tables(kept):
                notes.add("kept", rows.num_rows)
                for expression in self._defined.defined:
                    notes.add("nulls_of_defined", expression.name, nulls_of(rows.column(expression.name)))
                for shaped in self._looked_up(rows, notes):
                    self._note_units(shaped, notes)
                    yield shaped.select(self._columns)
        yield notes.table()

    def _kept(self, table: pa.Table, notes: Notes) -> Iterator[pa.Table]:
        """The rows for which `where` is true."""
        if self._passes is None:
            yield table
            return
        for rows in self._passes.tables(table):
            passes = rows.column(PASSES)
            notes.add("where_null", passes.null_count)
            yield rows.drop_columns([PASSES]).filter(pc.fill_null(passes, False))

    def _looked_up(self, rows: pa.Table, notes: Notes) -> Iterator[pa.Table]:
        """The rows with the columns of public tables."""
        if self._lookup is None:
            yield rows
            return
        for number, table in enumerate(self._lookup.tables):
            if set(table.on) <= set(rows.column_names):
                _note_matches(rows, number, table, notes)
        for shaped in self._lookup.shaped(rows):
            for number, table in enumerate(self._lookup.tables):
                if not set(table.on) <= set(rows.column_names):  # its key is a column of an earlier table
                    _note_matches(shaped, number, table, notes)
            yield shaped

    def _note_units(self, rows: pa.Table, notes: Notes) -> None:
        notes.add("shaped", rows.num_rows)
        without = rows_with_null(rows, self._unit)
        notes.add("without_unit", int(without.sum()))
        if self._on:
            notes.add("without_on", int((rows_with_null(rows, self._on) & ~without).sum()))


class PlacesInRanges(Step):
    """Say of each value where it lies in the range of its partition, where ranges differ.

    Args:
        scales: the distinct ranges.
    """

    def __init__(self, scales: Sequence[PartitionScale]) -> None:
        self._scales = tuple(scales)

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The same table with a column for each range: 0 is its lower end and 1 its upper one."""
        for scale in self._scales:
            values, nulls = numbers_and_nulls(keys.one_array(element.column(scale.column)))
            low, high = scale.ends(element)
            with np.errstate(all="ignore"):
                places = (values - low) / (high - low)
            element = element.append_column(scale.name, pa.array(places, pa.float64(), mask=nulls))
        yield element


def _note_matches(rows: pa.Table, number: int, table: Lookup, notes: Notes) -> None:
    """How many rows have a row of a public table."""
    alone = table.places(rows) == NOTHING
    notes.add("lookup", number, "rows", rows.num_rows)
    notes.add("lookup", number, "null_key", int(rows_with_null(rows, list(table.on)).sum()))
    notes.add("lookup", number, "without_match", int(np.count_nonzero(alone)))
