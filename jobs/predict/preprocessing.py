"""Turns rows into examples of a trained model again: binds its preparation to the given files.

In: a model's `Preparation`, the schema of a source, the requested columns. Out: `Prepared`, which turns tables of rows
into tables of examples. Holds: whatever only the label needs is neither computed nor read, since the label is not known
yet; every problem is reported by column name before a row is read; rows are processed one by one or by whole units, as
needed. Not covered: a job's window of event time, which is not part of a preparation: the files decide which rows there
are.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import lookup, lookups
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.spec.validation_errors import JobErrors, nearest
from dp_pipelines.jobs.sql import expressions, row_slices
from dp_pipelines.jobs.sql.row_expressions import RowExpressions
from dp_pipelines.jobs.sql.windows import unit_columns
from dp_pipelines.kernels import keys
from dp_pipelines.training.description import Preparation

MODEL = "model"
"""The field for errors in a model's own texts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """From rows to examples.

    Args:
        rows: the condition and the defined columns over one row.
        lookup: the joined tables, or None.
        units: windows over the rows of a unit; None where rows are taken one by one.
        condition: where there are no windows, which rows become examples; or None.
        columns: what is read of the source.
        results: what an example has.
        max_rows_per_unit: rows of a unit that windows see.
    """

    rows: RowExpressions
    lookup: lookups.Lookups | None
    units: unit_columns.UnitExpressions | None
    condition: RowExpressions | None
    columns: tuple[str, ...]
    results: tuple[str, ...]
    max_rows_per_unit: int | None

    def shapes(self, table: pa.Table) -> Iterator[pa.Table]:
        """What each row gives by itself: all columns that later steps read; in several tables where texts are long."""
        for start, stop in row_slices.cut(table, table.column_names):
            for shaped in self.rows.tables(_plain(table.slice(start, stop - start))):
                for found in [shaped] if self.lookup is None else self.lookup.shaped(shaped):
                    for begin, end in row_slices.cut(found, found.column_names):
                        yield _plain(found.slice(begin, end - begin))

    def examples(self, shaped: pa.Table) -> Iterator[pa.Table]:
        """The examples of rows as `shapes` gives them; where there are windows, of whole units."""
        found = iter([shaped])
        if self.units is not None:
            found = iter([self.units.apply(shaped)])
        elif self.condition is not None:
            found = self.condition.tables(shaped)
        for table in found:
            yield table.select(list(self.results))


def bind(
    preparation: Preparation,
    schema: pa.Schema,
    *,
    unit: Sequence[str],
    features: Sequence[str],
    kept: Sequence[str] = (),
    any_type: Collection[str] = (),
    values: Mapping[str, Value],
    tables: Sequence[pa.Table] = (),
    every: bool = False,
    told: str = "the input",
) -> Prepared:
    """Bind a preparation to a source.

    Args:
        preparation: of the model.
        schema: of the source.
        unit: the columns of the privacy unit.
        features: the columns that the model reads.
        kept: further columns that are asked for.
        any_type: columns that are only copied, so that their types may differ from those of training.
        values: of the parameters.
        tables: the public tables that are joined, in their order.
        every: whether rows become examples that the stage's `where` would leave out.
        told: how the source is called in messages.

    Raises:
        RequestError: a column is missing, or an expression does not fit the columns that are there.
    """
    known = _known(preparation, schema)
    full = _bound(preparation, known, unit, values, tables, every)
    wanted = tuple(dict.fromkeys((*features, *kept)))
    # Go from the last definition to the first, to see which earlier ones are needed.
    needed = dict.fromkeys(wanted)
    if full.units is not None:
        windowed = {item.name: item for item in full.units.defined}
        if full.units.where is not None:
            needed |= dict.fromkeys(full.units.where.columns)
        for name in reversed(windowed):
            if name in needed:
                needed |= dict.fromkeys(windowed[name].columns)
        windows = [name for name in windowed if name in needed]
    else:
        windows = []
    added = {field.name for field in full.lookup.fields} if full.lookup is not None else set()
    # A table that makes several rows of one is joined whatever is read of it.
    joined = full.lookup is not None and (full.lookup.explodes or bool(added & set(needed)))
    if joined and full.lookup is not None:
        needed |= dict.fromkeys(full.lookup.on)
    defined = {item.name: item for item in full.rows.defined}
    for name in defined:
        if name in needed:
            needed |= dict.fromkeys(defined[name].columns)
    if full.rows.where is not None:
        needed |= dict.fromkeys(full.rows.where.columns)
    if windows:
        needed |= dict.fromkeys(unit)
    elsewhere = {*windows, *defined, *(added if joined else ())}
    read = tuple(name for name in needed if name not in elsewhere)
    # If there is a unit, it is written with each prediction.
    read += tuple(name for name in unit if name not in read and name in schema.names)
    for name in read:
        if name not in schema.names:
            close = nearest(name, schema.names, "columns") or "add it, or predict with --examples"
            raise RequestError(field=told, message=f"has no column {name!r}, which the model needs", hint=close)
        ours, theirs = schema.field(name).type, known.field(name).type if name in known.names else None
        if name in any_type:
            continue
        if theirs is not None and _family(ours) != _family(theirs) and not pa.types.is_null(ours):
            message = f"has column {name!r} as {ours}, and the model was trained with {theirs}"
            raise RequestError(field=told, message=message, hint="write it with that type")
    lean = dataclasses.replace(
        preparation,
        columns={name: text for name, text in preparation.columns.items() if name in needed},
        unit_columns={name: text for name, text in preparation.unit_columns.items() if name in windows},
    )
    actual = pa.schema([schema.field(name) for name in read])
    final = _bound(lean, actual, unit, values, tables if joined else (), every)
    results = tuple(dict.fromkeys((*(name for name in unit if name in read), *wanted)))
    return dataclasses.replace(final, columns=read, results=results)


def lookups_of(preparation: Preparation) -> Sequence[Mapping[str, Any]]:
    """The public tables that a model joins, as `Preparation.lookups` has them.

    >>> lookups_of(Preparation(lookup="store"))
    [{'on': {'store': 'store'}}]
    """
    if preparation.lookup is not None:
        return [{"on": {preparation.lookup: preparation.lookup}}]
    return preparation.lookups


def parameters(preparation: Preparation, given: Iterable[str]) -> dict[str, Value]:
    """The parameters of the run that trained the model, those given on the command line in their place.

    Raises:
        RequestError: as for `job_parameters.take`.
    """
    listed = list(given)
    taken = {item.partition("=")[0] for item in listed}
    kept = [f"{name}={text}" for name, (_, text) in preparation.params.items() if name not in taken]
    kinds = {name: {"str": "string"}.get(kind, kind) for name, (kind, _) in preparation.params.items()}
    if not set(kinds.values()) <= {"string", "int", "float", "date"}:
        raise RequestError(
            field=MODEL, message="has a parameter of an unknown type", hint="use a newer version of dp_pipelines"
        )
    return job_parameters.take(kinds, [*listed, *kept])


def type_of(name: str, text: str) -> pa.DataType:
    """The type that Arrow writes as some text.

    Raises:
        RequestError: there is none, or CSV has none.

    >>> type_of("paid_at", "timestamp[us, tz=UTC]"), type_of("price", "decimal128(10, 2)")
    (TimestampType(timestamp[us, tz=UTC]), Decimal128Type(decimal128(10, 2)))
    """
    zoned = re.fullmatch(r"timestamp\[(s|ms|us|ns), tz=([A-Za-z0-9_+:/-]{1,60})\]", text)
    decimal = re.fullmatch(r"decimal(128|256)\(([0-9]{1,2}), ([0-9]{1,2})\)", text)
    octets = re.fullmatch(r"fixed_size_binary\[([0-9]{1,6})\]", text)
    try:
        if zoned:
            return pa.timestamp(zoned[1], zoned[2])
        if decimal:
            made = pa.decimal128 if decimal[1] == "128" else pa.decimal256
            return made(int(decimal[2]), int(decimal[3]))
        if octets:
            return pa.binary(int(octets[1]))
        return pa.type_for_alias(text)
    except (ValueError, pa.ArrowException):
        message = f"holds column {name!r} with the unknown type {text!r}"
        raise RequestError(field=MODEL, message=message, hint="use a model that this version wrote") from None


def _known(preparation: Preparation, schema: pa.Schema) -> pa.Schema:
    """The source as it was for training, if known: its definitions fit that one."""
    listed = {name: type_of(name, text) for name, text in preparation.source.items()}
    return pa.schema([*listed.items(), *(field for field in schema if field.name not in listed)])


def _family(kind: pa.DataType) -> str:
    """Types that expressions and features take alike."""
    plain = keys.plain_type(kind)
    if pa.types.is_integer(plain) or pa.types.is_floating(plain) or pa.types.is_decimal(plain):
        return "number"
    if pa.types.is_date(plain):
        return "date"
    if pa.types.is_timestamp(plain):
        return "timestamp" if plain.tz is None else "timestamp with a zone"
    return "time" if pa.types.is_time(plain) else str(plain)


def _bound(
    preparation: Preparation,
    schema: pa.Schema,
    unit: Sequence[str],
    given: Mapping[str, Value],
    tables: Sequence[pa.Table],
    every: bool,
) -> Prepared:
    try:
        rows = expressions.bind(preparation.where, preparation.columns, schema, unit=unit, values=given)
        available, joined = rows.output_schema, None
        if tables:
            found = []
            for declared, table in zip(lookups_of(preparation), tables, strict=True):
                most = declared.get("max_rows_per_key", 1)
                found.append(lookup.bind(table, declared["on"], available, unit=unit, most=most))
                available = pa.schema([*available, *found[-1].fields])
            joined = lookups.Lookups(tuple(found))
            available = pa.schema([*available, *(f for f in joined.fields if f.name not in available.names)])
        where = None if every else preparation.examples_where
        windows, condition = None, None
        if preparation.unit_columns:
            windows = unit_columns.bind(preparation.unit_columns, where, available, unit=unit, values=given)
        elif where is not None:
            condition = expressions.bind(where, {}, available, unit=unit, values=given)
    except JobErrors as errors:
        raise JobErrors([_of_model(error) for error in errors.problems]) from None
    except RequestError as error:
        raise _of_model(error) from None
    return Prepared(
        rows=rows,
        lookup=joined,
        units=windows,
        condition=condition,
        columns=(),
        results=(),
        max_rows_per_unit=preparation.max_rows_per_unit,
    )


def _of_model(error: RequestError) -> RequestError:
    return RequestError(field=f"{MODEL}, {error.field}", message=error.message, hint=error.hint)


def _plain(table: pa.Table) -> pa.Table:
    """The columns as every step sees them, however a file has coded them."""
    columns: dict[str, Any] = {
        name: column if pa.types.is_nested(keys.plain_type(column.type)) else keys.plain(column)
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pa.table(columns)
