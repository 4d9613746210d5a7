"""Facts about rows before any of them is filtered: do they pass `where`, are they found in the lookup, not null in a column.

In: tables of rows as they are read, the expressions and the lookup of a job. Out: the unit's columns, a hash and the facts of
each row (`kernels.unit_facts`). Holds: a row's facts and hash depend on that row alone; a row on which an expression fails has
null there, as everywhere. Not covered: rows outside of the run's window, which belong to other runs; rows without a unit.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dp_pipelines.jobs.sources.event_window import RowWindow
from dp_pipelines.jobs.sources.lookups import Lookups
from dp_pipelines.jobs.sql.row_expressions import RowExpressions
from dp_pipelines.kernels import unit_facts
from dp_pipelines.kernels.columns import gather
from dp_pipelines.kernels.unit_facts import TWIN
from dp_pipelines.plan_stages.kept_counts import LOOKUP, WHERE, KeptCounts
from dp_pipelines.query.query import Query
from dp_pipelines.steps.step import Step

PASSES = "__where"
"""The column that says whether a row passes `where`."""


class FactsOfRows(Step):
    """Say of each row what a stage asks about the rows that it reads.

    Args:
        query: of the stage, with `kept`.
        window: of event time, or None.
        rows: `where` and `columns` of the job.
        lookup: the joined tables, or None.
        salt: of the hashes of rows.
    """

    def __init__(
        self, query: Query, window: RowWindow | None, rows: RowExpressions, lookup: Lookups | None, salt: int
    ) -> None:
        self._counts, self._units = KeptCounts.of(query), query.unit_columns
        self._window, self._lookup, self._salt = window, lookup, salt
        needed = {*self._counts.columns, *(() if lookup is None else lookup.on)}
        defined = [expression for expression in rows.defined if expression.name in needed]
        if rows.where is not None:  # which rows it keeps is a column here: all of them stay
            defined.append(dataclasses.replace(rows.where, name=PASSES))
        self._rows = dataclasses.replace(rows, where=None, defined=tuple(defined))

    def process(self, element: pa.Table) -> Iterator[pa.Table]:
        """The facts of one table."""
        table = element if self._window is None else self._window.apply(element)
        read = table.column_names
        for rows in self._rows.tables(table):
            for found in [rows] if self._lookup is None else self._lookup.shaped(rows):
                # Rows that a table has made of one row are told apart, and alike in what they were read with.
                told = [*read, TWIN] if TWIN in found.column_names else read
                hashes = unit_facts.row_hashes(found, told, self._salt)
                yield unit_facts.facts_of_rows(found, self._units, hashes, self._facts(found))

    def _facts(self, rows: pa.Table) -> NDArray[np.bool_]:
        facts = []
        for name in self._counts.filters:
            if name == WHERE:
                facts.append(pc.fill_null(rows.column(PASSES), False))
            if name == LOOKUP:
                assert self._lookup is not None
                facts.append(pa.chunked_array([pa.array(self._lookup.has(rows))]))
        flags = [np.asarray(gather.one_array(fact).to_numpy(zero_copy_only=False), np.bool_) for fact in facts]
        return np.column_stack([*flags, unit_facts.not_null(rows, self._counts.columns)])
