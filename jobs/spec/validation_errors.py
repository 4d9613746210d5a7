"""What is wrong with a job, in our words: one line for each error, with `file:line` where it stands in a file, message and hint.

In: pydantic's errors and the job's content. Out: `RequestError`s. Holds: every error of one pass is kept; an unknown
key comes with the nearest known one. Not covered: finding the errors (`job_file`).
"""

import difflib
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dp_pipelines.errors import RequestError
from dp_pipelines.errors import nearest as nearest
from dp_pipelines.jobs.spec import presentation
from dp_pipelines.jobs.spec.content import Content, Path


class JobErrors(RequestError):
    """Several errors at once; the text has one line for each.

    >>> print(JobErrors([RequestError(field="a", message="is wrong"), RequestError(field="b", message="is too")]))
    a: is wrong
    b: is too
    """

    def __init__(self, problems: Sequence[RequestError]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        super().__init__(field=first.field, message=first.message, hint=first.hint)
        self.args = ("\n".join(str(problem) for problem in self.problems),)

    def __reduce__(self) -> Any:
        return (JobErrors, (self.problems,))


OTHER_FORMATS = frozenset(
    {"excel", "xlsx", "xls", "ods", "sheet", "postgres", "postgresql", "mysql", "mariadb", "sqlite", "duckdb", "mssql"}
    | {
        "sqlserver",
        "oracle",
        "snowflake",
        "redshift",
        "databricks",
        "sql",
        "jdbc",
        "odbc",
        "database",
        "orc",
        "feather",
    }
    | {"arrow", "ipc", "json", "xml", "sas", "spss", "stata", "pandas", "kafka", "https", "http", "url"}
)
"""What people write for sources that are not read."""

UNIT_OF_SOURCE = "the unit's columns are those of the source: name one of them, or write this one into the files first"
"""A hint where something else would make a column of the privacy unit."""


def raise_all(problems: Sequence[RequestError]) -> None:
    """Raise what was collected, if anything."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise JobErrors(problems)


def raise_within(option: str, error: RequestError) -> NoReturn:
    """Raise what is wrong with a job file that an option of the command line changes: the option stands before each field."""
    problems = error.problems if isinstance(error, JobErrors) else (error,)
    named = [RequestError(field=f"{option}: {e.field}", message=e.message, hint=e.hint) for e in problems]
    raise (named[0] if len(named) == 1 else JobErrors(named)) from None


ALIASES: Mapping[str, str] = {
    "average": "mean",
    "avg": "mean",
    "count_distinct": "distinct_count",
    "nunique": "distinct_count",
    "users": "privacy_id_count",
    "rows": "count",
    "percentile": "quantile",
    "percentiles": "quantiles",
    "total": "sum",
    "stddev": "variance",
    "var": "variance",
}
"""What metrics are called elsewhere."""


def place(path: Path, field: str, content: Content) -> tuple[str, Path]:
    """The name of a place in a job, and its path.

    Args:
        path: keys and indices, where `field` is looked for.
        field: a key or dotted keys below `path`, or the name of something that is no key.
        content: of the job.
    """
    full: Path = path
    for part in field.replace("[", ".").replace("]", "").split("."):
        step: str | int = int(part) if part.isdigit() else part
        if step != "" and (not full or full[-1] != step or content.holds((*full, step))):
            full = (*full, step)
    return shown(full), full


def shown(path: Path) -> str:
    r"""A path in a message, in one line whatever keys hold.

    >>> shown(("stages", "a\nb", 0))
    'stages.a\\nb.0'
    """
    text = ".".join(str(step) for step in path)
    return text if text.isprintable() else repr(text)[1:-1]


def from_validation(error: ValidationError, content: Content, model: type[BaseModel]) -> list[RequestError]:
    """One `RequestError` for each of pydantic's."""
    found: dict[str, RequestError] = {}
    for detail in error.errors(include_url=False, include_input=False):
        cause = detail.get("ctx", {}).get("error")
        path, current, others = _resolve(detail["loc"], model)
        if isinstance(cause, RequestError):
            field, path = place(path, cause.field, content)
            # A key that is left out is None to the library.
            message, hint = cause.message.replace("must be a number, not NoneType", "is missing"), cause.hint
        else:
            field = shown(path) or "the job"
            message, hint = _words(detail, path, current, others)
            hint = _way_out(path, detail["type"]) or hint
            if detail["type"] == "union_tag_invalid":
                field, path = f"{field}.kind", (*path, "kind")
        problem = RequestError(field=content.named(path, field), message=message, hint=hint)
        found.setdefault(str(problem), problem)
    return list(found.values())


def by_line(problems: Iterable[RequestError]) -> list[RequestError]:
    """Errors in the order of the lines that stand in their fields."""

    def line(problem: RequestError) -> int:
        number = re.search(r":([0-9]+)(?::[0-9]+)?$", problem.field.partition(": ")[0])
        return int(number[1]) if number is not None else 0

    return sorted(problems, key=line)


def _resolve(location: tuple[int | str, ...], model: Any) -> tuple[Path, Any, tuple[Any, ...]]:
    """The path in the document (pydantic puts the tags of unions into its own), and the type that stands around its end.

    Where that type is a member of a union, the other members come with it.
    """
    path: list[str | int] = []
    others: tuple[Any, ...] = ()
    beside = others  # of `current`, as `others` are of `around`
    around = current = _plain(model)
    for step in location:
        if step == "[key]":
            break
        around, others = current, beside
        tagged = _member(current, step) if not isinstance(current, type) else None
        if tagged is not None:
            beside, current = tuple(member for member in current if member is not tagged), tagged
            continue
        path.append(step)
        beside = ()
        current = _plain(_below(current, step))
    return tuple(path), around, others


def _plain(kind: Any) -> Any:
    """A type without Annotated and without None."""
    while typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        rest = [_plain(member) for member in typing.get_args(kind) if member is not type(None)]
        return rest[0] if len(rest) == 1 else tuple(rest)
    return kind


def _member(members: Any, tag: int | str) -> Any:
    """The member of a union whose `kind` is the tag; of a mapping, a list of them or a text the one that is given."""
    for member in members if isinstance(members, tuple) else ():
        fields = getattr(member, "model_fields", None)
        if fields is None or "kind" not in fields:
            if tag in (("list", "text") if fields is None else ("mapping",)):
                return member
        elif tag in typing.get_args(fields["kind"].annotation):
            return member
    return None


def _below(kind: Any, step: int | str) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        known = kind.model_fields.get(str(step))
        return known.annotation if known else None
    if typing.get_origin(kind) in (dict, list):
        return typing.get_args(kind)[-1]
    return None


def _words(detail: ErrorDetails, path: Path, around: Any, others: Iterable[Any]) -> tuple[str, str]:
    """Message and hint of one of pydantic's errors."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = around.model_fields if isinstance(around, type) and issubclass(around, BaseModel) else {}
        if len(path) == 1 and _is_of_stages(path[0], around):
            return "belongs into a stage", f"write it under stages: NAME: {path[0]}:"
        if len(path) > 1 and hasattr(around, "formats_of_files") and str(path[-1]).lower() in OTHER_FORMATS:
            formats = ", ".join(f"{name}:" for name in around.formats_of_files)
            hint = f"{formats} are; write Parquet first, e.g. with DuckDB: COPY (FROM ...) TO 'data.parquet'"
            return "is no format that is read", hint
        for_readers = (*presentation.OF_PARTS, *presentation.OF_METRICS)
        hint = nearest(str(path[-1]), sorted(known, key=for_readers.__contains__), "known keys")
        return "unknown key", hint if hint.startswith("did") else _elsewhere(str(path[-1]), others) + hint
    if kind == "missing":
        return "is missing", "add it"
    if kind in ("literal_error", "union_tag_invalid"):
        listed = str(context.get("expected") or context.get("expected_tags")).replace("'", "").replace(" or ", ", ")
        tag = str(context.get("tag", ""))
        hint = nearest(tag, listed.split(", "))
        if not hint.startswith("did"):
            other = difflib.get_close_matches(tag.casefold(), ALIASES, n=1)
            hint = f"did you mean {ALIASES[other[0]]!r}?" if other and ALIASES[other[0]] in listed.split(", ") else ""
        return f"must be one of {listed}", hint
    if kind == "union_tag_not_found":
        return "has no kind", "add e.g. kind: " + ("aggregate" if len(path) == 2 and path[0] == "stages" else "count")
    if kind == "string_pattern_mismatch" and path[:1] == ("stages",):
        return "must be a name of letters, digits and signs of _.- that starts with a letter or digit", "rename it"
    if kind == "string_pattern_mismatch":
        return "must be a name of letters, digits and underscores that starts with a letter", "rename it"
    if kind == "too_long":
        return f"must have at most {context['max_length']} entries", "write fewer"
    if kind in _TYPES:
        return _TYPES[kind], ""
    bounds = {"greater_than": ("above", "gt"), "greater_than_equal": ("at least", "ge")}
    bounds |= {"less_than": ("below", "lt"), "less_than_equal": ("at most", "le")}
    if kind in bounds:
        word, key = bounds[kind]
        return f"must be {word} {context[key]:g}", ""
    return detail["msg"][:1].lower() + detail["msg"][1:], ""


def _way_out(path: Path, kind: str) -> str:
    """A hint where the nearest key or number would not do what is wanted; empty elsewhere."""
    if path == ("budget", "epsilon") and kind == "greater_than":
        return (
            "no switch turns the noise off: --synthetic shows a report of made-up rows, and `dp-pipelines check` "
            "what your rows are like"
        )
    if path[:1] == ("stages",) and path[2:] == ("bounds",) and kind == "model_type":
        return (
            "write e.g. bounds: {max_partitions_contributed: 8, max_contributions_per_partition: 4}, or leave it out, "
            "and each run chooses both"
        )
    if path[-1:] == ("kept",) and kind == "model_type":
        return "write e.g. kept: {share: 0.1}: the part of the stage's budget that measures what its limits cut off"
    if path[-2:] in (("partitions", "product"), ("partitions", "range"), ("public", "range")):
        return "write public: {product: {COLUMN: [...], COLUMN: {range: [0, 23]}}}, in place of a list"
    weighs = (path[-1:] == ("weight",) and kind == "float_type") or path[-1:] == ("weight_column",)
    if "metrics" in path and weighs:
        return (
            "`weight` is a metric's part of the budget, and weights of rows are for means: {kind: mean, column: v, "
            "weight_column: w, max_weight: 4}; for a weighted sum define a column w * v under columns:"
        )
    if "edges" in path and kind == "finite_number":
        return "no values beyond the ends are counted: write numbers that no value passes, e.g. -1.0e+9 and 1.0e+9"
    return ""


def _is_of_stages(key: int | str, job: Any) -> bool:
    """Whether a key is one of stages."""
    stages = _plain(_below(_plain(_below(job, "stages")), "NAME"))
    return any(
        key in getattr(kind, "model_fields", {}) for kind in (stages if isinstance(stages, tuple) else (stages,))
    )


def _elsewhere(key: str, others: Iterable[Any]) -> str:
    """A hint that a key belongs to one other kind, or to two."""
    known = [m.model_fields for m in others if "kind" in getattr(m, "model_fields", {})]
    kinds = [typing.get_args(fields["kind"].annotation)[0] for fields in known if key in fields]
    return f"{key} is for {' and '.join(kinds)}; " if 0 < len(kinds) < 3 else ""


_TYPES: Mapping[str, str] = {
    "string_type": "must be text; put it in quotes",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping of names",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "list_type": "must be a list",
    "is_instance_of": "must be a list",
    "sequence_str": "must be a list",
    "mapping_type": "must be a mapping of names",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
}
