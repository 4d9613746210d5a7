"""A query of the library, or the settings of a pipeline, as the job that a file would hold: so that all go one way.

In: a query, where its rows are, what it may cost. Out: a `JobFile` of one stage, made of these objects. Holds: what is wrong is
told by the names of the query's own arguments; two equal queries give equal jobs. Not covered: metrics that job files do not
know.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.spec.content import Content, Path, plain
from dp_pipelines.jobs.spec.declared import said
from dp_pipelines.jobs.spec.job_file import JobFile, Stage
from dp_pipelines.jobs.spec.metric_models import described
from dp_pipelines.query.query import PrivatePartitions, PublicPartitions, Query, ReleasedPartitions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments(Content):
    """A job of one stage that a program gives: messages name its arguments.

    Args:
        data: plain Python data.
        names: from the beginning of a place in the job to what the program calls it; the first that fits counts.
    """

    names: Mapping[str, str]

    def named(self, path: Path, field: str) -> str:
        """A place in the job as the program knows it.

        >>> names = {"stages.weekly.": ""}
        >>> Arguments(data={}, names=names).named(("stages", "weekly", "bounds"), "stages.weekly.bounds")
        'bounds'
        """
        for beginning, name in self.names.items():
            if field.startswith(beginning):
                return name + field.removeprefix(beginning)
        return field


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
) -> JobFile:
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
        **job_file.Job.said(query),
        "dataset": dataset,
        "budget": {"epsilon": epsilon, "delta": delta},
        "source": source,
        "where": where,
        "columns": {} if columns is None else columns,
        "stages": {name: _stage(query)},
    }
    return read(content, name, folder, {"metrics.best": "best.by"} if query.best is not None else {})


def read(
    content: Mapping[str, Any], name: str, folder: pathlib.Path, names: Mapping[str, str] = MappingProxyType({})
) -> JobFile:
    """The job of some content, as a file would hold it.

    Args:
        content: the keys of a job file.
        name: of its one stage.
        folder: where relative names start.
        names: what the program calls a part of the stage, where that is not its key.

    Raises:
        RequestError: what is wrong, by the stage's own keys.
    """
    stage = f"stages.{name}."
    known = {**{stage + key: word for key, word in names.items()}, stage: "", "budget.": ""}
    arguments = Arguments(data=content, names=known)
    try:
        arguments = dataclasses.replace(arguments, data=plain(content))
    except RequestError as error:
        raise RequestError(field=arguments.named((), error.field), message=error.message, hint=error.hint) from None
    return job_file.checked(arguments, folder / name)


def _refuse_parts(query: Query) -> None:
    """What only stands for a part of a larger plan is no question by itself: it would be answered as another one."""
    if query.group is not None:
        message = "reads some of the units, for a plan that trains a model"
        raise RequestError(field="group", message=message, hint="leave it out, or write a job")
    if isinstance(query.partitions, ReleasedPartitions):
        message = "are those of other stages, and there are none"
        raise RequestError(field="partitions", message=message, hint="leave them out, or write a job")


def _stage(query: Query) -> dict[str, Any]:
    """The stage of a query. What a job file says in its own way stands here; all else is said by its field."""
    stage = {**Stage.said(query), "kind": "aggregate"}
    if query.is_total:
        del stage["partitions"]
    else:
        stage["partitions"] = _partitions(query)
    stage["metrics"] = {name: described(name, metric) for name, metric in query.metrics.items()}
    if query.best is not None:
        stage["metrics"] = {"best": described("best", query.best.metric)}
        stage["best"] = {**stage["best"], "by": "best"}
    return stage


def _partitions(query: Query) -> dict[str, Any]:
    if isinstance(query.partitions, PublicPartitions):
        return {"public": query.partitions.keys}
    assert isinstance(query.partitions, PrivatePartitions), "others are refused"
    return {"private": said(query.partitions)}
