"""A query of the library, or the settings of a pipeline, as the job that a file would hold: so that all go one way.

In: a query, where its rows are, what it may cost. Out: a `JobFile` of one stage, made of these objects. Holds: what is wrong is
told by the names of the query's own arguments; two equal queries give equal jobs. Not covered: metrics that job files do not
know.
"""

import dataclasses
import pathlib
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import csv_arguments, job_file
from dp_pipelines.jobs.spec.content import Content, Path, plain
from dp_pipelines.jobs.spec.declared import said
from dp_pipelines.jobs.spec.job_file import JobFile, Stage
from dp_pipelines.jobs.spec.metric_models import described
from dp_pipelines.query.large_list import LargeList
from dp_pipelines.query.query import ContributionBounds, PrivatePartitions, PublicPartitions, Query, ReleasedPartitions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arguments(Content):
    """A job of one stage that a program gives: messages name its arguments.

    Args:
        data: plain Python data.
        names: from the beginning of a place in the job to what the program calls it; the first that fits counts.
        tables: what a statement may name behind FROM.
    """

    names: Mapping[str, str]
    tables: Collection[str] = ("source",)

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

    def delimiter(self, mark: str) -> str:
        """The option of a command, where it has one."""
        has_option = "source.delimiter" in self.names
        return csv_arguments.shown(mark) if has_option else super().delimiter(mark)

    def inside(self, path: Path, field: str, offset: int | None, words: str) -> str:
        """A place in a statement."""
        return f"SQL{words}"

    def takes_table(self, name: str) -> str:
        """Any of the tables that the program knows."""
        return "" if name in self.tables else "write " + " or ".join(f"FROM {known}" for known in self.tables)


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
    shown: Mapping[str, Any] = MappingProxyType({}),
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
        shown: `having`, `order_by` and `limit`, as in a job file.

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
        "stages": {name: {**_stage(query), **shown}},
    }
    return read(content, name, folder, {"metrics.best": "best.by"} if query.best is not None else {})


def job_of_statement(
    statement: str,
    name: str,
    *,
    unit: Sequence[str],
    dataset: str,
    source: Mapping[str, Any],
    folder: pathlib.Path,
    epsilon: float,
    delta: float,
    bounds: ContributionBounds | None,
    clips: Mapping[str, Any] | None,
    settings: Mapping[str, Any] | None,
    partitions: PrivatePartitions | PublicPartitions | None,
) -> JobFile:
    """The job of one statement.

    Args:
        statement: the statement; FROM names `source` or the dataset.
        name: of its stage.
        unit: the columns of the privacy unit.
        dataset, source, folder, epsilon, delta: as for `job_of`.
        bounds, partitions: as of a `Query`.
        clips, settings: as beside `select` in a job file.

    Raises:
        RequestError: what is wrong, by argument or by the place in the statement.
    """
    stage: dict[str, Any] = {"kind": "aggregate", "select": statement}
    beside = {"bounds": None if bounds is None else said(bounds), "clips": clips, "settings": settings}
    stage |= {key: held for key, held in beside.items() if held is not None}
    if partitions is not None:
        stage["partitions"] = _said_partitions(partitions)
    content = {
        "privacy_unit": list(unit),
        "dataset": dataset,
        "budget": {"epsilon": epsilon, "delta": delta},
        "source": source,
        "stages": {name: stage},
    }
    return read(content, name, folder, tables=("source", dataset))


def read(
    content: Mapping[str, Any],
    name: str,
    folder: pathlib.Path,
    names: Mapping[str, str] = MappingProxyType({}),
    tables: Collection[str] = ("source",),
) -> JobFile:
    """The job of some content, as a file would hold it.

    Args:
        content: the keys of a job file.
        name: of its one stage.
        folder: where relative names start.
        names: what the program calls a part of the stage, where that is not its key.
        tables: what a statement may name behind FROM.

    Raises:
        RequestError: what is wrong, by the stage's own keys.
    """
    stage = f"stages.{name}."
    known = {**{stage + key: word for key, word in names.items()}, stage: "", "budget.": ""}
    arguments = Arguments(data=content, names=known, tables=tables)
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
    if query.level is not None:
        message = "is a part of a rollup"
        raise RequestError(field="level", message=message, hint="leave it out, and write rollup")
    if query.windows is not None:
        message = "are for rows in Beam's FixedWindows, in a pipeline of your own"
        raise RequestError(field="windows", message=message, hint="use PrivateAggregate, or write a job with window:")
    if isinstance(query.partitions, LargeList):
        message = "are a list sorted on disk, which a job names by its file"
        hint = "write a job file with public_sorted_file and having, or list partitions that fit into memory"
        raise RequestError(field="partitions", message=message, hint=hint)
    if isinstance(query.partitions, ReleasedPartitions):
        message = "are those of other stages, and there are none"
        raise RequestError(field="partitions", message=message, hint="leave them out, or write a job")


def _stage(query: Query) -> dict[str, Any]:
    """The stage of a query. What a job file says in its own way stands here; all else is said by its field."""
    stage = {**Stage.said(query), "kind": "aggregate"}
    if query.is_total:
        del stage["partitions"]
    else:
        assert not isinstance(query.partitions, ReleasedPartitions), "they are refused"
        stage["partitions"] = _said_partitions(query.partitions)
    stage["metrics"] = {name: described(name, metric) for name, metric in query.metrics.items()}
    if query.best is not None:
        stage["metrics"] = {"best": described("best", query.best.metric)}
        stage["best"] = {**stage["best"], "by": "best"}
    return stage


def _said_partitions(partitions: PrivatePartitions | PublicPartitions) -> dict[str, Any]:
    if isinstance(partitions, PublicPartitions):
        return {"public": [list(key) for key in partitions.keys], **({"other": True} if partitions.other else {})}
    return {"private": said(partitions)}
