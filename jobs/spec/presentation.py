"""How readers see a release: titles, descriptions, names and formats of numbers, what is computed from these. All of it is free.

In: keys of a job file. Out: types of these keys, what a manifest says of them, a job without them. Holds: nothing here is part of
a plan or of what a run id fixes, so that a released page can be made again with other words. Not covered: the page.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from dp_pipelines import checks
from dp_pipelines.errors import RequestError, nearest
from dp_pipelines.query.order_by import read_all
from dp_pipelines.report.words import number_format
from dp_pipelines.report.words.number_format import FormOf, NumberFormat

if TYPE_CHECKING:
    from dp_pipelines.jobs.spec.job_file import Job

OF_PARTS = ("title", "description", "format")
"""Keys of a job and of its stages."""

OF_METRICS = ("label", "measure", "format")
"""Keys of a metric."""

ENTRY, SHOWN, DERIVED, CSV = "presentation", "shown", "derived", "csv"
"""The entry of a manifest, that of a stage on which rows it shows, in which order, what says its formulas, and options of CSV."""


def _plain(text: str) -> str:
    return checks.plain(text, "")


Title = Annotated[
    str | None,
    Field(
        min_length=1, max_length=200, description="The heading on the page; costs nothing, and may be changed later."
    ),
    AfterValidator(lambda text: None if text is None else _plain(text)),
]

Description = Annotated[
    str | None,
    Field(min_length=1, max_length=2000, description="A paragraph for readers, below the heading; costs nothing."),
    AfterValidator(lambda text: None if text is None else _plain(text)),
]

Label = Annotated[
    str | None,
    Field(
        min_length=1, max_length=100,
        description="The name of the number on the page, in place of its column; costs nothing, and may be changed later.",
    ),
    AfterValidator(lambda text: None if text is None else _plain(text)),
]  # fmt: skip

Measure = Annotated[
    str | None,
    Field(
        min_length=1, max_length=40, description="The unit of measure on the page, such as EUR or hours; costs nothing."
    ),
    AfterValidator(lambda text: None if text is None else _plain(text)),
]


def _is_format(text: str | None) -> str | None:
    if text is not None and NumberFormat.read(text) is None:
        raise RequestError(field="", message=number_format.RULE, hint=number_format.HINT)
    return text


Format = Annotated[
    str | None,
    Field(
        description="How numbers are written on the page, in the terminal and in rounded CSV: ',.0f', '.2f' or '.1%'; costs "
        "nothing, and may be changed later."
    ),
    AfterValidator(_is_format),
]


def forms_of(job: "Job") -> Callable[[str], FormOf]:
    """Return how the numbers of each metric of a stage are written: a function from stages to functions from metrics.

    Args:
        job: the job.
    """
    from dp_pipelines.report.words import presented as shown_words  # loads what draws pages

    content = {ENTRY: of_job(job)}
    return lambda stage: shown_words.read_stage(content, stage).form_of


def of_job(job: "Job") -> dict[str, Any]:
    """Return what a manifest says of how a job is presented; empty if the job says nothing.

    Args:
        job: the job.
    """
    said: dict[str, Any] = _said(job, OF_PARTS)
    stages = {}
    for name, stage in job.stages.items():
        every = {**getattr(stage, "metrics", {}), **getattr(stage, "derived", {})}
        metrics = {key: _said(metric, OF_METRICS) for key, metric in every.items()}
        of_stage = _said(stage, OF_PARTS) | {"metrics": {key: one for key, one in metrics.items() if one}}
        of_stage[DERIVED] = formulas_of(stage)
        stages[name] = {key: value for key, value in of_stage.items() if value}
    shown = {name: one for name, one in stages.items() if one}
    spreadsheet = None if job.outputs is None else job.outputs.spreadsheet
    said |= {} if spreadsheet is None else {CSV: spreadsheet[1].model_dump(mode="json", exclude_defaults=True)}
    return said | ({"stages": shown} if shown else {})


def formulas_of(stage: object) -> dict[str, str]:
    """Return what a stage computes from its released numbers: formulas by name."""
    return {name: metric.formula for name, metric in getattr(stage, "derived", {}).items()}


def with_derived(job: "Job", dump: dict[str, Any]) -> dict[str, Any]:
    """Return the dump of a job with what it computes from released numbers, which no dump has, as it stands in the job file.

    Args:
        job: the job.
        dump: of it; it is not changed.
    """
    stages = {}
    for name, stage in dump.get("stages", {}).items():
        derived = getattr(job.stages[name], "derived", {})
        more = {key: metric.model_dump(mode="json", exclude_defaults=True) for key, metric in derived.items()}
        stages[name] = {**stage, "metrics": {**stage.get("metrics", {}), **more}} if more else stage
    return {**dump, "stages": stages} if "stages" in dump else dump


def difference(job: "Job", content: Mapping[str, Any]) -> str:
    """Return what a page would have that the stored one has not, in words: `other titles or names`; empty if nothing.

    Args:
        job: the job.
        content: the manifest of the release.
    """
    shown = {stage.get("name"): (stage.get(SHOWN) or {}).get("order_by", []) for stage in content.get("stages", [])}
    orders = {name: getattr(stage, "order_by", None) or [] for name, stage in job.stages.items()}
    said, stored = (_dropped(one, (CSV,)) for one in (of_job(job), content.get(ENTRY, {})))
    formulas = [_formulas_in(entry) for entry in (said, stored)]
    words, forms = (
        [dict(_texts(_without_formulas(entry), formats=formats)) for entry in (said, stored)]
        for formats in (False, True)
    )
    found = ["other titles or names"] if words[0] != words[1] else []
    found += ["other formats of numbers"] if forms[0] != forms[1] else []
    found += ["other computed numbers"] if formulas[0] != formulas[1] else []
    found += ["rows in another order"] if any(orders.get(name, []) != shown[name] for name in shown) else []
    return " and ".join(found)


def other_csv(job: "Job", content: Mapping[str, Any]) -> bool:
    """Return True if a job writes the CSV files of a release with other options than the release has.

    Args:
        job: the job.
        content: the manifest of the release.
    """
    return bool(of_job(job).get(CSV) != (content.get(ENTRY) or {}).get(CSV))


def _formulas_in(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the formulas of an entry of a manifest, by stage."""
    return {name: stage[DERIVED] for name, stage in entry.get("stages", {}).items() if DERIVED in stage}


def _texts(
    entry: Mapping[str, Any], path: tuple[str, ...] = (), *, formats: bool
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the formats of numbers in an entry of a manifest, or its other texts, each with its path.

    Args:
        entry: without formulas.
        path: of the entry.
        formats: True for formats alone, False for all other texts.
    """
    for key, value in entry.items():
        if isinstance(value, Mapping):
            yield from _texts(value, (*path, key), formats=formats)
        elif (key == "format") == formats:
            yield (*path, key), value


def _without_formulas(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of a manifest without its formulas."""
    stages = {name: _dropped(stage, (DERIVED,)) for name, stage in entry.get("stages", {}).items()}
    shown = {name: stage for name, stage in stages.items() if stage}
    return _dropped(entry, ("stages",)) | ({"stages": shown} if shown else {})


def presented(
    job: "Job", content: Mapping[str, Any], rows: Mapping[str, int], columns: Mapping[str, list[str]]
) -> dict[str, Any]:
    """Return the manifest that a release would have if it had been made with the presentation of a job.

    Args:
        job: the job.
        content: the manifest.
        rows, columns: of each published table.

    Raises:
        RequestError: the job is another one, or asks for rows that were not published.
    """
    if content.get("dataset") != job.dataset:
        message = f"is of the dataset {job.dataset!r}, and the release of {content.get('dataset')!r}"
        raise RequestError(field="--job", message=message, hint="name the job file of this release")
    stages = []
    for described in content.get("stages", []):
        name = described.get("name")
        stage = job.stages.get(name)
        if stage is None:
            message, hint = f"has no stage {name!r}, which the release has", "name the job file of this release"
            raise RequestError(field="--job", message=message, hint=hint)
        stages.append(_with_order(stage, described, name, rows.get(name, 0), columns.get(name, [])))
    left = {key: value for key, value in content.items() if key != ENTRY}
    said = of_job(job)
    return {**left, "stages": stages} | ({ENTRY: said} if said else {})


def _with_order(stage: Any, described: Mapping[str, Any], name: str, rows: int, columns: list[str]) -> dict[str, Any]:
    """Return the entry of a stage with the order of rows of a job. Raises: RequestError."""
    chosen = described.get(SHOWN) or {}
    keys = ("having", "limit", "order_by") if chosen.get("limit") is not None else ("having", "limit")
    for key in keys:  # with a limit the order says which rows are published
        if getattr(stage, key, None) != chosen.get(key):
            message = "is not that of the release, of which all published rows are shown"
            hint = f"write it as it was, or filter {name}.parquet, which is free"
            raise RequestError(field=f"stages.{name}.{key}", message=message, hint=hint)
    order = getattr(stage, "order_by", None)
    if order is None and (chosen.get("limit") is not None or not chosen.get("order_by")):
        return dict(described)
    order = order or []
    for one in read_all(order) if order else ():
        if one.column not in columns:
            hint = nearest(one.column, columns, "released")
            raise RequestError(
                field=f"stages.{name}.order_by", message=f"names {one.column!r}, which was not released", hint=hint
            )
    return {**described, SHOWN: {"groups": rows, "rows": rows, "words": [], **chosen, "order_by": order}}


def _said(part: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key in keys if (value := getattr(part, key, None)) is not None}


def without(job: dict[str, Any]) -> dict[str, Any]:
    """Return the dump of a job without what only readers see: also an order of rows that chooses none of them.

    Args:
        job: the dump of a job's model; it is not changed.

    >>> stage = {"title": "A", "order_by": ["n desc"], "metrics": {"n": {"measure": "EUR"}}}
    >>> without({"title": "Orders", "stages": {"a": stage}})
    {'stages': {'a': {'metrics': {'n': {}}}}}
    >>> without({"outputs": {"files": ["jsonl", {"csv": {"bom": True}}]}})
    {'outputs': {'files': ['jsonl', 'csv']}}
    """
    stages = {name: _of_stage(stage) for name, stage in job.get("stages", {}).items()}
    found = _dropped(job, OF_PARTS) | ({"stages": stages} if "stages" in job else {})
    files = (job.get("outputs") or {}).get("files")
    if files:  # options of CSV say how a file is written, and the format itself that there is one
        names = [next(iter(entry)) if isinstance(entry, Mapping) else entry for entry in files]
        found["outputs"] = {**job["outputs"], "files": names}
    return found


def _of_stage(stage: Mapping[str, Any]) -> dict[str, Any]:
    found = _dropped(stage, OF_PARTS)
    if "limit" not in found:
        found.pop("order_by", None)
    if isinstance(found.get("metrics"), Mapping):
        found["metrics"] = {name: _dropped(metric, OF_METRICS) for name, metric in found["metrics"].items()}
    return found


def _dropped(part: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key not in keys}
