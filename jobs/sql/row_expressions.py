"""Applies the checked condition and defined columns of a job to rows.

In: expressions that `expressions.bind` has checked; tables of rows. Out: the kept rows, with the defined columns. Holds:
it is picklable; DuckDB is loaded only if there is something to evaluate, so a job without SQL never loads it. Not covered:
which expressions are allowed (`whitelist`).
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.sql import row_slices

if TYPE_CHECKING:
    from dp_pipelines.jobs.sql import row_calculator


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expression:
    """An expression that passed all checks.

    Args:
        name: the column that it defines; "where" for the condition.
        sql: its text, with job parameters as prepared parameters.
        type: the Arrow type of its values.
        columns: the source's columns that it names.
        growth: how many times longer its text may be than its input.
    """

    name: str
    sql: str
    type: pa.DataType
    columns: tuple[str, ...]
    growth: int = 1

    @property
    def item(self) -> "row_calculator.Item":
        """What is evaluated."""
        from dp_pipelines.jobs.sql import row_calculator

        return row_calculator.Item(sql=self.sql, type=self.type, columns=self.columns, growth=self.growth)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowExpressions:
    """A condition and defined columns over the rows of one source. Picklable; it connects only where it runs.

    Args:
        where: the condition; rows for which it is true are kept. None keeps all.
        defined: the defined columns.
        params: the values of the parameters.
        schema: the source's schema.
    """

    where: Expression | None
    defined: tuple[Expression, ...]
    params: Mapping[str, Value]
    schema: pa.Schema

    @functools.cached_property
    def _calculator(self) -> "row_calculator.Calculator":
        from dp_pipelines.jobs.sql import row_calculator

        return row_calculator.Calculator()

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The source's columns that the expressions name."""
        all_of_them = [*([self.where] if self.where else []), *self.defined]
        return tuple(dict.fromkeys(name for expression in all_of_them for name in expression.columns))

    @property
    def output_schema(self) -> pa.Schema:
        """The source's columns and then the defined ones."""
        return pa.schema([*self.schema, *(pa.field(item.name, item.type) for item in self.defined)])

    def apply(self, table: pa.Table) -> pa.Table:
        """The kept rows, with the defined columns after the others, in one table of as many chunks as needed.

        Args:
            table: rows that have at least the `input_columns`.

        Returns:
            the same columns and the defined ones, with rows in the same order.
        """
        return _one_schema(list(self.tables(table)))

    def tables(self, table: pa.Table) -> Iterator[pa.Table]:
        """As `apply`, in one or more tables: the longer their texts, the fewer rows each holds.

        A defined text is plain, or a dictionary made from the entries of a dictionary.
        """
        if self.where is None and not self.defined:
            yield table
            return
        from dp_pipelines.jobs.sql import by_entry, row_calculator

        if self.where is None:
            yield from self._with_defined(table)
            return
        mask = by_entry.values(self._calculator, table, self.where.item, self.params)
        if mask is not None:
            yield from self._with_defined(table.filter(mask))
            return
        for start, stop in row_slices.cut(table, *row_calculator.read_by([self.where.item])):
            rows = table.slice(start, stop - start)
            (mask,) = self._calculator.evaluate(rows, [self.where.item], self.params)
            yield from self._with_defined(rows.filter(mask))

    def _with_defined(self, table: pa.Table) -> Iterator[pa.Table]:
        """The rows with the defined columns."""
        from dp_pipelines.jobs.sql import by_entry, row_calculator

        ready = {e.name: by_entry.values(self._calculator, table, e.item, self.params) for e in self.defined}
        rest = [expression.item for expression in self.defined if ready[expression.name] is None]
        for start, stop in row_slices.cut(table, *row_calculator.read_by(rest)):
            rows = table.slice(start, stop - start)
            found = iter(self._calculator.evaluate(rows, rest, self.params))
            for expression in self.defined:
                column = ready[expression.name]
                values = next(found) if column is None else column.slice(start, stop - start)
                rows = rows.append_column(expression.name, values)
            yield rows


def _one_schema(tables: Sequence[pa.Table]) -> pa.Table:
    """Joins tables chunk by chunk, without a copy; a text column that is a dictionary in one of them becomes one in all."""
    coded = {name for rows in tables for name, kind in _kinds(rows) if pa.types.is_dictionary(kind)}
    alike = []
    for rows in tables:
        for place, (name, kind) in enumerate(_kinds(rows)):
            if name in coded and not pa.types.is_dictionary(kind):
                rows = rows.set_column(place, name, rows.column(place).dictionary_encode())
        alike.append(rows)
    return pa.concat_tables(alike)


def _kinds(table: pa.Table) -> list[tuple[str, pa.DataType]]:
    return list(zip(table.column_names, table.schema.types, strict=True))
