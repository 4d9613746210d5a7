"""Checks bounds that differ by partition against the job's public lookup tables.

In: a job file, its lookup tables, the schema of each stage's rows. Out: nothing, or all that is wrong, with `file:line`, and the
file and line of the table's row. Holds: a clamp is public: it is read from the lookup table alone, by a key that the partition
has; each row of the table is a clamp. Not covered: what is wrong with a bound by itself (`metrics.sums`).
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.sources import public_tables, source_files
from dp_pipelines.jobs.sources.lookup import Lookup
from dp_pipelines.jobs.sources.lookups import Lookups
from dp_pipelines.jobs.spec.job_file import JobFile, Stage
from dp_pipelines.jobs.spec.validation_errors import nearest, raise_all
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns.column_types import check_value_type
from dp_pipelines.kernels.columns.long_text import LONGEST_KEY
from dp_pipelines.kernels.keys import is_text, one_array
from dp_pipelines.kernels.lattice import Flags, numbers_and_nulls
from dp_pipelines.metrics.base import Metric
from dp_pipelines.metrics.lookup_bound import LARGEST, LookupBound, PartitionScale


def check(file: JobFile, tables: Lookups | None, schemas: Mapping[str, pa.Schema]) -> None:
    """Refuse clamps that are not public, not one for each partition, or no clamps.

    Args:
        file: the job.
        tables: its lookup tables, or None.
        schemas: for each stage of the rows as it sees them.

    Raises:
        RequestError: all that is wrong.
    """
    problems = []
    for name, stage in file.job.stages.items():
        if not isinstance(stage, Stage):
            continue
        for key, declared in stage.metrics.items():
            metric = declared.build()
            if metric.scale is None:
                continue
            place = ("stages", name, "metrics", key)
            for field, error in _wrong(file, tables, schemas[name], stage, metric, metric.scale):
                problems.append(file.error((*place, field), error))
    raise_all(problems)


def _wrong(
    file: JobFile, tables: Lookups | None, schema: pa.Schema, stage: Stage, metric: Metric, scale: PartitionScale
) -> Iterator[tuple[str, RequestError]]:
    """The field of the metric, and what is wrong with it."""
    bounds = {field: getattr(metric, field) for field in ("min_value", "max_value")}
    by_table = {field: bound for field, bound in bounds.items() if isinstance(bound, LookupBound)}
    found = {field: _of_column(tables, schema, stage, bound) for field, bound in by_table.items()}
    wrong = {field: error for field, error in found.items() if error is not None}
    yield from wrong.items()
    if wrong or tables is None:
        return
    last = list(by_table)[-1]
    numbers = {_number(tables, bound.lookup) for bound in by_table.values()}
    if len(numbers) > 1:
        message = "is read from another lookup than the other bound"
        yield last, RequestError(field="", message=message, hint="put both columns into one public table")
        return
    (number,) = numbers
    table = tables.tables[number]
    if scale.name in schema.names:
        message = f"would add the column {scale.name!r}, which the rows already have"
        yield last, RequestError(field="", message=message, hint="rename that column")
    for field, rows, rule in _no_clamps(table, by_table, scale, last):
        if rows.any():
            column, row = by_table[field].lookup, _row(file, number, int(np.flatnonzero(rows)[0]))
            message = f"is read from column {column!r} of the lookup, which {rule} in {row}"
            hint = "correct that row of the public table, or drop it, so that the default counts"
            yield field, RequestError(field="", message=message, hint=hint)
            return


def _no_clamps(
    table: Lookup, by_table: Mapping[str, LookupBound], scale: PartitionScale, last: str
) -> Iterator[tuple[str, Flags, str]]:
    """Of each rule the field, the table's rows that break it, and the words for it."""
    for field, bound in by_table.items():
        values, nulls = numbers_and_nulls(one_array(table.columns.column(bound.lookup)))
        yield field, np.zeros(len(values), np.bool_) if nulls is None else nulls, "is null"
        yield field, ~(np.abs(values) < LARGEST), f"is not a finite number below {LARGEST:g}"
    other = scale.low if last == "max_value" else scale.high
    than = f"column {other.lookup!r}" if isinstance(other, LookupBound) else f"the other bound, {other:g},"
    rule = f"is not {'above' if last == 'max_value' else 'below'} {than}"
    yield last, scale.wrong(*scale.ends(table.columns)), rule
    for key in table.keys:
        if is_text(key.type):
            longer = pc.greater(pc.binary_length(key), LONGEST_KEY).to_numpy(zero_copy_only=False)
            rule = f"has a key of more than {LONGEST_KEY} bytes, which is null as a partition,"
            yield last, np.asarray(longer, np.bool_), rule


def _number(tables: Lookups, column: str) -> int:
    """Which table adds a column."""
    return next(number for number, table in enumerate(tables.tables) if column in table.columns.column_names)


def _of_column(tables: Lookups | None, schema: pa.Schema, stage: Stage, bound: LookupBound) -> RequestError | None:
    """What is wrong with the column that a bound names."""
    if tables is None:
        message = f"names column {bound.lookup!r} of a lookup, and the job has none"
        hint = "add lookup: {parquet: ..., on: ...} with a public table, or write a number"
        return RequestError(field="", message=message, hint=hint)
    names = [name for table in tables.tables for name in table.columns.column_names]
    if bound.lookup not in names:
        if bound.lookup in (*schema.names, *tables.on):
            message = f"names column {bound.lookup!r}, which is not one of the public lookup table's"
            listed = ", ".join(names[:12])
            hint = f"a bound read from the rows would be private; the table has: {listed}"
            return RequestError(field="", message=message, hint=hint)
        message = f"names column {bound.lookup!r}, which the lookup table does not have"
        return RequestError(field="", message=message, hint=nearest(bound.lookup, names, "columns of the lookup"))
    table = tables.tables[_number(tables, bound.lookup)]
    if table.most > 1:
        message = f"names column {bound.lookup!r} of a lookup that may have {table.most} rows for a key"
        hint = "read bounds from a table with one row for each key, without max_rows_per_key"
        return RequestError(field="", message=message, hint=hint)
    kind = table.columns.schema.field(bound.lookup).type
    try:
        check_value_type(kind, bound.lookup)
    except RequestError:
        message = f"names column {bound.lookup!r} of the lookup, which has type {keys.plain_type(kind)}"
        return RequestError(field="", message=message, hint="write it as numbers in the public table")
    for on in table.on:
        if on not in stage.partition_by:
            message = f"differs by {on!r}, which is not in partition_by, so that a partition would have many clamps"
            return RequestError(
                field="", message=message, hint=f"add {on!r} to partition_by, or write a number as the bound"
            )
    return None


def _row(file: JobFile, number: int, row: int) -> str:
    declared = file.job.lookups[number]
    files = source_files.find(declared.pattern, file.path.parent, file.job.place_of_lookup(number))
    return public_tables.place_of(files, row, is_csv=declared.csv is not None, form=declared.form)
