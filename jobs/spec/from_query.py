"""A query of the library as the job that a file would hold: so that both go one way.

In: a query, where its rows are, what it may cost. Out: a `JobFile` of one stage. Holds: what is wrong is told by the names of the
query's own arguments; two equal queries give equal jobs. Not covered: metrics that job files do not know.
"""

import dataclasses
import datetime
import decimal
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import job_file, validation_errors, yaml_lines
from dp_pipelines.jobs.spec.metric_models import described
from dp_pipelines.query.query import PrivatePartitions, PublicPartitions, Query, ReleasedPartitions

_AT = re.compile(r"\A[^:]*:\d+: ")


class AskedJob(job_file.JobFile):
    """A job that stands in no file: errors name the query's arguments, and no line."""

    def error(self, path: yaml_lines.Path, error: RequestError) -> RequestError:
        """The same error with the place of its argument before it."""
        located = super().error(path, error)
        return RequestError(field=_shortened(located.field, self.job.stages), message=error.message, hint=error.hint)


def job_of(
    query: Query,
    name: str,
    *,
    dataset: str,
    source: Mapping[str, Any],
    folder: pathlib.Path,
    epsilon: float,
    delta: float,
    where: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> AskedJob:
    """The job of one query.

    Args:
        query: what is asked for.
        name: of its stage.
        dataset: the account.
        source: as in a job file.
        folder: where relative names start.
        epsilon, delta: what it may cost.
        where: as in a job file.
        columns: as in a job file.

    Raises:
        RequestError: what is wrong.
    """
    if not isinstance(query, Query):
        raise RequestError(field="query", message="must be a Query", hint="write dp.Query(...)")
    _refuse_parts(query)
    content = {
        "dataset": dataset,
        "privacy_unit": list(query.unit_columns),
        "row_id": query.row_id,
        "budget": {"epsilon": epsilon, "delta": delta},
        "source": dict(source),
        "where": where,
        "columns": {} if columns is None else dict(columns),
        "stages": {name: _stage(query)},
    }
    return read(content, name, folder)


def read(content: Mapping[str, Any], name: str, folder: pathlib.Path) -> AskedJob:
    """The job of some content, as a file would hold it.

    Args:
        content: the keys of a job file.
        name: of its one stage.
        folder: where relative names start.

    Raises:
        RequestError: what is wrong, by the stage's own keys.
    """
    label = "query.json"
    try:
        text = json.dumps(content, default=_plain, allow_nan=False)
    except (TypeError, ValueError):
        message = "holds a value that no job file can hold"
        raise RequestError(field="query", message=message, hint="use numbers, texts and dates of Python") from None
    try:
        made = job_file.read(text, folder / label, label)
    except validation_errors.JobErrors as errors:
        shorter = (
            RequestError(field=_shortened(problem.field, {name: None}), message=problem.message, hint=problem.hint)
            for problem in errors.problems
        )
        validation_errors.raise_all(list(shorter))
        raise AssertionError("there is one") from None
    return AskedJob(made.path, made.job, made.document)


def _refuse_parts(query: Query) -> None:
    """What only stands for a part of a larger plan is no question by itself: it would be answered as another one."""
    if query.group is not None:
        message = "reads some of the units, for a plan that trains a model"
        raise RequestError(field="group", message=message, hint="leave it out, or write a job")
    if isinstance(query.partitions, ReleasedPartitions):
        message = "are those of other stages, and there are none"
        raise RequestError(field="partitions", message=message, hint="leave them out, or write a job")


def _stage(query: Query) -> dict[str, Any]:
    stage: dict[str, Any] = {
        "kind": "aggregate",
        "partition_by": list(query.partition_columns),
        "bounds": {k: v for k, v in dataclasses.asdict(query.bounds).items() if v is not None},
        "metrics": {name: described(name, metric) for name, metric in query.metrics.items()},
    }
    if isinstance(query.partitions, PrivatePartitions):
        stage["partitions"] = {"private": dataclasses.asdict(query.partitions)}
    elif isinstance(query.partitions, PublicPartitions):
        stage["partitions"] = {"public": [list(key) for key in query.partitions.keys]}
    if query.top is not None:
        stage["top"] = dataclasses.asdict(query.top)
    if query.best is not None:
        stage["metrics"] = {"best": described("best", query.best.metric)}
        stage["best"] = {"k": query.best.k, "by": "best", "mechanism": query.best.mechanism}
    return stage


def _plain(value: Any) -> Any:
    """What JSON does not know, as a job file would say it."""
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, tuple):
        return list(value)
    if hasattr(value, "item"):  # numbers of NumPy
        return value.item()
    raise TypeError


def _shortened(field: str, stages: Mapping[str, Any]) -> str:
    """A place in the job as the query's caller knows it."""
    field = _AT.sub("", field)
    for name in stages:
        field = field.removeprefix(f"stages.{name}.")
    return field.removeprefix("budget.")
