"""`tune --synthetic`: the assumptions about synthetic rows, and a request that reads them in place of the job's.

In: the options, a checked request. Out: `Assumptions`; a request over one Parquet file of made-up rows. Holds: of the job's
files their schema alone counts, neither their rows nor how many there are, nor statistics of them; the rows are made as the
stage reads them, after `where`, `columns`, a lookup and unit columns, none of which is evaluated. Not covered: what ought to
be assumed; files whose footers cannot be read.
"""

import argparse
import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.tune.configuration import supported
from dp_pipelines.jobs.made_up import synthetic_rows
from dp_pipelines.jobs.made_up.synthetic_rows import Assumptions, Values
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.sources import source_files
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.jobs.sql.row_expressions import RowExpressions
from dp_pipelines.kernels import keys
from dp_pipelines.query.query import PublicPartitions, Query

USERS, PARTITIONS = 10_000, 1_000
"""What is assumed where nothing is declared."""

MOST_USERS, MOST_PARTITIONS, MOST_ROWS = 10**6, 10**6, 10**7

OPTIONS = ("users", "partitions", "partitions_of_user", "rows_each", "value")

SALT = 0x73796E7468657469
"""Made-up rows are dealt to shards alike each time: so sums of floats round alike, and the same command writes the same bytes."""

LARGEST = 1e9
"""Of a median."""


def refuse_alone(given: argparse.Namespace) -> None:
    """Refuse options that contradict each other.

    Raises:
        RequestError: two sources of rows, or assumptions without rows that they are about.
    """
    if given.synthetic and given.sample:
        raise RequestError(
            field="--synthetic", message="cannot be combined with --sample", hint="give only one of the two"
        )
    for name in OPTIONS:
        if not given.synthetic and getattr(given, name):
            field = f"--{name.replace('_', '-')}"
            raise RequestError(field=field, message="describes synthetic rows", hint="add --synthetic, or drop it")


def assumptions(given: argparse.Namespace, request: Request, name: str) -> Assumptions:
    """What is assumed of the rows of a stage: options, else the job file, else constants.

    Args:
        given: the options.
        request: the job.
        name: of the stage, which can be tuned.

    Raises:
        RequestError: an option is wrong, or too many rows would follow.
    """
    query, expect = request.queries[name], request.file.job.expect
    both = [c for c in query.unit_columns if c in query.partition_columns]
    if both:
        message = "belongs to both the privacy unit and the partition, for which no joint assumption is possible"
        raise RequestError(field=f"column {both[0]!r}", message=message, hint="tune with --sample")
    partitions, listed = _partitions(given, request, query)
    declared = query.bounds
    median = declared.max_partitions / 2
    if given.partitions_of_user is not None:
        median = _number(given.partitions_of_user, "--partitions-of-user")
    if given.rows_each is not None:
        rows = _number(given.rows_each, "--rows-each")
    else:
        rows = declared.max_rows_per_partition / 2
        if expect is not None and expect.users is not None and expect.rows_per_partition is not None:
            # A lognormal's median lies that far below its mean.
            rows = min(expect.rows_per_partition / expect.users / math.exp(synthetic_rows.SPREAD**2 / 2), LARGEST)
    users = _whole(given.users, "--users", MOST_USERS)
    if users is None:
        users = USERS
        if expect is not None and expect.users is not None:
            wanted = expect.users * partitions / synthetic_rows.mean(median, partitions)
            users = round(min(max(wanted, 1), MOST_USERS))
    assumed = Assumptions(
        users=users, partitions=partitions, listed=listed, partitions_of_user=median, rows_each=rows,
        values=_values(given.value, query, synthetic_rows.mean(rows)),
    )  # fmt: skip
    _refuse_many(assumed, schema(request, name), query)
    return assumed


def schema(request: Request, name: str) -> pa.Schema:
    """The rows as a stage sees them."""
    if name in request.units:
        return request.units[name].expressions.output_schema
    fields = request.lookup.fields if request.lookup is not None else ()
    return pa.schema([*request.rows.output_schema, *fields])


def made_up(request: Request, name: str, assumed: Assumptions, path: pathlib.Path) -> Request:
    """Write the rows, and have a stage read these instead of the job's.

    Args:
        request: the job.
        name: of the stage.
        assumed: what is assumed of them.
        path: of the file, in a private folder.

    Returns:
        the request with that file as its source, in which the stage reads columns and evaluates nothing.
    """
    query, of_stage = request.queries[name], schema(request, name)
    types = {column: keys.plain_type(of_stage.field(column).type) for column in query.columns}
    table = synthetic_rows.table(
        assumed,
        units={column: types[column] for column in query.unit_columns},
        partitions=dict(zip(query.partition_by, _keys(assumed, query, types), strict=True)),
        values={column: types[column] for column in assumed.values},
    )
    pa.parquet.write_table(table, path)
    source = source_files.look_at_parquet([str(path)])
    return dataclasses.replace(
        request,
        source=source,
        rows=RowExpressions(where=None, defined=(), params={}, schema=source.schema),
        lookup=None,
        units={},
        columns=tuple(table.column_names),
        window=None,
    )


def _partitions(given: argparse.Namespace, request: Request, query: Query) -> tuple[int, bool]:
    """How many partitions there are, and whether a public list says so."""
    if isinstance(query.partitions, PublicPartitions):
        if given.partitions is not None:
            message = "applies to private partitions, but the stage lists public ones"
            raise RequestError(field="--partitions", message=message, hint="drop it")
        return query.partitions.count, True
    return _whole(given.partitions, "--partitions", MOST_PARTITIONS) or PARTITIONS, False


def _keys(assumed: Assumptions, query: Query, types: dict[str, pa.DataType]) -> list[pa.Array]:
    """The values of all partitions, by partition column."""
    names = tuple(query.partition_by)
    kinds = [types[name] for name in names]
    if isinstance(query.partitions, PublicPartitions):
        # The partition of all other keys has null for its own: other keys, unless null is listed.
        flag = [pa.bool_()] * (len(query.partition_columns) - len(names))
        return query.partitions.columns.typed(query.partition_columns, [*kinds, *flag])[: len(names)]
    return synthetic_rows.made_keys(assumed.partitions, kinds)


def _values(given: Sequence[str], query: Query, rows: float) -> dict[str, Values]:
    """How the values of each column are spread of which something is predicted.

    Args:
        given: `COLUMN=MEDIAN`.
        query: of the stage; its clips say what values can be.
        rows: of a user in a partition, on average.
    """
    found: dict[str, Values] = {}
    taken = {*query.unit_columns, *query.partition_columns}  # whose values are what they are
    for metric in query.metrics.values():
        column: Any = metric.column
        if supported(metric) and column is not None and column not in found and column not in taken:
            sums = metric.clips_partition_sums
            ends = ("min_sum_per_partition", "max_sum_per_partition") if sums else ("min_value", "max_value")
            low, high = (getattr(metric, end) / (rows if sums else 1) for end in ends)
            found[column] = Values(low=low, high=high, middle=(low + high) / 2)
    for text in given:
        column, equals, number = text.rpartition("=")
        if not equals or column not in found:
            hint = nearest(column, found, "columns") if found else "drop it"
            message = "must be COLUMN=MEDIAN, for a column that a predicted metric reads"
            raise RequestError(field=f"--value {text}", message=message, hint=hint or "")
        low = found[column].low if found[column].lognormal else -LARGEST
        middle = _number(number, f"--value {column}", above=low)
        found[column] = dataclasses.replace(found[column], middle=middle)
    return found


def _refuse_many(assumed: Assumptions, of_stage: pa.Schema, query: Query) -> None:
    """Refuse what types or memory cannot hold."""
    made = [("--users", assumed.users, query.unit_columns)]
    made += [] if assumed.listed else [("--partitions", assumed.partitions, tuple(query.partition_by))]
    for field, number, names in made:
        largest = synthetic_rows.most(of_stage.field(name).type for name in names)
        if number > largest:
            message = f"is {number:,}, and {', '.join(names)} can only have {largest:,} distinct keys"
            raise RequestError(field=field, message=message, hint=f"give at most {largest}")
    if assumed.rows > MOST_ROWS:
        message = f"would make about {assumed.rows:,.0f} rows, more than {MOST_ROWS:,}"
        raise RequestError(
            field="--synthetic", message=message, hint="give fewer --users, --partitions-of-user or --rows-each"
        )


def _whole(text: str | None, field: str, most: int) -> int | None:
    if text is None:
        return None
    number = _number(text, field, above=-math.inf)
    whole = int(number) if number == int(number) else number
    return checks.whole(whole, field, low=1, high=most, hint=f"write e.g. {field} 1000")


def _number(text: str, field: str, above: float = 0.0) -> float:
    """A number of an option. Raises: RequestError with its field."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    return checks.number(number, field, above=above, below=LARGEST, hint="write a plain number, e.g. 10")
