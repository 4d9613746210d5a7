"""What the columns of made-up rows hold, so that a job's stages have something to show.

In: a checked request. Out: `MadeUpRows`: users, rows of each, values of each column, all of it in words. Holds: only what the
job declares and the types of columns count: ranges, edges, categories, public lists, keys of the lookup, `expect`. Not covered:
making the rows (`dp_pipelines.jobs.made_up.synthetic_rows`).
"""

import dataclasses
import datetime
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dp_pipelines.jobs.made_up import synthetic_rows
from dp_pipelines.jobs.made_up.synthetic_rows import OfAKind, Values
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.kernels import keys
from dp_pipelines.kernels.columns import column_types
from dp_pipelines.metrics.vectors import VectorSum
from dp_pipelines.query.large_list import LargeList
from dp_pipelines.query.query import PublicPartitions, Query
from dp_pipelines.query.train_model import BinaryLabel

USERS, MOST_USERS, MOST_ROWS = 10_000, 200_000, 2_000_000
GENEROUS = 1000
"""How much smaller values are than the range within which a run chooses their bounds."""

MOST_ROWS_EACH = 16.0
"""A median, where nothing is declared."""

GROUPS, WEEKS = 8, 12
"""How many values a column has that nothing is declared of."""

FIRST_DAY = datetime.date(2024, 1, 1)
"""A Monday. Fixed, so that the same job makes the same rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MadeUpRows:
    """Rows to be made up.

    Args:
        users: privacy units.
        rows_each: median rows of each.
        columns: what each column holds.
        words: all of it, one a sentence.
    """

    users: int
    rows_each: float
    columns: Mapping[str, pa.Array | OfAKind]
    words: tuple[str, ...]


def rows_of(request: Request) -> MadeUpRows:
    """The made-up rows of a job."""
    schema = request.rows.output_schema
    unit = set(request.file.job.unit)
    added: dict[str, Any] = {}
    columns: dict[str, pa.Array | OfAKind] = {}
    hints = dict(_hints(request))
    partitioned = {name for query in request.queries.values() for name in query.partition_by}
    for field in schema:
        if field.name not in unit:
            kind = keys.plain_type(field.type)
            columns[field.name] = _column(field.name, kind, hints.get(field.name), field.name in partitioned)
    for table in request.lookup.tables if request.lookup is not None else ():
        added.update(zip(table.columns.column_names, table.columns.columns, strict=True))
    users, rows_each = _amounts(request, {**columns, **added})
    words = (
        f"{users:,} users, each a privacy unit; rows of a user: median {rows_each:.4g}, lognormal, at least 1",
        *(f"{name}: {_words(column)}" for name, column in columns.items()),
        "all of these are independent of each other, nothing is null, and every row passes `where`",
    )
    return MadeUpRows(users=users, rows_each=rows_each, columns=columns, words=words)


def _hints(request: Request) -> Iterator[tuple[str, Any]]:
    """What the job declares of columns: a range (two numbers), a list of values, or the size of lists; the last one counts."""
    for query in request.queries.values():
        metrics = [*query.metrics.values(), *([query.best.metric] if query.best is not None else [])]
        for metric in metrics:
            for name in (*([metric.column] if metric.column else []), *getattr(metric, "columns", ())):
                hint = _of_metric(metric, query)
                if hint is not None:
                    yield name, hint
    for task in request.tasks.values():
        if (by := task.model.evaluation_by) is not None:
            yield by.column, list(by.groups)
        for named in (*task.model.features.values(), task.model.label):
            listed = getattr(named, "categories", None) or getattr(named, "classes", None)
            if listed is None and isinstance(named, BinaryLabel):
                listed = [True, False]
            low, high = getattr(named, "min_value", None), getattr(named, "max_value", None)
            if listed is not None:
                yield named.column, list(listed)
            elif low is not None and high is not None:
                yield named.column, (low, high)
    for query in request.queries.values():
        if isinstance(query.partitions, PublicPartitions) and not query.is_total:
            names = tuple(query.partition_by)
            if isinstance(query.partitions, LargeList):  # some of its keys, which are as good as all
                listed = list(query.partitions.keys.bucket(0).columns)
            else:
                listed = query.partitions.listed.arrays(names)
            for name, values in zip(names, listed, strict=True):
                yield name, pc.unique(values).to_pylist()
    for table in request.lookup.tables if request.lookup is not None else ():
        for name, values in zip(table.on, table.keys, strict=True):
            yield name, pc.unique(values)


def _of_metric(metric: Any, query: Query) -> Any:
    """What a metric declares of its column."""
    if isinstance(metric, VectorSum):
        return metric.size
    if getattr(metric, "categories", None):
        return list(metric.categories)
    ends = getattr(metric, "edges", None) or getattr(metric, "candidates", None)
    if ends:
        return (float(ends[0]), float(ends[-1]))
    if getattr(metric, "within", None):  # a generous range: most values lie far below its end
        low, high = metric.within
        return (low / GENEROUS, high / GENEROUS) if low < 0 else (low, low + (high - low) / GENEROUS)
    if metric.clips_partition_sums:
        rows = query.bounds.max_rows_per_partition
        return (metric.min_sum_per_partition / rows, metric.max_sum_per_partition / rows)
    declared = (getattr(metric, "min_value", None), getattr(metric, "max_value", None))
    low, high = (getattr(end, "default", end) for end in declared)  # those that differ by partition have a default
    return (float(low), float(high)) if isinstance(low, int | float) and isinstance(high, int | float) else None


def _column(name: str, kind: pa.DataType, hint: Any, partition: bool) -> pa.Array | OfAKind:
    if isinstance(hint, pa.Array):
        return hint.cast(kind)
    if isinstance(hint, list):
        if all(isinstance(value, bool) for value in hint) and not pa.types.is_boolean(kind):
            hint = [int(value) for value in hint]  # a label of ones and zeros
        return column_types.public_column(name, kind, hint)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else hint if isinstance(hint, int) else 1
        return OfAKind(kind=kind.value_type, values=Values(low=-1.0, high=1.0, middle=0.0), size=size)
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if number and (isinstance(hint, tuple) or not partition):
        low, high = hint if isinstance(hint, tuple) else (0.0, 100.0)
        return OfAKind(kind=kind, values=Values(low=low, high=high, middle=(low + high) / 2))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.array([f"made-up {number}" for number in range(1, GROUPS + 1)]).cast(kind)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        days = range(0, 7 * WEEKS, 7 if partition else 1)
        made = pa.array([FIRST_DAY + datetime.timedelta(days=day) for day in days], pa.date32())
        return made.cast(pa.timestamp("s")).cast(kind) if not pa.types.is_date32(kind) else made
    if pa.types.is_nested(kind):
        return pa.nulls(1, kind)
    (made,) = synthetic_rows.made_keys(min(GROUPS, synthetic_rows.most([kind])), [kind])
    return made


def _amounts(request: Request, columns: Mapping[str, Any]) -> tuple[int, float]:
    """How many users there are, and the median of their rows."""
    bounds = [query.bounds for query in request.queries.values()]
    rows_each = min([MOST_ROWS_EACH, *(max(bound.max_rows / 2, 1.0) for bound in bounds)])
    users, expect = float(USERS), request.file.job.expect
    first = next(iter(request.queries.values()), None)
    if first is not None and expect is not None and expect.users is not None:
        listed = [columns[name] for name in first.partition_columns if name in columns]
        groups = math.prod(len(column) for column in listed if not isinstance(column, OfAKind))
        if expect.rows_per_partition is not None:
            rows_each = expect.rows_per_partition / expect.users * min(first.bounds.max_partitions / 2, groups)
            rows_each = max(rows_each / math.exp(synthetic_rows.SPREAD**2 / 2), 0.1)
        of_user = min(synthetic_rows.mean(rows_each), groups)
        users = expect.users * groups / max(of_user, 1.0)
    rows_each = min(rows_each, MOST_ROWS / 100)
    most = min(MOST_USERS, MOST_ROWS / synthetic_rows.mean(rows_each))
    schema = request.source.schema
    different = synthetic_rows.most(schema.field(name).type for name in request.file.job.unit)
    return int(min(max(users, 1.0), most, different)), rows_each


def _words(column: pa.Array | OfAKind) -> str:
    if isinstance(column, OfAKind):
        said = column.values.words("it").removeprefix("values of it: ")
        return f"lists of {column.size} numbers, {said}" if column.size else said
    return f"{len(column):,} values, popularity is one over the rank"
