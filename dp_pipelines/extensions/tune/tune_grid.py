"""The grid of `dp-pipelines tune`: what varies, with each configuration checked like the job file it stands for.

In: a checked request, the name of a stage, `--grid` as it was given (a file, or `PATH=VALUE,VALUE`). Out: configurations,
each with its job file and its query. Holds: each is validated as a job file would be, before anything is planned or read; the
error names the place in the job file, and the configuration. The job as it stands is the first of them, unless the grid holds
it already. Not covered: what they cost (`plans`).
"""

import copy
import dataclasses
import itertools
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.tune.configuration import KINDS, supported
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.spec import validation_errors, yaml_lines
from dp_pipelines.jobs.spec.content import Path
from dp_pipelines.jobs.spec.job_file import Job, JobFile, Private, Stage
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.query.query import PrivatePartitions, Query

MOST = 2000
"""Configurations of one grid."""

PATHS = (
    "bounds.max_partitions_contributed", "bounds.max_contributions_per_partition", "metrics.NAME.min_value",
    "metrics.NAME.max_value", "metrics.NAME.min_sum_per_partition", "metrics.NAME.max_sum_per_partition",
    "metrics.NAME.weight", "partitions.private.strategy", "partitions.private.min_users", "partitions.private.weight",
    "share", "budget.epsilon", "budget.delta", "budget.runs",
)  # fmt: skip
"""What can be varied: places in the stage, or in the budget of the job."""

Value = str | int | float
GridSetting = tuple[tuple[str, Value], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """One configuration as the job file that it stands for.

    Args:
        number: its place.
        setting: by path what differs from the job, in the order of the grid; empty for the job as it stands.
        file: the job with the setting.
        query: of the stage.
    """

    number: int
    setting: GridSetting
    file: JobFile
    query: Query

    @property
    def words(self) -> str:
        """The setting in words."""
        return ", ".join(f"{path}={value}" for path, value in self.setting) or "the job as it stands"


def read(given: Sequence[str]) -> list[list[GridSetting]]:
    """What was given: for each dimension its settings.

    Args:
        given: names of YAML or JSON files, or `PATH=VALUE,VALUE` (`PATH,PATH=VALUE,VALUE` gives both paths the same value).

    Raises:
        RequestError: it is no grid.

    >>> read(["bounds.max_partitions_contributed=1,2"])
    [[(('bounds.max_partitions_contributed', 1),), (('bounds.max_partitions_contributed', 2),)]]
    """
    found: dict[str, list[Any]] = {}
    for text in given:
        paths, equals, values = text.partition("=")
        new = {paths: yaml_lines.parse(f"v: [{values}]", "--grid").data["v"]} if equals else _of_file(text)
        for name, listed in new.items():
            if name in found:
                raise RequestError(
                    field=f"--grid {name}", message="is given twice", hint="list all values in one place"
                )
            found[name] = _values(name, listed)
    if not found:
        hint = 'write e.g. --grid "bounds.max_partitions_contributed=1,2,4,8"'
        raise RequestError(field="--grid", message="varies nothing", hint=hint)
    return [[_setting(names, value) for value in listed] for names, listed in found.items()]


def _of_file(name: str) -> Mapping[str, Any]:
    path = pathlib.Path(name)
    hint = 'name a file, or write e.g. --grid "bounds.max_partitions_contributed=1,2,4,8"'
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError):
        raise RequestError(field=f"--grid {name}", message="is not a readable file", hint=hint) from None
    data = yaml_lines.parse(text, name).data
    if not isinstance(data, Mapping):
        raise RequestError(field=f"--grid {name}", message="must map paths to lists of values")
    return data


def _values(name: str, listed: Any) -> list[Value]:
    sound = isinstance(listed, list) and all(
        isinstance(v, str | int | float) and not isinstance(v, bool) for v in listed
    )
    if not sound or not listed or len(set(listed)) < len(listed):
        raise RequestError(field=f"--grid {name}", message="must list one or more distinct numbers or words")
    return list(listed)


def _setting(names: str, value: Value) -> GridSetting:
    return tuple((name.strip(), value) for name in names.split(","))


def options(request: Request, name: str, grid: Sequence[Sequence[GridSetting]]) -> list[Option]:
    """All configurations.

    Args:
        request: the job.
        name: of the stage.
        grid: what `read` gives.

    Raises:
        RequestError: a path or a value is wrong, or there are too many; the stage cannot be tuned.
    """
    count = 1
    for dimension in grid:
        count *= len(dimension)
    if count > MOST:
        message = f"has {count:,} configurations, more than {MOST:,}"
        raise RequestError(field="--grid", message=message, hint="give fewer values, or tune in two steps")
    paths = [path for dimension in grid for path, _ in dimension[0]]
    doubled = [path for path in paths if paths.count(path) > 1]
    if doubled:
        raise RequestError(field=f"--grid {doubled[0]}", message="is given twice", hint="vary each path once")
    for path in paths:
        _check_path(path, request, name)
    settings = [tuple(itertools.chain(*chosen)) for chosen in itertools.product(*grid)]
    found = list(_options(request, name, settings))
    _check_stage(request.queries[name], name, request.file)
    if not any(option.query == request.queries[name] and _same_budget(option.file, request.file) for option in found):
        found.insert(0, Option(number=0, setting=(), file=request.file, query=request.queries[name]))
    for option in found:
        _check_query(option)
    return [dataclasses.replace(option, number=number) for number, option in enumerate(found)]


def _same_budget(one: JobFile, other: JobFile) -> bool:
    shares = [[stage.declared_share for stage in file.job.stages.values()] for file in (one, other)]
    return one.job.budget == other.job.budget and shares[0] == shares[1]


def _options(request: Request, name: str, settings: Sequence[GridSetting]) -> Iterator[Option]:
    for setting in settings:
        try:
            file = with_setting(request.file, name, setting)
            yield Option(number=0, setting=setting, file=file, query=_query(file, name, request.queries[name]))
        except RequestError as error:
            words = ", ".join(f"{path}={value}" for path, value in setting)
            validation_errors.raise_within(f"--grid {words}", error)


def place(path: str, name: str) -> Path:
    """Where a path of a grid stands in the job file.

    >>> place("bounds.max_partitions_contributed", "weekly"), place("budget.epsilon", "weekly")
    (('stages', 'weekly', 'bounds', 'max_partitions_contributed'), ('budget', 'epsilon'))
    """
    parts = path.split(".")
    if parts[0] == "metrics":  # names of metrics may hold dots
        parts = [parts[0], ".".join(parts[1:-1]), parts[-1]]
    return tuple(parts) if parts[0] == "budget" else ("stages", name, *parts)


def with_setting(file: JobFile, name: str, setting: GridSetting) -> JobFile:
    """The job with other values.

    Raises:
        RequestError: what the job file would say.
    """
    data = copy.deepcopy(file.document.data)
    for path, value in setting:
        around = data
        *above, last = place(path, name)
        for step in above:
            if not isinstance(around.get(step), dict):
                around[step] = {}
            around = around[step]
        around[last] = value
    document = dataclasses.replace(file.document, data=data)
    try:
        return JobFile(file.path, Job.model_validate(data), document)
    except ValidationError as error:
        raise validation_errors.JobErrors(validation_errors.from_validation(error, document, Job)) from None


def _query(file: JobFile, name: str, before: Query) -> Query:
    """The query of a stage with other values; columns and public lists were checked before."""
    stage = file.job.stages[name]
    assert isinstance(stage, Stage)
    partitions = before.partitions
    if isinstance(partitions, PrivatePartitions):
        partitions = (stage.partitions.private or Private()).build()
    try:
        metrics = {key: metric.build() for key, metric in stage.metrics.items()}
        return dataclasses.replace(before, bounds=stage.bounds.build(), metrics=metrics, partitions=partitions)
    except RequestError as error:
        raise file.error(("stages", name), error) from None


def _check_path(path: str, request: Request, name: str) -> None:
    field, known = (
        f"--grid {path}",
        [known.replace("NAME", key) for known in PATHS for key in request.queries[name].metrics],
    )
    general = [re.escape(each).replace("NAME", "(.+)") for each in PATHS]
    match = next((found for pattern in general if (found := re.fullmatch(pattern, path))), None)
    if match is None:
        raise RequestError(
            field=field, message="is not a setting that can be varied", hint=nearest(path, dict.fromkeys(known))
        )
    if match.groups() and match[1] not in request.queries[name].metrics:
        hint = nearest(match[1], request.queries[name].metrics, "metrics")
        raise RequestError(field=field, message=f"does not name a metric of the stage {name!r}", hint=hint)
    private = isinstance(request.queries[name].partitions, PrivatePartitions)
    if path.startswith("partitions.") and not private:
        raise RequestError(
            field=field, message="applies to private partitions, but the stage lists public ones", hint="drop it"
        )


def _check_stage(query: Query, name: str, file: JobFile) -> None:
    """Refuse a stage of which nothing can be told."""
    if query.best is not None or not any(supported(metric) for metric in query.metrics.values()):
        message = f"has no metric whose errors can be predicted (one of {', '.join(KINDS)})"
        raise file.error(("stages", name), RequestError(field="", message=message, hint="tune another stage"))


def _check_query(option: Option) -> None:
    """Refuse what is decided in a run only, or bounded in another way."""
    bounds, partitions = option.query.bounds, option.query.partitions
    auto = [key for key, metric in option.query.metrics.items() if metric.auto]
    if bounds.max_contributions is not None:
        message, hint = (
            "bounds the total number of rows, which cannot be tuned",
            "bound partitions and rows per partition instead",
        )
        raise RequestError(field="bounds.max_contributions", message=message, hint=hint)
    if bounds.auto:
        message = "is chosen by the run, so it cannot be tuned"
        raise RequestError(
            field=f"bounds.{bounds.auto_field}",
            message=message,
            hint="write a number in the job file, and vary it",
        )
    if auto:
        message = "has bounds that the run chooses, so it cannot be tuned"
        raise RequestError(
            field=f"metrics.{auto[0]}", message=message, hint="write numbers in the job file, and vary them"
        )
    scaled = [key for key, metric in option.query.metrics.items() if metric.scale is not None]
    if scaled:
        message = "has a bound that differs by partition, for which no prediction exists"
        raise RequestError(field=f"metrics.{scaled[0]}", message=message, hint="write numbers in the job file")
    if getattr(partitions, "strategy", None) == "sips":
        message, hint = "selects in several rounds, for which no prediction exists", "tune another strategy"
        raise RequestError(field="partitions.private.strategy: sips", message=message, hint=hint)
