"""`having`, `order_by` and `limit` of a stage, checked against the columns that it releases.

In: a job file, its queries, the schemas of their rows. Out: `ShownRows` for each stage that chooses among its released rows.
Holds: a condition is an expression of one released row, under the rules of `where` (`jobs.sql`); a row for which it is null is
left out; all that is wrong is told at once, with `file:line`. Not covered: the choice itself (`release.shown_rows`).
"""

from collections.abc import Mapping

import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import job_parameters
from dp_pipelines.jobs.spec.job_file import JobFile, Stage
from dp_pipelines.jobs.spec.job_parameters import Value
from dp_pipelines.jobs.spec.validation_errors import nearest, raise_all
from dp_pipelines.query.order_by import SortColumn, read_all
from dp_pipelines.query.query import Query
from dp_pipelines.query.released_schema import released_schema
from dp_pipelines.query.rollup import LEVEL, REST
from dp_pipelines.release.shown_leaves import ShownLeaves
from dp_pipelines.release.shown_rows import ShownRows

LIST = "holds a list in each row"

_LEVELS = dict.fromkeys((LEVEL, REST), "is the same in all rows that are chosen, the finest partitions")
"""Why a condition beside `rollup` compares none of its columns: groups above the finest level are always shown."""


def bind(
    file: JobFile, queries: Mapping[str, Query], schemas: Mapping[str, pa.Schema], values: Mapping[str, Value]
) -> dict[str, ShownRows]:
    """What each stage that chooses among its released rows publishes, by its name.

    Args:
        file: the job.
        queries: by aggregate stage.
        schemas: by stage, of its rows.
        values: of the parameters, which a condition may name.

    Raises:
        RequestError: all that is wrong.
    """
    found: dict[str, ShownRows] = {}
    problems: list[RequestError] = []
    for name, query in queries.items():
        stage = file.job.stages[name]
        assert isinstance(stage, Stage)
        if stage.having is None and stage.order_by is None:  # a limit needs an order
            continue
        released = released_schema(query, schemas[name])
        order_by = read_all(stage.order_by or ())
        for error in _wrong_order(order_by, released):
            problems.append(file.error(("stages", name, "order_by"), error))
        having = None
        if stage.having is not None:
            from dp_pipelines.jobs.sql import expressions  # loads DuckDB

            try:
                absent = _lists(released) | (_LEVELS if query.rollup is not None else {})
                having = expressions.over_released(stage.having, released, values, lists=absent)
            except RequestError as error:
                problems.append(file.error(("stages", name, "having"), error))
        found[name] = ShownRows(
            keys=query.sorted_by,
            ranks=query.published_keys,
            leaves=ShownLeaves.of(query) if stage.having is not None or stage.limit is not None else None,
            having=stage.having,
            words=job_parameters.into_words(stage.having, values) if stage.having is not None else None,
            reads=having.input_columns if having is not None else (),
            passing=having.apply if having is not None else None,
            order_by=tuple(order_by),
            limit=stage.limit,
            top=query.top is not None,
        )
    raise_all(problems)
    return found


def _lists(released: pa.Schema) -> dict[str, str]:
    return {field.name: LIST for field in released if pa.types.is_list(field.type)}


def _wrong_order(order_by: list[SortColumn], released: pa.Schema) -> list[RequestError]:
    """What is wrong with the columns of `order_by`."""
    problems, lists = [], _lists(released)
    plain = [name for name in released.names if name not in lists]
    for one in order_by:
        if one.column in lists:
            message, hint = (
                f"names column {one.column!r}, which {LIST}",
                "order by a column with one number in each row",
            )
            problems.append(RequestError(field="", message=message, hint=hint))
        elif one.column not in plain:
            message = f"names column {one.column!r}, which this stage does not release"
            hint = nearest(one.column, plain, "released columns")
            problems.append(RequestError(field="", message=message, hint=hint))
    return problems
